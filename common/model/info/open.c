/* Opens a model that `--model` names. The name goes through model_ref_parse to one of three
 * places: a cached demo model, a path on this machine, or a model that was pulled into the
 * cache. The file's format then chooses the reader (hf.h or gguf.h), which fills model_info.
 * Invariants: nothing is downloaded, and the files are only read. Any thread may call these
 * functions. */
#include "common/model/info/open.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/model/gguf/gguf.h"
#include "common/model/gguf/names.h"
#include "common/model/info/demo.h"
#include "common/model/info/gguf.h"
#include "common/model/info/hf.h"
#include "common/model/info/pulled.h"
#include "common/model/info/ref.h"

enum { NULL_MAX_LEN = 32768, NULL_VOCAB = 259, NULL_EOS = 257, NULL_HIDDEN = 8 };

void model_cache_dir(const char *cox_cache, const char *home, char *out, size_t out_size)
{
    int n;
    if (cox_cache && *cox_cache)
        n = snprintf(out, out_size, "%s", cox_cache);
    else
        n = snprintf(out, out_size, "%s/.cache/coxswain", home && *home ? home : ".");
    if (n < 0 || (size_t)n >= out_size)
        out[0] = '\0'; /* a cut path would be the path of another file, so the result is empty */
}

void model_info_fini(struct model_info *m)
{
    mem_free(m->path);
    mem_free(m->tokenizer_path);
    mem_free(m->name);
    mem_free(m->family);
    *m = (struct model_info){0};
}

static enum status open_null(struct model_info *m)
{
    *m = (struct model_info){.format = MODEL_NULL,
                             .path = mem_strdup("null"),
                             .tokenizer_path = mem_strdup("builtin:bytes"),
                             .name = mem_strdup("null"),
                             .family = mem_strdup("null"),
                             .max_model_len = NULL_MAX_LEN,
                             .vocab_size = NULL_VOCAB,
                             .hidden = NULL_HIDDEN,
                             .eos_ids = {NULL_EOS},
                             .n_eos_ids = 1};
    return STATUS_OK;
}

static enum status name_from_path(struct model_info *m, const char *path, struct error *err)
{
    struct str name = model_name_of(path);
    if (str_utf8_valid(name) != name.len)
        return error_set(err, STATUS_INVALID,
                         "the name of the model %s is not valid UTF-8. Rename the model", path);
    m->name = mem_strndup(name.ptr, name.len);
    return STATUS_OK;
}

static bool has_config(const char *folder)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/config.json", folder);
    return n > 0 && n < PATH_MAX && access(path, F_OK) == 0;
}

/* Finds the model's file. A folder without config.json may have a GGUF. Any part of a GGUF
 * stands for its first part. */
static enum status find_file(struct model_info *m, const char *real, bool is_folder,
                             struct error *err)
{
    char found[PATH_MAX], first[PATH_MAX];
    enum status s = STATUS_NOT_FOUND;
    m->format = is_folder ? MODEL_HF : MODEL_GGUF;
    if (is_folder && !has_config(real))
        s = gguf_find_in_folder(real, found, err);
    if (s == STATUS_OK) {
        m->format = MODEL_GGUF;
        real = found;
    } else if (s != STATUS_NOT_FOUND) {
        return s;
    }
    if (m->format == MODEL_GGUF && gguf_first_part(real, first))
        real = first;
    m->path = mem_strdup(real);
    m->tokenizer_path = mem_strdup(real);
    return STATUS_OK;
}

/* Writes the absolute path into out[PATH_MAX]. A file keeps its own name even if it is a link.
 * The name may have the number of a part, and a download cache names the linked files by
 * checksum. */
static bool absolute_path(const char *path, bool is_folder, char *out)
{
    const char *slash = strrchr(path, '/');
    char *folder = is_folder ? mem_strdup(path)
                   : slash   ? mem_strndup(path, (size_t)(slash - path) + 1)
                             : mem_strdup(".");
    bool ok = realpath(folder, out) != NULL;
    mem_free(folder);
    size_t n = ok ? strlen(out) : 0;
    if (is_folder || !ok)
        return ok;
    int length =
        snprintf(out + n, PATH_MAX - n, "%s%s", n > 1 ? "/" : "", slash ? slash + 1 : path);
    return length > 0 && (size_t)length < PATH_MAX - n;
}

static enum status open_path(struct model_info *m, const char *path, const char *name,
                             struct error *err)
{
    struct stat st;
    char real[PATH_MAX];
    errno = 0;
    if (stat(path, &st) != 0 || !absolute_path(path, S_ISDIR(st.st_mode), real)) {
        int saved = errno ? errno : ENAMETOOLONG;
        return error_set(err, saved == ENOENT || saved == ENOTDIR ? STATUS_NOT_FOUND : STATUS_IO,
                         "cannot open the model %s: %s", path, strerror(saved));
    }
    if (name)
        m->name = mem_strdup(name);
    else
        TRY(name_from_path(m, real, err));
    TRY(find_file(m, real, S_ISDIR(st.st_mode), err));
    return m->format == MODEL_HF ? model_info_read_hf(m, err) : model_info_read_gguf(m, err);
}

static enum status open_demo(struct model_info *m, const struct demo_model *demo,
                             const char *cache_dir, struct error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/models/%s/%s", cache_dir ? cache_dir : ".",
                     demo->folder, demo->file);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(
            err, STATUS_INVALID,
            "the path of the cache folder is too long. Set COX_CACHE to a shorter path");
    enum status s = open_path(m, path, demo->name, err);
    if (s == STATUS_NOT_FOUND)
        return error_set(err, s,
                         "the demo model is not at %s. Run `cox pull %s` first (%s), or set "
                         "COX_CACHE to the folder that contains it",
                         path, demo->name, demo->size);
    return s;
}

static enum status open_local(struct model_info *m, const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return open_path(m, path, NULL, err);
    return error_set(err, STATUS_NOT_FOUND,
                     "the model %.200s is not a file or folder on this machine. The model must be "
                     "\"demo\", \"null\", a GGUF file, a folder with config.json or one GGUF file, "
                     "or a name to download, such as ORG/NAME on Hugging Face",
                     path);
}

static enum status open_pulled(struct model_info *m, const struct model_ref *r,
                               const char *cache_dir, struct error *err)
{
    struct pulled p;
    TRY(pulled_open(r, cache_dir, &p, err));
    enum status s = open_path(m, p.folder, r->name, err);
    pulled_fini(&p);
    return s;
}

static enum status open_ref(struct model_info *m, const char *model, const struct model_ref *r,
                            const char *cache_dir, struct error *err)
{
    if (r->kind == MODEL_REF_NULL)
        return open_null(m);
    if (r->kind == MODEL_REF_DEMO)
        return open_demo(m, demo_model_find(r->text), cache_dir, err);
    if (r->kind == MODEL_REF_PATH)
        return open_local(m, r->path, err);
    if (r->is_plain && access(model, F_OK) == 0)
        return open_local(m, model, err);
    enum status s = open_pulled(m, r, cache_dir, err);
    return s == STATUS_NOT_FOUND && r->is_plain
               ? error_prefix(err, s, "there is no file or folder \"%s\"", model)
               : s;
}

enum status model_info_open(const char *model, const char *cache_dir, struct model_info *out,
                            struct error *err)
{
    struct model_ref ref;
    *out = (struct model_info){0};
    TRY(model_ref_parse(model, &ref, err));
    enum status s = open_ref(out, model, &ref, cache_dir, err);
    model_ref_fini(&ref);
    if (s != STATUS_OK)
        model_info_fini(out);
    return s;
}
