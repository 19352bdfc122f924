#pragma once
/* Lists the models of a cache folder, for `cox models` and `cox rm`. The list has models that
 * `cox pull` has published (manifest, common/model/info/pulled.h), parts of unfinished fetches,
 * and demo models (common/model/info/demo.h).
 * Names and manifests are read, but no model files. The folder's content is not trusted: a name
 * is only used as one path component below the folder. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/info/demo.h"

#define CACHE_PULLED "models/pulled"

enum cached_state {
    CACHED_WHOLE,
    CACHED_DAMAGED,  /* the manifest or a file has changed since the pull */
    CACHED_PARTS,    /* parts of an interrupted fetch; the next fetch continues them */
    CACHED_FETCHING, /* parts of a fetch that is running now */
    CACHED_STATES
};

struct cached_model {
    const struct demo_model *demo; /* NULL = no demo model */
    char *entry;                   /* name of the folder below CACHE_PULLED; a demo model's name */
    char *base;      /* `entry` without .part-… and .old-…; all entries of a model share it */
    char *name;      /* name as typed behind `cox up`, or `entry` when it is unknown; printable */
    char *reference; /* canonical reference of the model (ref.h); NULL = unknown */
    char *revision;  /* requested branch, tag or commit of a hub's model; otherwise "" */
    char *commit;    /* commit of that revision at the time of the fetch; "" = unknown */
    const char *format; /* format of the weights: "safetensors", "gguf", "pytorch"; "" = unknown */
    uint64_t n_bytes, n_files;
    int64_t fetched_s, used_s; /* times of fetch and last use, in seconds since 1970; 0 = unknown */
    enum cached_state state;
    char problem[512]; /* description of the damage; only with CACHED_DAMAGED */
};

struct cached_models {
    struct cached_model *items;
    uint32_t n_items, cap;
    bool has_more; /* the folder has more models than the list can hold */
};

/* Lists the models, sorted by name. The list of a missing cache folder is empty. STATUS_IO: the
 * folder cannot be read. */
MUST_USE enum status cache_list(const char *cache_dir, struct cached_models *out,
                                struct error *err);
void cache_list_fini(struct cached_models *l);
/* Returns a copy of `s` for a terminal, in which "?" replaces control characters and invalid
 * UTF-8. The caller frees it with `mem_free`. */
char *cache_printable(const char *s);
/* Returns the path of the demo model's folder, or of the folder `name` below CACHE_PULLED if
 * `demo` is NULL. The caller frees it with `mem_free`. */
char *cache_folder(const char *cache_dir, const struct demo_model *demo, const char *name);
const char *cached_state_name(enum cached_state s);
