/* Finds and opens the weight files of a model's folder. weights_open_folder tries safetensors
 * before PyTorch. For each kind it takes the single file, or the files of the index with the
 * tensors that the index lists. If no such name exists, it takes all files with a kind's
 * extension, in the same order of kinds.
 * The index is not trusted: a file's name in it must be a plain name in the folder, and each
 * listed tensor must be in its file. `w` owns the opened shards. Tensors point into their
 * mappings. At most MAX_SHARDS files are opened. */
#include "common/model/weights/folder.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/base/mem.h"
#include "common/model/files/hf_json.h"
#include "common/model/files/map.h"
#include "common/model/weights/state.h"
#include "common/model/weights/table.h"

enum { MAX_SHARDS = 4096, MAX_NAME_BYTES = 255 };

/* `layout` describes a kind of weight files and the names of its files. */
struct layout {
    enum shard_kind kind;
    const char *single, *index; /* names of the single file and of the index; NULL = none */
    const char *ends[2];
};
static const struct layout layouts[] = {
    {SHARD_SAFETENSORS, "model.safetensors", "model.safetensors.index.json", {".safetensors"}},
    {SHARD_TORCH, "pytorch_model.bin", "pytorch_model.bin.index.json", {".bin"}},
    {SHARD_TORCH, NULL, NULL, {".pt", ".pth"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static bool is_of(const struct layout *l, const char *name)
{
    for (size_t i = 0; i < sizeof l->ends / sizeof *l->ends; i++)
        if (l->ends[i] && str_ends(str_from(name), str_from(l->ends[i])))
            return true;
    return false;
}

/* Returns true when `name` is a file that training programs leave beside the weights. */
static bool is_of_training(const char *name)
{
    static const char *const names[] = {"training_args.bin", "optimizer.bin", "optimizer.pt",
                                        "scheduler.pt",      "scaler.pt",     "rng_state.pth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

static enum status add_name(struct weights *w, const struct layout *l, const char *name,
                            struct error *err)
{
    if (w->n_shards == MAX_SHARDS)
        return error_set(err, STATUS_LIMIT,
                         "the folder %s has more than %d %s files, the most that Coxswain reads. "
                         "Give a folder with one model only",
                         w->path, MAX_SHARDS, l->ends[0]);
    /* the array is full when n_shards is a power of two */
    if ((w->n_shards & (w->n_shards - 1)) == 0)
        w->shards = mem_realloc(w->shards, (w->n_shards ? 2 * w->n_shards : 1) * sizeof *w->shards);
    w->shards[w->n_shards++] = (struct shard){.name = mem_strdup(name), .kind = l->kind};
    return STATUS_OK;
}

/* ---- the index ---- */

static enum status check_name(const struct weights *w, const struct layout *l, const char *tensor,
                              const json_t *file, struct error *err)
{
    const char *name = json_string_value(file);
    if (!name || name[0] == '.' || strchr(name, '/') || strlen(name) > MAX_NAME_BYTES ||
        !is_of(l, name))
        return error_set(err, STATUS_INVALID,
                         "%s/%s: the file of the tensor %.128s is %.128s, but must be the name of "
                         "a %s file in the same folder",
                         w->path, l->index, tensor, name ? name : "not a string", l->ends[0]);
    return STATUS_OK;
}

/* Adds each file of the index once. A JSON object serves as the set of names, because an index
 * may have 10^5 tensors. */
static enum status add_index_names(struct weights *w, const struct layout *l, const json_t *map,
                                   struct error *err)
{
    const char *tensor;
    json_t *file, *seen = json_object();
    enum status s = STATUS_OK;
    json_object_foreach((json_t *)map, tensor, file)
    {
        s = check_name(w, l, tensor, file, err);
        if (s == STATUS_OK && !json_object_get(seen, json_string_value(file))) {
            if (json_object_set_new(seen, json_string_value(file), json_true()) != 0)
                s = error_set(err, STATUS_NO_MEMORY,
                              "not enough memory to read %s/%s. Free memory on this machine",
                              w->path, l->index);
            else
                s = add_name(w, l, json_string_value(file), err);
        }
        if (s != STATUS_OK)
            break;
    }
    json_decref(seen);
    return s;
}

/* Checks that each tensor is in the file that the index names. */
static enum status check_index(const struct weights *w, const struct layout *l, const json_t *map,
                               struct error *err)
{
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)map, tensor, file)
    {
        struct shard wanted = {.name = (char *)json_string_value(file)};
        const struct shard *shard =
            bsearch(&wanted, w->shards, w->n_shards, sizeof *w->shards, compare_shards);
        if (!shard_holds(shard, tensor))
            return error_set(err, STATUS_INVALID,
                             "%s/%s does not contain the tensor %.128s, although %s says that it "
                             "does. Check that the download is complete",
                             w->path, shard->name, tensor, l->index);
    }
    return STATUS_OK;
}

/* ---- the folder ---- */

static enum status add_folder_names(struct weights *w, const struct layout *l, struct error *err)
{
    enum status s = STATUS_OK;
    struct dirent *d;
    DIR *dir = opendir(w->path);
    if (!dir)
        return error_set(err, STATUS_IO, "cannot open the folder %s: %s", w->path, strerror(errno));
    while (s == STATUS_OK && (d = readdir(dir)) != NULL)
        if (d->d_name[0] != '.' && is_of(l, d->d_name) && !is_of_training(d->d_name))
            s = add_name(w, l, d->d_name, err);
    closedir(dir);
    return s;
}

static enum status path_of(const struct weights *w, const char *name, char *out, struct error *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", w->path, name);
    if (n < 0 || n >= PATH_MAX)
        return error_set(err, STATUS_INVALID,
                         "the path of the folder %s is too long. Use a shorter path", w->path);
    return STATUS_OK;
}

static enum status open_shards(struct weights *w, struct error *err)
{
    char path[PATH_MAX];
    qsort(w->shards, w->n_shards, sizeof *w->shards, compare_shards);
    for (uint64_t i = 0; i < w->n_shards; i++) {
        TRY(path_of(w, w->shards[i].name, path, err));
        TRY(shard_open(&w->shards[i], path, err));
        w->n_file_bytes += shard_bytes(&w->shards[i]).len;
    }
    return STATUS_OK;
}

/* Fills the table of tensors. With `map` NULL the function takes all tensors of every file,
 * otherwise each tensor from the file that the index names. */
static enum status collect(struct weights *w, const json_t *map, struct error *err)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < w->n_shards; i++)
        n += shard_n_tensors(&w->shards[i]);
    TRY(weights_reserve(w, n, err));
    for (uint64_t i = 0; i < w->n_shards; i++) {
        const struct shard *shard = &w->shards[i];
        for (uint64_t k = 0; k < shard_n_tensors(shard); k++) {
            const struct tensor *t = shard_tensor_at(shard, k);
            const char *home =
                map ? json_string_value(json_object_get(map, t->name.ptr)) : shard->name;
            if (home && strcmp(home, shard->name) == 0)
                w->tensors[w->n_tensors++] = *t;
        }
    }
    if (w->n_tensors == 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "the weight files in %s contain no tensors. Fetch the model again",
                         w->path);
    return STATUS_OK;
}

static enum status open_index(struct weights *w, const struct layout *l, const json_t *root,
                              struct error *err)
{
    const json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return error_set(
            err, STATUS_INVALID,
            "%s/%s: weight_map is missing or is not a JSON object. Fetch the model again", w->path,
            l->index);
    TRY(add_index_names(w, l, map, err));
    if (w->n_shards == 0)
        return error_set(err, STATUS_NOT_FOUND, "%s/%s names no files. Fetch the model again",
                         w->path, l->index);
    TRY(open_shards(w, err));
    TRY(check_index(w, l, map, err));
    return collect(w, map, err);
}

/* Computes the identity of config.json. It gives the tensors their meaning: the same weights
 * with another config.json are another model. */
enum status weights_config_identity(const struct model_info *m, uint8_t out[16], struct error *err)
{
    char path[PATH_MAX];
    struct file_map f;
    int n = snprintf(path, sizeof path, "%s/config.json", m->path);
    if (m->format != MODEL_HF || n < 0 || n >= (int)sizeof path)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is not a folder with a config.json, which random weights "
                         "(--load-format dummy) need",
                         m->path);
    TRY(file_map_open(path, &f, err));
    XXH128_hash_t h = XXH3_128bits(f.bytes ? f.bytes : (const uint8_t *)"", f.n_bytes);
    XXH128_canonicalFromHash((XXH128_canonical_t *)out, h);
    file_map_close(&f);
    return STATUS_OK;
}

static enum status open_single(struct weights *w, const struct layout *l, struct error *err)
{
    int fd;
    uint64_t n_bytes;
    char path[PATH_MAX];
    TRY(path_of(w, l->single, path, err));
    TRY(file_open_regular(path, &fd, &n_bytes, err));
    close(fd);
    TRY(add_name(w, l, l->single, err));
    TRY(open_shards(w, err));
    return collect(w, NULL, err);
}

/* Opens the files with the names of this layout. *found is true when such a file exists, even if
 * the file is damaged. */
static enum status open_named(struct weights *w, const struct layout *l, bool *found,
                              struct error *err)
{
    json_t *root;
    *found = true;
    enum status s = l->single ? open_single(w, l, err) : STATUS_NOT_FOUND;
    if (s != STATUS_NOT_FOUND || w->n_shards > 0)
        return s;
    s = l->index ? hf_json_load(w->path, l->index, 0, &root, err) : STATUS_NOT_FOUND;
    if (s == STATUS_OK) {
        s = open_index(w, l, root, err);
        json_decref(root);
        return s;
    }
    *found = s != STATUS_NOT_FOUND;
    return *found ? s : STATUS_OK;
}

static enum status open_all(struct weights *w, const struct layout *l, bool *found,
                            struct error *err)
{
    TRY(add_folder_names(w, l, err));
    *found = w->n_shards > 0;
    if (!*found)
        return STATUS_OK;
    TRY(open_shards(w, err));
    return collect(w, NULL, err);
}

static bool is_wanted(const struct layout *l, enum weights_kind kind)
{
    return kind == WEIGHTS_ANY || (kind == WEIGHTS_TORCH) == (l->kind == SHARD_TORCH);
}

enum status weights_open_folder(struct weights *w, enum weights_kind kind, struct error *err)
{
    bool found = false;
    TRY(weights_config_identity(&(struct model_info){.format = MODEL_HF, .path = w->path},
                                w->config_digest, err));
    for (int i = 0; i < N_LAYOUTS && !found; i++)
        if (is_wanted(&layouts[i], kind))
            TRY(open_named(w, &layouts[i], &found, err));
    for (int i = 0; i < N_LAYOUTS && !found; i++)
        if (is_wanted(&layouts[i], kind))
            TRY(open_all(w, &layouts[i], &found, err));
    if (found)
        return STATUS_OK;
    if (kind != WEIGHTS_ANY)
        return error_set(err, STATUS_NOT_FOUND, "the folder %s has no weights in %s", w->path,
                         kind == WEIGHTS_TORCH ? "pytorch_model.bin, .bin, .pt or .pth files"
                                               : "safetensors files");
    return error_set(err, STATUS_NOT_FOUND,
                     "the folder %s contains no weights: no model.safetensors, no %s, no other "
                     ".safetensors file and no PyTorch file such as pytorch_model.bin. Use "
                     "--load-format dummy to run the model with random weights",
                     w->path, layouts[0].index);
}
