/* Fuzzes config.json and the metadata of a GGUF. An accepted configuration must have a shape
 * that a runner can use. Input that is not a GGUF is read as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/config/config.h"
#include "common/model/config/family_rows.h"
#include "common/model/config/gguf.h"
#include "common/model/config/hf.h"
#include "common/model/config/shape.h"
#include "common/model/gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rope(const struct rope_config *r)
{
    if (!(r->theta > 0) || !isfinite(r->theta) || r->scaling >= ROPE_SCALING_COUNT)
        abort();
    if (r->scaling != ROPE_PLAIN && (!(r->factor > 0) || !isfinite(r->factor)))
        abort();
    if (r->scaling == ROPE_LLAMA3 &&
        (!(r->low_freq_factor > 0) || !(r->high_freq_factor > r->low_freq_factor) ||
         !(r->original_max_len > 0)))
        abort();
}

static void check(const struct model_config *c)
{
    if (c->n_layers < 1 || c->n_layers > MODEL_MAX_LAYERS || c->hidden < 1 ||
        c->hidden > CONFIG_MAX_HIDDEN || c->intermediate < 1 || c->n_heads < 1 ||
        c->n_heads > CONFIG_MAX_HEADS || c->n_kv_heads < 1 || c->n_heads % c->n_kv_heads != 0 ||
        c->head_dim < 2 || c->head_dim % 2 != 0 || c->head_dim > CONFIG_MAX_HEAD_DIM)
        abort();
    if (!(c->norm_eps > 0) || !isfinite(c->norm_eps) || !(c->attention_scale > 0) ||
        !isfinite(c->attention_scale) || c->activation >= MODEL_ACTIVATION_COUNT ||
        !(c->final_softcap >= 0) || !(c->attention_softcap >= 0))
        abort();
    if ((c->window > 0) != (memchr(c->layer_is_window, 1, c->n_layers) != NULL))
        abort();
    check_rope(&c->rope);
    check_rope(&c->rope_local);
}

static enum status read_gguf(const struct model_info *m, const uint8_t *data, size_t size,
                             const struct config_family *f, struct model_config *c,
                             struct error *err)
{
    struct gguf *g;
    TRY(gguf_open_memory(data, size, m->path, &g, err));
    enum status s = model_config_from_gguf(m, g, f, c, err);
    gguf_close(g);
    return s;
}

static enum status read_json(const struct model_info *m, const uint8_t *data, size_t size,
                             const struct config_family *f, struct model_config *c,
                             struct error *err)
{
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    enum status s = json_is_object(root) ? model_config_from_json(m, root, f, c, err)
                                         : error_set(err, STATUS_INVALID, "no object");
    json_decref(root);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const families[] = {"llama",     "gemma3",  "phi3",       "mixtral",
                                           "qwen2_moe", "gpt_oss", "deepseek_v3"};
    bool is_gguf = size > 4 && memcmp(data, "GGUF", 4) == 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct model_info m = {.path = "fuzz", .family = (char *)families[i], .vocab_size = 9};
        struct model_config c = {.family = families[i], .vocab_size = 9};
        struct error err = {0};
        const struct config_family *f = model_config_family(families[i]);
        enum status s = (is_gguf ? read_gguf : read_json)(&m, data, size, f, &c, &err);
        if (s == STATUS_OK)
            s = model_config_check(&m, &c, &err);
        if (s == STATUS_OK)
            check(&c);
        else if (err.text[0] == '\0')
            abort();
    }
    return 0;
}
