#pragma once
/* Takes a model out of the cache folder: all that lies there of it, parts of broken-off fetches
 * too. Nothing outside of the folder is touched: a name is compared with the entries that are there
 * and never becomes a path, and symbolic links are removed and not followed. */
#include <stdint.h>

#include "cli/cache/list.h"

struct cache_removed {
    uint64_t n_bytes;        /* freed on the disk */
    uint64_t n_shared_bytes; /* with huggingface_hub's cache, which still has them */
};

/* name: a reference, or the name of a folder that `cox models` shows. NOT_FOUND: there is none.
 * EXISTS: a process of this machine uses it, or somebody fetches it; the text says who. */
MUST_USE enum status cache_remove(const char *cache_dir, const char *name,
                                  const struct cached_models *there, struct cache_removed *out,
                                  struct error *err);
