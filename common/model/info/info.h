#pragma once
/* What gateway, cli and worker need to know of a model before touching a tensor: read from a GGUF's
 * metadata or from config.json + generation_config.json. Strings are owned by the struct. Every
 * value is checked against sane bounds: the file is hostile until then. */
#include "common/base/status.h"
#include "common/base/str.h"

enum model_format { MODEL_GGUF, MODEL_HF, MODEL_NULL, MODEL_FORMAT_COUNT };

#define MODEL_MAX_EOS 16

struct model_info {
    enum model_format format;
    char *path;           /* absolute; the GGUF (of several files the first) or the folder */
    char *tokenizer_path; /* what text_tokenizer_open takes */
    char *name;   /* default served name: model_name_of its path, "demo", "null", model_ref's */
    char *family; /* "gemma3", "llama", … as the template's family and the runner use it */
    uint32_t max_model_len, vocab_size;
    uint32_t hidden; /* numbers of a vector that it makes of a prompt; 0: its files do not say */
    uint32_t eos_ids[MODEL_MAX_EOS], n_eos_ids; /* generation_config and tokenizer together */
};

/* model: "demo" (the cached demo model under cache_dir), "null" (no weights; the built-in tokenizer
 * of bytes), a GGUF file (any part of one in several files), a folder with config.json or with
 * one GGUF, or a reference (model_ref.h) that was pulled into the cache. STATUS_NOT_FOUND tells
 * where it looked and how to get it, STATUS_UNSUPPORTED names the architecture and those that are
 * supported. */
MUST_USE enum status model_info_open(const char *model, const char *cache_dir,
                                     struct model_info *out, struct error *err);
void model_info_fini(struct model_info *m);
/* Last component of a path, without .gguf and without what says which part of a GGUF it is. */
struct str model_name_of(const char *path);
/* $COX_CACHE or ~/.cache/coxswain, from the values main read: both may be NULL. Into out. */
void model_cache_dir(const char *cox_cache, const char *home, char *out, size_t out_size);
