#pragma once
/* Declares functions that the parts of the GGUF reader share (sizes and windows, rotary
 * embeddings, experts and latent attention). A key is llama.cpp's key without its architecture
 * prefix. Only common/model/config includes this header. */
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/model/gguf/gguf.h"

struct gguf_reader {
    const struct gguf *g;
    struct str arch;
    uint32_t max_len; /* value of context_length */
    struct error *err;
};

/* Reads the number of a key, from 1 to max. Returns STATUS_NOT_FOUND when the key is absent. */
MUST_USE enum status gguf_reader_u32(const struct gguf_reader *r, const char *name, uint32_t max,
                                     uint32_t *out);
MUST_USE enum status gguf_reader_u32_or(const struct gguf_reader *r, const char *name, uint32_t def,
                                        uint32_t max, uint32_t *out);
/* Reads the count of a key, from 1 to max. A missing key and 0 both give `def`, because
 * converters write 0 for parts that a model does not have. */
enum status gguf_reader_count_or(const struct gguf_reader *r, const char *name, uint32_t def,
                                 uint32_t max, uint32_t *out);
MUST_USE enum status gguf_reader_bool_or(const struct gguf_reader *r, const char *name, bool def,
                                         bool *out);
/* Reads the number of a key, above 0 and at most max. A missing key gives `def`. */
MUST_USE enum status gguf_reader_positive_or(const struct gguf_reader *r, const char *name,
                                             double def, double max, double *out);
