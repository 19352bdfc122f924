#pragma once
/* Reads how a model computes the vector of a prompt. */
#include "proto/messages.h"

/* Reads 1_Pooling/config.json in the model's folder (sentence-transformers). Without that file
 * the last token's vector is used, as in vLLM. Returns NONE when the file asks for an
 * unsupported kind or cannot be read. */
enum pooling_kind pooling_of_model(const char *path);

struct pooler_config {
    bool chunks;            /* value of the key enable_chunked_processing */
    uint32_t max_embed_len; /* most ids of one text; 0 = not given */
};
/* Reads --pooler-config, which has vLLM's JSON. `json` may be NULL. Unsupported keys are refused
 * by name. */
MUST_USE enum status pooler_config_read(const char *json, struct pooler_config *out,
                                        struct error *err);
