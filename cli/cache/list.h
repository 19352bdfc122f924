#pragma once
/* The models of a cache folder, for `cox models` and `cox rm`: those that `cox pull` has published
 * (manifest, common/model/info/pulled.h), the parts of fetches that have not ended, and the demo
 * model. It reads names and manifests, and no file of a model. The folder's content is hostile:
 * names are only ever used below it, one component each. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define CACHE_PULLED "models/pulled"
#define CACHE_DEMO   "models/demo"

enum cached_state {
    CACHED_WHOLE,
    CACHED_DAMAGED,  /* its manifest, or a file, is not as it was pulled */
    CACHED_PARTS,    /* of a fetch that was broken off: the next one goes on with them */
    CACHED_FETCHING, /* the same, and somebody fetches now */
    CACHED_STATES
};

struct cached_model {
    char *entry;     /* name of its folder below CACHE_PULLED; "demo" for CACHE_DEMO */
    char *base;      /* the same without .part-… and .old-…: one for all entries of a model */
    char *name;      /* as it is typed behind `cox up`; not known: the entry, printable */
    char *reference; /* its one spelling (ref.h), or NULL */
    char *revision;  /* of a hub's: the branch, tag or commit that was asked for; "" of others */
    char *commit;    /* what that was when it was fetched; "" */
    const char *format; /* "safetensors", "gguf", "pytorch", "" */
    uint64_t n_bytes, n_files;
    int64_t fetched_s, used_s; /* of the epoch; 0: not known */
    enum cached_state state;
    char problem[512]; /* of a damaged one */
};

struct cached_models {
    struct cached_model *items;
    uint32_t n_items, cap;
    bool has_more; /* than are listed */
};

/* Sorted by name. A cache folder that is not there has no models. IO: it cannot be read. */
MUST_USE enum status cache_list(const char *cache_dir, struct cached_models *out,
                                struct error *err);
void cache_list_fini(struct cached_models *l);
/* s for a terminal, without control characters and bytes of no text; for mem_free. */
char *cache_printable(const char *s);
const char *cached_state_name(enum cached_state s);
