#pragma once
/* Private to common/model/config: what the parts of the GGUF reader share (sizes and windows,
 * rotary embeddings, experts and latent attention). Keys are llama.cpp's, without the architecture
 * that they begin with. */
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/model/gguf/gguf.h"

struct gguf_reader {
    const struct gguf *g;
    struct str arch;
    uint32_t max_len; /* context_length */
    struct error *err;
};

/* 1 to max. NOT_FOUND when there is none. */
MUST_USE enum status gguf_reader_u32(const struct gguf_reader *r, const char *name, uint32_t max,
                                     uint32_t *out);
MUST_USE enum status gguf_reader_u32_or(const struct gguf_reader *r, const char *name, uint32_t def,
                                        uint32_t max, uint32_t *out);
/* The same of a count: 0 says nothing either, as converters write it for what a model has not. */
enum status gguf_reader_count_or(const struct gguf_reader *r, const char *name, uint32_t def,
                                 uint32_t max, uint32_t *out);
MUST_USE enum status gguf_reader_bool_or(const struct gguf_reader *r, const char *name, bool def,
                                         bool *out);
/* Above 0 and at most max. */
MUST_USE enum status gguf_reader_positive_or(const struct gguf_reader *r, const char *name,
                                             double def, double max, double *out);
