#pragma once
/* Removes a model from the cache folder, with the parts of interrupted fetches. Nothing outside
 * the folder is touched: a name is compared with the existing entries and never becomes a path.
 * Symbolic links are removed and not followed. */
#include <stdint.h>

#include "cli/cache/list.h"

struct cache_removed {
    uint64_t n_bytes;        /* bytes freed on the disk */
    uint64_t n_shared_bytes; /* bytes of the model that are still in huggingface_hub's cache */
};

/* Removes the model. `name` is a reference, or a folder's name as `cox models` shows it.
 * STATUS_NOT_FOUND: there is no such model.
 * STATUS_EXISTS: a process of this machine uses the model or fetches it. The error text names
 * the process. */
MUST_USE enum status cache_remove(const char *cache_dir, const char *name,
                                  const struct cached_models *there, struct cache_removed *out,
                                  struct error *err);
