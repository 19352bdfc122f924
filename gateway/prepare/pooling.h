#pragma once
/* How a model makes a vector of a prompt. */
#include "proto/messages.h"

/* As 1_Pooling/config.json in the model's folder says (sentence-transformers); without that file
 * the last token's, as in vLLM. NONE: the file asks for something else, or cannot be read. */
enum pooling_kind pooling_of_model(const char *path);

struct pooler_config {
    bool chunks;            /* enable_chunked_processing */
    uint32_t max_embed_len; /* 0: not given */
};
/* --pooler-config, vLLM's JSON; NULL: nothing is said. What is not done here is refused by name. */
MUST_USE enum status pooler_config_read(const char *json, struct pooler_config *out,
                                        struct error *err);
