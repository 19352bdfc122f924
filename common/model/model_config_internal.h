#pragma once
/* Private to common/model: the two readers behind model_config_read, and what they share. family,
 * format and vocab_size are set before them; what they leave is checked after them. */
#include <jansson.h>

#include "common/model/gguf.h"
#include "common/model/model_config.h"

enum {
    CONFIG_MAX_HIDDEN = 65536,
    CONFIG_MAX_INTERMEDIATE = 1 << 20,
    CONFIG_MAX_HEADS = 4096,
    CONFIG_MAX_HEAD_DIM = 1024,
    CONFIG_MAX_WINDOW = 1 << 27,
};
#define CONFIG_MAX_THETA  1e15
#define CONFIG_MAX_FACTOR 1e6
#define CONFIG_MIN_FACTOR 1e-3

/* What a family's configuration is when config.json leaves it out (transformers' defaults); 0: it
 * must be there, but for n_kv_heads (as many as heads) and head_dim (hidden / heads). */
struct config_family {
    const char *name;
    uint32_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim;
    enum model_activation activation;
    const char *activation_key;
    double norm_eps, theta;
    bool tied_embedding;
    /* Window layers: what follows is of families that have them (window > 0). */
    uint32_t window, full_every; /* every full_every-th layer sees everything */
    double local_theta, query_pre_attn_scalar;
};

MUST_USE enum status model_config_from_json(const struct model_info *m, const json_t *root,
                                            const struct config_family *f, struct model_config *out,
                                            struct error *err);
MUST_USE enum status model_config_from_gguf(const struct model_info *m, const struct gguf *g,
                                            const struct config_family *f, struct model_config *out,
                                            struct error *err);
/* NULL: this build does not run it. */
const struct config_family *model_config_family(const char *name);
/* Heads, head_dim and the like against each other. */
MUST_USE enum status model_config_check(const struct model_info *m, const struct model_config *c,
                                        struct error *err);
/* Layer i sees everything when (i + 1) is a multiple of full_every. */
void model_config_set_pattern(struct model_config *c, uint32_t full_every);
