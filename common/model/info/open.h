#pragma once
/* Opens a model named by --model, and finds the cache of models. The functions may run on any
 * thread. */
#include "common/base/status.h"
#include "common/model/info/info.h"

/* Opens a model. `model` is a demo model (demo.h; cached under cache_dir) or "null" (no weights,
 * and the built-in byte tokenizer). It can also be a GGUF file (any part of a split
 * file), or a folder with config.json or with one GGUF. Or it is a reference (ref.h) that was
 * pulled into the cache. The text of STATUS_NOT_FOUND says where the function looked and how to
 * get the model. STATUS_UNSUPPORTED names the architecture and the supported ones. */
MUST_USE enum status model_info_open(const char *model, const char *cache_dir,
                                     struct model_info *out, struct error *err);
void model_info_fini(struct model_info *m);
/* Writes $COX_CACHE or ~/.cache/coxswain into `out`. The arguments are values that main has
 * read. The two may be NULL. */
void model_cache_dir(const char *cox_cache, const char *home, char *out, size_t out_size);
