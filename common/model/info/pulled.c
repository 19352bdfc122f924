#include "common/model/info/pulled.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/files/hf_json.h"

enum { MANIFEST_VERSION = 1 };

char *pulled_folder(const struct model_ref *r, const char *cache_dir)
{
    size_t n = strlen(cache_dir) + strlen(r->folder) + 2;
    char *out = mem_alloc(n);
    snprintf(out, n, "%s/%s", cache_dir, r->folder);
    return out;
}

void pulled_fini(struct pulled *p)
{
    for (uint32_t i = 0; i < p->n_files; i++)
        mem_free(p->files[i].name);
    mem_free(p->files);
    mem_free(p->folder);
    mem_free(p->commit);
    *p = (struct pulled){0};
}

/* ---- reading ---- */

static bool read_file(const json_t *o, struct pulled_file *f)
{
    const char *name = json_string_value(json_object_get(o, "name")),
               *sha256 = json_string_value(json_object_get(o, "sha256"));
    const json_t *size = json_object_get(o, "bytes");
    if (!name || !model_ref_name_is_safe(name) || !sha256 || strlen(sha256) != 64 ||
        strspn(sha256, "0123456789abcdef") != 64 || !json_is_integer(size) ||
        json_integer_value(size) < 0)
        return false;
    f->name = mem_strdup(name);
    f->n_bytes = (uint64_t)json_integer_value(size);
    memcpy(f->sha256, sha256, 65);
    return true;
}

static enum status read_manifest(const json_t *root, struct pulled *p, struct error *err)
{
    const json_t *files = json_object_get(root, "files");
    const char *commit = json_string_value(json_object_get(root, "commit"));
    size_t n = json_array_size(files);
    if (json_integer_value(json_object_get(root, "version")) != MANIFEST_VERSION || n == 0 ||
        n > PULLED_MAX_FILES || !commit)
        return error_set(err, STATUS_INVALID,
                         "the model's list of files, " PULLED_MANIFEST
                         ", was written by another version of cox");
    p->commit = mem_strdup(commit);
    p->files = mem_array(n, sizeof *p->files);
    for (; p->n_files < n; p->n_files++) {
        if (!read_file(json_array_get(files, p->n_files), &p->files[p->n_files]))
            return error_set(err, STATUS_INVALID,
                             "the entry of file %u in " PULLED_MANIFEST " is not valid",
                             p->n_files);
        p->n_bytes += p->files[p->n_files].n_bytes;
    }
    return STATUS_OK;
}

static enum status check_files(const struct pulled *p, struct error *err)
{
    for (uint32_t i = 0; i < p->n_files; i++) {
        const struct pulled_file *f = &p->files[i];
        char path[PATH_MAX];
        struct stat st;
        int n = snprintf(path, sizeof path, "%s/%s", p->folder, f->name);
        if (n < 0 || (size_t)n >= sizeof path || stat(path, &st) != 0)
            return error_set(err, STATUS_INVALID, "the file %s is missing", f->name);
        if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->n_bytes)
            return error_set(err, STATUS_INVALID,
                             "the file %s has %lld bytes, but had %llu when it was pulled", f->name,
                             (long long)st.st_size, (unsigned long long)f->n_bytes);
    }
    return STATUS_OK;
}

/* Reads the manifest of p->folder. `reference` may be NULL. */
static enum status read_folder(struct pulled *p, char **reference, struct error *why)
{
    json_t *root = NULL;
    enum status s = hf_json_load(p->folder, PULLED_MANIFEST, 0, &root, why);
    const char *text = json_string_value(json_object_get(root, "reference"));
    if (reference && text)
        *reference = mem_strdup(text);
    if (s == STATUS_OK)
        s = read_manifest(root, p, why);
    if (s == STATUS_OK)
        s = check_files(p, why);
    json_decref(root);
    return s;
}

enum status pulled_open(const struct model_ref *r, const char *cache_dir, struct pulled *out,
                        struct error *err)
{
    struct error why = {0};
    *out = (struct pulled){.folder = pulled_folder(r, cache_dir ? cache_dir : ".")};
    enum status s = read_folder(out, NULL, &why);
    if (s == STATUS_OK)
        return STATUS_OK;
    if (s == STATUS_NOT_FOUND)
        error_set(err, s,
                  "the model %s is not in the cache (%s). Run `cox pull %s` first, or set "
                  "COX_CACHE to the folder that contains it",
                  r->text, out->folder, r->text);
    else
        error_set(err, s, "the cached model %s is damaged: %s. Run `cox pull %s` to fetch it again",
                  out->folder, why.text, r->text);
    pulled_fini(out);
    return s;
}

enum status pulled_open_folder(const char *folder, struct pulled *out, char **reference,
                               struct error *err)
{
    *out = (struct pulled){.folder = mem_strdup(folder)};
    *reference = NULL;
    return read_folder(out, reference, err);
}

/* ---- writing ---- */

static json_t *to_json(const struct model_ref *r, const struct pulled *p)
{
    json_t *files = json_array();
    for (uint32_t i = 0; i < p->n_files; i++)
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", p->files[i].name, "bytes",
                                               (json_int_t)p->files[i].n_bytes, "sha256",
                                               p->files[i].sha256));
    return json_pack("{s:i, s:s, s:s, s:o}", "version", MANIFEST_VERSION, "reference", r->text,
                     "commit", p->commit ? p->commit : "", "files", files);
}

enum status pulled_write(const struct model_ref *r, const struct pulled *p, struct error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/" PULLED_MANIFEST, p->folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(
            err, STATUS_INVALID,
            "the path of the cache folder is too long. Set COX_CACHE to a shorter path");
    json_t *root = to_json(r, p);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool ok = root && fd >= 0 && json_dumpfd(root, fd, JSON_INDENT(1)) == 0 && fsync(fd) == 0;
    int saved = errno;
    json_decref(root);
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        saved = errno;
    }
    return ok ? STATUS_OK
              : error_set(err, STATUS_IO, "cannot write %s: %s", path,
                          strerror(saved ? saved : ENOMEM));
}
