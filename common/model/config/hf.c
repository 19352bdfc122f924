/* Reads model_config from config.json, in the forms of transformers 4 and 5.
 * model_config_from_json gets the parsed file and the family's row of defaults. The function
 * reads the sizes before the values that need n_layers or head_dim. quant.c, moe.c and rope.c
 * read their parts.
 * Every number is bounded when it is read. A value that this build does not run is
 * STATUS_UNSUPPORTED with its key. An impossible value is STATUS_INVALID. Nothing is allocated,
 * and the JSON stays the caller's. */
#include "common/model/config/hf.h"

#include <math.h>
#include <string.h>

#include "common/model/config/family_row.h"
#include "common/model/config/hf_error.h"
#include "common/model/config/quant.h"
#include "common/model/config/rope.h"
#include "common/model/files/hf_json.h"

/* ---- windows ---- */

static enum status read_layer_types(struct hf_config c, const json_t *types,
                                    struct model_config *out, struct error *err)
{
    if (json_array_size(types) != out->n_layers)
        return error_set(
            err, STATUS_INVALID,
            "%s/config.json: layer_types must be a list of num_hidden_layers (%u) strings",
            c.folder, out->n_layers);
    for (uint32_t i = 0; i < out->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_window = type && strcmp(type, "sliding_attention") == 0;
        if (!is_window && (!type || strcmp(type, "full_attention") != 0))
            return model_config_unsupported(&c, "layer_types", type ? type : "(not a string)",
                                            "full_attention, sliding_attention", err);
        out->layer_is_window[i] = is_window;
    }
    return STATUS_OK;
}

/* Applies transformers' rules for the windows of Qwen models. max_window_layers may be 0, and is
 * not used when all layers have a window. */
static enum status read_used(struct hf_config c, const struct config_family *f,
                             struct model_config *out, struct error *err)
{
    const json_t *v = hf_json_get(c.o, "max_window_layers");
    uint32_t n = 0;
    bool used;
    TRY(hf_config_bool(c, "use_sliding_window", false, &used, err));
    if (!used)
        return STATUS_OK;
    if (!json_is_integer(v) || json_integer_value(v) != 0)
        TRY(hf_config_u32(c, "max_window_layers", 28, 1u << 16, &n, err));
    for (uint32_t i = 0; i < out->n_layers; i++)
        out->layer_is_window[i] = f->windows == WINDOWS_IF_USED_ALL    ? 1
                                  : f->windows == WINDOWS_IF_USED_EVEN ? i % 2 == 0 && i < n
                                                                       : i >= n;
    return STATUS_OK;
}

/* Derives the window layers from the older keys when config.json has no layer_types. */
static enum status read_pattern(struct hf_config c, const struct config_family *f,
                                struct model_config *out, struct error *err)
{
    uint32_t every;
    switch (f->windows) {
    case WINDOWS_LAYERS:
        TRY(hf_config_u32(c, "sliding_window_pattern", f->full_every, MODEL_MAX_LAYERS, &every,
                          err));
        model_config_set_pattern(out, every);
        return STATUS_OK;
    case WINDOWS_ALL:
        memset(out->layer_is_window, 1, out->n_layers);
        return STATUS_OK;
    case WINDOWS_IF_USED:
    case WINDOWS_IF_USED_EVEN:
    case WINDOWS_IF_USED_ALL:
        return read_used(c, f, out, err);
    default:
        return STATUS_OK;
    }
}

/* Reads the window of the sliding-window layers. There is no window when the value is null, or
 * absent in a family without a default. Only layer_types can override this. */
static enum status read_windows(struct hf_config c, const struct config_family *f,
                                struct model_config *out, struct error *err)
{
    const json_t *types = hf_json_get(c.o, "layer_types");
    bool is_null = json_is_null(json_object_get(c.o, "sliding_window"));
    bool has_window = hf_json_get(c.o, "sliding_window") || (f->window && !is_null);
    if (f->windows == WINDOWS_NONE)
        return STATUS_OK;
    if (types)
        TRY(read_layer_types(c, types, out, err));
    else if (has_window || f->windows == WINDOWS_LAYERS)
        TRY(read_pattern(c, f, out, err));
    if (!memchr(out->layer_is_window, 1, out->n_layers))
        return STATUS_OK;
    return hf_config_u32(c, "sliding_window", is_null ? 0 : f->window, CONFIG_MAX_WINDOW,
                         &out->window, err);
}

/* Reads the cap of scores or logits. A null means no cap, also where the family has a default. */
static enum status read_softcap(struct hf_config c, const char *key, double def, float *out,
                                struct error *err)
{
    double cap = json_is_null(json_object_get(c.o, key)) ? 0 : def;
    if (hf_json_get(c.o, key))
        TRY(hf_config_positive(c, key, 0, 1e6, &cap, err));
    *out = (float)cap;
    return STATUS_OK;
}

static enum status read_scores(struct hf_config c, const struct config_family *f,
                               struct model_config *out, struct error *err)
{
    double scalar = out->head_dim;
    bool both_ways;
    if (f->query_pre_attn_scalar > 0) {
        TRY(hf_config_bool(c, "use_bidirectional_attention", false, &both_ways, err));
        if (both_ways)
            return model_config_unsupported(&c, "use_bidirectional_attention", "true",
                                            "causal attention (false)", err);
        TRY(hf_config_positive(c, "query_pre_attn_scalar", f->query_pre_attn_scalar, 1e6, &scalar,
                               err));
        TRY(read_softcap(c, "attn_logit_softcapping", f->attention_softcap, &out->attention_softcap,
                         err));
        TRY(read_softcap(c, "final_logit_softcapping", f->final_softcap, &out->final_softcap, err));
    }
    out->attention_scale = (float)(1 / sqrt(scalar));
    return STATUS_OK;
}

static enum status read_biases(struct hf_config c, const struct config_family *f,
                               struct model_config *out, struct error *err)
{
    TRY(hf_config_bool(c, "attention_bias", false, &out->attention_out_bias, err));
    if (f->qkv_bias)
        out->attention_out_bias = false;
    out->attention_bias = f->qkv_bias || out->attention_out_bias;
    return hf_config_bool(c, "mlp_bias", false, &out->mlp_bias, err);
}

/* ---- other values ---- */

static enum status read_activation(struct hf_config c, const struct config_family *f,
                                   struct model_config *out, struct error *err)
{
    const char *act;
    out->activation = f->activation;
    TRY(hf_config_text(c, f->activation_key, &act, err));
    if (!act)
        return STATUS_OK;
    if (strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0)
        out->activation = MODEL_SILU;
    else if (strcmp(act, "gelu_pytorch_tanh") == 0)
        out->activation = MODEL_GELU_TANH;
    else
        return model_config_unsupported(&c, f->activation_key, act, "silu, gelu_pytorch_tanh", err);
    return STATUS_OK;
}

static enum status read_sizes(struct hf_config c, const struct config_family *f,
                              struct model_config *out, struct error *err)
{
    TRY(hf_config_u32(c, "hidden_size", f->hidden, CONFIG_MAX_HIDDEN, &out->hidden, err));
    TRY(hf_config_u32(c, "intermediate_size", f->intermediate, CONFIG_MAX_INTERMEDIATE,
                      &out->intermediate, err));
    TRY(hf_config_u32(c, "num_hidden_layers", f->n_layers, MODEL_MAX_LAYERS, &out->n_layers, err));
    TRY(hf_config_u32(c, "num_attention_heads", f->n_heads, CONFIG_MAX_HEADS, &out->n_heads, err));
    TRY(hf_config_u32(c, "num_key_value_heads", f->n_kv_heads ? f->n_kv_heads : out->n_heads,
                      CONFIG_MAX_HEADS, &out->n_kv_heads, err));
    uint32_t head_dim = f->head_dim ? f->head_dim : out->hidden / out->n_heads;
    TRY(hf_config_u32(c, "head_dim", head_dim, CONFIG_MAX_HEAD_DIM, &out->head_dim, err));
    if (out->head_dim > CONFIG_MAX_HEAD_DIM ||
        (!hf_json_get(c.o, "head_dim") && !f->head_dim && out->hidden % out->n_heads != 0))
        return error_set(err, STATUS_INVALID,
                         "%s/config.json: hidden_size (%u) divided by the number of attention "
                         "heads (%u) must be a whole number from 1 to %d, unless head_dim is set",
                         c.folder, out->hidden, out->n_heads, CONFIG_MAX_HEAD_DIM);
    return STATUS_OK;
}

/* Reads tie_word_embeddings from the language model's part. A multimodal model may also have the
 * key at the top of its config.json. */
static enum status read_tied(struct hf_config c, const json_t *root, const struct config_family *f,
                             struct model_config *out, struct error *err)
{
    bool tied;
    TRY(hf_config_bool((struct hf_config){c.folder, root}, "tie_word_embeddings", f->tied_embedding,
                       &tied, err));
    return hf_config_bool(c, "tie_word_embeddings", tied, &out->tied_embedding, err);
}

/* Reads the stored dtype; older files call it torch_dtype. The value is only needed when there
 * are no tensors. */
static void read_dtype(struct hf_config c, const json_t *root, struct model_config *out)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } known[] = {{"float32", DTYPE_F32}, {"float16", DTYPE_F16}, {"bfloat16", DTYPE_BF16}};
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const char *name = NULL;
    for (int i = 0; i < 4 && !name; i++)
        name = json_string_value(hf_json_get(i < 2 ? c.o : root, keys[i % 2]));
    out->stored_dtype = name ? DTYPE_OPAQUE : DTYPE_F32;
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            out->stored_dtype = known[i].dtype;
}

enum status model_config_from_json(const struct model_info *m, const json_t *root,
                                   const struct config_family *f, struct model_config *out,
                                   struct error *err)
{
    struct hf_config c = {m->path, hf_json_text_config(root)};
    double eps;
    read_dtype(c, root, out);
    TRY(model_config_quant(&c, root, out, err));
    TRY(read_sizes(c, f, out, err));
    TRY(read_activation(c, f, out, err));
    TRY(read_tied(c, root, f, out, err));
    TRY(hf_config_positive(c, "rms_norm_eps", f->norm_eps, 1, &eps, err));
    out->norm_eps = (float)eps;
    TRY(read_biases(c, f, out, err));
    TRY(read_windows(c, f, out, err));
    TRY(read_scores(c, f, out, err));
    if (f->more)
        TRY(f->more(&c, out, err));
    return model_config_ropes(&c, f, m->max_model_len, out, err);
}
