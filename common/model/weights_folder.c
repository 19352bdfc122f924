/* Which safetensors of a folder make the model: model.safetensors alone; else the files that
 * model.safetensors.index.json names, of each the tensors that it says are there; else all
 * *.safetensors. The index is hostile: what it calls a file is a plain name in the folder. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/base/mem.h"
#include "common/model/file_map.h"
#include "common/model/hf_json_internal.h"
#include "common/model/weights_internal.h"

enum { MAX_SHARDS = 4096, MAX_NAME_BYTES = 255 };
static const char index_file[] = "model.safetensors.index.json";

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

static enum status add_name(struct weights *w, const char *name, struct error *err)
{
    if (w->n_shards == MAX_SHARDS)
        return error_set(err, STATUS_LIMIT, "%s: more than %d safetensors files", w->path,
                         MAX_SHARDS);
    if ((w->n_shards & (w->n_shards - 1)) == 0) /* a power of two: full */
        w->shards = mem_realloc(w->shards, (w->n_shards ? 2 * w->n_shards : 1) * sizeof *w->shards);
    w->shards[w->n_shards++] = (struct shard){.name = mem_strdup(name)};
    return STATUS_OK;
}

/* ---- the index ---- */

static enum status check_name(const struct weights *w, const char *tensor, const json_t *file,
                              struct error *err)
{
    const char *name = json_string_value(file);
    if (!name || name[0] == '.' || strchr(name, '/') || strlen(name) > MAX_NAME_BYTES ||
        !ends_with(name, ".safetensors"))
        return error_set(err, STATUS_INVALID,
                         "%s/%s: the file of tensor %.128s is %.128s: not the plain name of a "
                         ".safetensors file",
                         w->path, index_file, tensor, name ? name : "no text");
    return STATUS_OK;
}

/* Every file once. Names are looked up in a set of JSON's: an index may have 10^5 tensors. */
static enum status add_index_names(struct weights *w, const json_t *map, struct error *err)
{
    const char *tensor;
    json_t *file, *seen = json_object();
    enum status s = STATUS_OK;
    json_object_foreach((json_t *)map, tensor, file)
    {
        s = check_name(w, tensor, file, err);
        if (s == STATUS_OK && !json_object_get(seen, json_string_value(file))) {
            if (json_object_set_new(seen, json_string_value(file), json_true()) != 0)
                s = error_set(err, STATUS_NO_MEMORY, "%s/%s: no memory", w->path, index_file);
            else
                s = add_name(w, json_string_value(file), err);
        }
        if (s != STATUS_OK)
            break;
    }
    json_decref(seen);
    return s;
}

/* Each tensor is in the file that the index names. */
static enum status check_index(const struct weights *w, const json_t *map, struct error *err)
{
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)map, tensor, file)
    {
        struct shard wanted = {.name = (char *)json_string_value(file)};
        const struct shard *shard =
            bsearch(&wanted, w->shards, w->n_shards, sizeof *w->shards, compare_shards);
        if (!safetensors_holds(shard->file, tensor))
            return error_set(err, STATUS_INVALID, "%s/%s has no tensor %.128s, %s says it has",
                             w->path, shard->name, tensor, index_file);
    }
    return STATUS_OK;
}

/* ---- the folder ---- */

/* *torch: it has files of PyTorch's. */
static enum status add_folder_names(struct weights *w, bool *torch, struct error *err)
{
    enum status s = STATUS_OK;
    struct dirent *d;
    DIR *dir = opendir(w->path);
    *torch = false;
    if (!dir)
        return error_set(err, STATUS_IO, "%s: %s", w->path, strerror(errno));
    while (s == STATUS_OK && (d = readdir(dir)) != NULL) {
        *torch |= ends_with(d->d_name, ".bin") || ends_with(d->d_name, ".pth");
        if (d->d_name[0] != '.' && ends_with(d->d_name, ".safetensors"))
            s = add_name(w, d->d_name, err);
    }
    closedir(dir);
    return s;
}

static enum status path_of(const struct weights *w, const char *name, char *out, struct error *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", w->path, name);
    if (n < 0 || n >= PATH_MAX)
        return error_set(err, STATUS_INVALID, "%s: the path is too long", w->path);
    return STATUS_OK;
}

static enum status open_shards(struct weights *w, struct error *err)
{
    char path[PATH_MAX];
    if (w->n_shards == 0)
        return error_set(err, STATUS_NOT_FOUND, "%s/%s names no files", w->path, index_file);
    qsort(w->shards, w->n_shards, sizeof *w->shards, compare_shards);
    for (uint64_t i = 0; i < w->n_shards; i++) {
        TRY(path_of(w, w->shards[i].name, path, err));
        TRY(safetensors_open(path, &w->shards[i].file, err));
        w->n_file_bytes += safetensors_file_bytes(w->shards[i].file);
    }
    return STATUS_OK;
}

/* map NULL: all of every file; else each from the file that it names. */
static enum status collect(struct weights *w, const json_t *map, struct error *err)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < w->n_shards; i++)
        n += safetensors_n_tensors(w->shards[i].file);
    TRY(weights_reserve(w, n, err));
    for (uint64_t i = 0; i < w->n_shards; i++) {
        const struct shard *shard = &w->shards[i];
        for (uint64_t k = 0; k < safetensors_n_tensors(shard->file); k++) {
            const struct tensor *t = safetensors_tensor_at(shard->file, k);
            const char *home =
                map ? json_string_value(json_object_get(map, t->name.ptr)) : shard->name;
            if (home && strcmp(home, shard->name) == 0)
                w->tensors[w->n_tensors++] = *t;
        }
    }
    if (w->n_tensors == 0)
        return error_set(err, STATUS_NOT_FOUND, "%s: its safetensors have no tensors", w->path);
    return STATUS_OK;
}

static enum status open_index(struct weights *w, const json_t *root, struct error *err)
{
    const json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return error_set(err, STATUS_INVALID, "%s/%s: weight_map is missing or no object", w->path,
                         index_file);
    TRY(add_index_names(w, map, err));
    TRY(open_shards(w, err));
    TRY(check_index(w, map, err));
    return collect(w, map, err);
}

static enum status open_all(struct weights *w, struct error *err)
{
    bool torch;
    TRY(add_folder_names(w, &torch, err));
    if (w->n_shards == 0 && torch)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: its weights are PyTorch .bin files: convert them to safetensors",
                         w->path);
    if (w->n_shards == 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s: has no model.safetensors, no %s and no other .safetensors file "
                         "(--load-format dummy runs it with random weights)",
                         w->path, index_file);
    TRY(open_shards(w, err));
    return collect(w, NULL, err);
}

/* What the tensors mean is in config.json: the same weights with another one are another model. */
enum status weights_config_identity(const struct model_info *m, uint8_t out[16], struct error *err)
{
    char path[PATH_MAX];
    struct file_map f;
    int n = snprintf(path, sizeof path, "%s/config.json", m->path);
    if (m->format != MODEL_HF || n < 0 || n >= (int)sizeof path)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: no folder with a config.json, which says alone what weights are like",
                         m->path);
    TRY(file_map_open(path, &f, err));
    XXH128_hash_t h = XXH3_128bits(f.bytes ? f.bytes : (const uint8_t *)"", f.n_bytes);
    XXH128_canonicalFromHash((XXH128_canonical_t *)out, h);
    file_map_close(&f);
    return STATUS_OK;
}

enum status weights_open_folder(struct weights *w, struct error *err)
{
    char path[PATH_MAX];
    struct file_map single;
    json_t *root;
    TRY(weights_config_identity(&(struct model_info){.format = MODEL_HF, .path = w->path},
                                w->config_digest, err));
    TRY(path_of(w, "model.safetensors", path, err));
    enum status s = file_map_open(path, &single, err);
    file_map_close(&single);
    if (s == STATUS_OK) {
        TRY(add_name(w, "model.safetensors", err));
        TRY(open_shards(w, err));
        return collect(w, NULL, err);
    }
    if (s != STATUS_NOT_FOUND)
        return s;
    s = hf_json_load(w->path, index_file, 0, &root, err);
    if (s == STATUS_NOT_FOUND)
        return open_all(w, err);
    TRY(s);
    s = open_index(w, root, err);
    json_decref(root);
    return s;
}
