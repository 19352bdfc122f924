#pragma once
/* Makes, measures and removes the folders of the cache that a model is fetched into. */
#include <stdint.h>

#include "common/base/status.h"

/* Makes CACHE/below and the folders above it. */
MUST_USE enum status pull_make_folders(const char *cache_dir, const char *below, struct error *err);
MUST_USE enum status pull_check_space(const char *folder, uint64_t n_bytes, struct error *err);
void pull_remove_tree(const char *path);
/* Joins three strings; the caller frees the result with `mem_free`. */
char *pull_join(const char *a, const char *b, const char *c);
