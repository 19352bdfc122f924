#pragma once
/* A model by what --model says, and where the cache of models is. Any thread. */
#include "common/base/status.h"
#include "common/model/info/info.h"

/* model: "demo" (the cached demo model under cache_dir), "null" (no weights; the built-in tokenizer
 * of bytes), a GGUF file (any part of one in several files), a folder with config.json or with
 * one GGUF, or a reference (ref.h) that was pulled into the cache. STATUS_NOT_FOUND tells
 * where it looked and how to get it, STATUS_UNSUPPORTED names the architecture and those that are
 * supported. */
MUST_USE enum status model_info_open(const char *model, const char *cache_dir,
                                     struct model_info *out, struct error *err);
void model_info_fini(struct model_info *m);
/* $COX_CACHE or ~/.cache/coxswain, from the values main read: both may be NULL. Into out. */
void model_cache_dir(const char *cox_cache, const char *home, char *out, size_t out_size);
