/* Lists a snapshot of huggingface_hub's cache, for a fetch without a network.
 * `hf_cache_list` writes the snapshot's folder as JSON in the form of the hub's answer and
 * passes it to `pull_hub_read`, so the same code chooses the files.
 * Invariants: another program writes this cache. Names are checked like those of a server, and a
 * blob's bytes are checked when it is taken. An interrupted download leaves an incomplete
 * snapshot, so each set of numbered files and each index must be complete. */
#include "cli/pull/sources/hf_snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/sources/hf_cache.h"
#include "cli/pull/sources/hub.h"
#include "common/base/mem.h"

enum { COMMIT_MAX = 64, INDEX_MAX_BYTES = 64 << 20, ENTRIES_MAX = 20000 };

static bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static bool is_commit(const char *s)
{
    return is_hex(s, 40) || is_hex(s, 64);
}

/* Writes the repository's folder, FOLDER/models--ORG--NAME, to `out`. */
static enum status repo_folder(const struct hf_cache *c, const char *repo, char *out,
                               struct error *err)
{
    struct strbuf b;
    strbuf_init(&b, PATH_MAX - 1);
    bool ok = strbuf_printf(&b, "%s/models--", c->folder);
    for (const char *s = repo; *s && ok; s++)
        ok = strbuf_append(&b, *s == '/' ? "--" : s, *s == '/' ? 2 : 1);
    if (ok)
        memcpy(out, strbuf_str(&b).ptr, b.len + 1);
    strbuf_fini(&b);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "the cache %s is not used: a path in it is too long. Set HF_HUB_CACHE to "
                          "a shorter path",
                          c->folder);
}

/* Finds the commit of the revision in the cache. */
static enum status find_commit(const char *folder, const char *revision, char *commit,
                               struct error *err)
{
    char path[PATH_MAX + 256];
    if (is_commit(revision)) {
        snprintf(commit, COMMIT_MAX + 1, "%s", revision);
        return STATUS_OK;
    }
    int n = snprintf(path, sizeof path, "%s/refs/%s", folder, revision);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    size_t len = f ? fread(commit, 1, COMMIT_MAX, f) : 0;
    commit[len] = '\0';
    commit[strcspn(commit, "\r\n ")] = '\0';
    if (f)
        (void)fclose(f);
    return is_commit(commit)
               ? STATUS_OK
               : error_set(err, STATUS_NOT_FOUND,
                           "the cache does not contain the model's revision %s", revision);
}

/* Adds the hash of a file, which is the name of its blob: SHA-256, or git's id for a small file. */
static void add_hash(int dir_fd, const char *entry, uint64_t n_bytes, json_t *sibling)
{
    char to[PATH_MAX];
    ssize_t n = readlinkat(dir_fd, entry, to, sizeof to - 1);
    to[n > 0 ? n : 0] = '\0';
    const char *id = strrchr(to, '/') ? strrchr(to, '/') + 1 : to;
    if (is_hex(id, 64))
        json_object_set_new(sibling, "lfs",
                            json_pack("{s:s, s:I}", "sha256", id, "size", (json_int_t)n_bytes));
    else if (is_hex(id, 40))
        json_object_set_new(sibling, "blobId", json_string(id));
}

/* Adds the files of one folder of the snapshot. `below` is "" or ends with a slash. */
static enum status add_folder(const char *snapshot, const char *below, json_t *siblings,
                              struct error *err)
{
    char path[PATH_MAX + 256], name[512];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", snapshot, below);
    DIR *d = n > 0 && (size_t)n < sizeof path ? opendir(path) : NULL;
    if (!d)
        return below[0] ? STATUS_OK
                        : error_set(err, STATUS_NOT_FOUND,
                                    "the cache contains no files of the model's revision");
    for (const struct dirent *e; (e = readdir(d)) && json_array_size(siblings) < ENTRIES_MAX;) {
        n = snprintf(name, sizeof name, "%s%s", below, e->d_name);
        if (e->d_name[0] == '.' || n < 0 || (size_t)n >= sizeof name ||
            fstatat(dirfd(d), e->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode))
            continue;
        json_t *sibling =
            json_pack("{s:s, s:I}", "rfilename", name, "size", (json_int_t)st.st_size);
        if (!sibling) /* json_pack returned NULL because the name is not UTF-8 */
            continue;
        add_hash(dirfd(d), e->d_name, (uint64_t)st.st_size, sibling);
        json_array_append_new(siblings, sibling);
    }
    closedir(d);
    return STATUS_OK;
}

/* ---- completeness ---- */

static bool has(const struct pull_list *l, const char *name)
{
    for (uint32_t i = 0; i < l->n_files; i++)
        if (strcmp(l->files[i].name, name) == 0)
            return true;
    return false;
}

/* Returns the total in a name such as model-00001-of-00030.safetensors, here 30. Returns 0 when
 * the name has no such form. *begin is set to the index of "-00001". */
static unsigned parts_of(const char *name, size_t *begin)
{
    unsigned i, n;
    int end = 0;
    for (const char *at = name; (at = strchr(at, '-')); at++)
        if (sscanf(at, "-%5u-of-%5u%n", &i, &n, &end) == 2 && end == 15 && at[15] == '.') {
            *begin = (size_t)(at - name);
            return n;
        }
    return 0;
}

static enum status check_parts(const struct pull_list *l, struct error *err)
{
    for (uint32_t i = 0; i < l->n_files; i++) {
        const char *name = l->files[i].name;
        size_t begin = 0, other;
        unsigned n = parts_of(name, &begin), n_there = 0;
        for (uint32_t k = 0; n > 0 && k < l->n_files; k++)
            if (parts_of(l->files[k].name, &other) == n && other == begin &&
                strncmp(l->files[k].name, name, begin) == 0)
                n_there++;
        if (n_there < n)
            return error_set(err, STATUS_NOT_FOUND,
                             "the model is incomplete: of %u files like %s it has %u", n, name,
                             n_there);
    }
    return STATUS_OK;
}

/* Checks that the snapshot has each file that the index names. */
static enum status check_index(const char *snapshot, const char *index, const struct pull_list *l,
                               struct error *err)
{
    char path[PATH_MAX + 256];
    struct stat st;
    const char *tensor;
    json_t *file;
    enum status s = STATUS_OK;
    snprintf(path, sizeof path, "%s/%s", snapshot, index);
    if (!has(l, index) || has(l, "model.safetensors") || has(l, "pytorch_model.bin"))
        return STATUS_OK;
    json_t *root = stat(path, &st) == 0 && st.st_size <= INDEX_MAX_BYTES
                       ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        s = error_set(err, STATUS_NOT_FOUND, "the model's index %s cannot be read", index);
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (s == STATUS_OK && (!name || !has(l, name)))
            s = error_set(err, STATUS_NOT_FOUND, "the model's file %.200s is missing",
                          name ? name : tensor);
    }
    json_decref(root);
    return s;
}

static enum status check_whole(const char *snapshot, const struct model_ref *r,
                               const struct pull_list *l, struct error *err)
{
    for (uint32_t i = 0; i < l->n_files; i++)
        if (!l->files[i].sha256[0] && !l->files[i].git_id[0])
            return error_set(err, STATUS_NOT_FOUND,
                             "the model's file %s is not a link to a blob of the cache",
                             l->files[i].name);
    TRY(check_parts(l, err));
    if (r->file)
        return STATUS_OK;
    if (!has(l, "tokenizer.json") && !has(l, "tokenizer.model") && !has(l, "vocab.json"))
        return error_set(err, STATUS_NOT_FOUND, "the model's file tokenizer.json is missing");
    TRY(check_index(snapshot, "model.safetensors.index.json", l, err));
    return check_index(snapshot, "pytorch_model.bin.index.json", l, err);
}

enum status hf_cache_list(const struct hf_cache *c, const struct model_ref *r, struct pull_list *l,
                          struct error *err)
{
    char folder[PATH_MAX], snapshot[PATH_MAX + 128], commit[COMMIT_MAX + 1] = "";
    if (!c->folder)
        return error_set(err, STATUS_NOT_FOUND, "there is no huggingface_hub cache");
    TRY(repo_folder(c, r->repo, folder, err));
    TRY(find_commit(folder, r->revision, commit, err));
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/%s", folder, commit);
    json_t *siblings = json_array();
    enum status s = add_folder(snapshot, "", siblings, err);
    for (size_t i = 0; s == STATUS_OK && pull_folders[i]; i++)
        s = add_folder(snapshot, pull_folders[i], siblings, err);
    json_t *root = json_pack("{s:s, s:o}", "sha", commit, "siblings", siblings);
    char *text = root && s == STATUS_OK ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    TRY(s);
    if (!text)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory to list the files of %s. Free memory on this machine",
                         snapshot);
    s = pull_hub_read(str_from(text), r, "", l, err);
    free(text);
    if (s != STATUS_OK) /* a missing file means that the snapshot is incomplete */
        return s == STATUS_INVALID ? (err->status = STATUS_NOT_FOUND) : s;
    return check_whole(snapshot, r, l, err);
}
