/* model_config from config.json, as transformers 4 and 5 write it: rotary embeddings are described
 * by rope_theta and rope_scaling, by rope_parameters, or by one of these per kind of layer. */
#include <math.h>
#include <string.h>

#include "common/model/hf_json_internal.h"
#include "common/model/model_config_internal.h"

static enum status unsupported(struct hf_config c, const char *key, const char *value,
                               const char *runs, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s/config.json: %s \"%.64s\": this build runs only %s", c.folder, key, value,
                     runs);
}

/* ---- rotary embeddings ---- */

static enum status read_scaling(struct hf_config rope, const char *type, struct rope_config *out,
                                struct error *err)
{
    if (!type || strcmp(type, "default") == 0) {
        out->scaling = ROPE_PLAIN;
        return STATUS_OK;
    }
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0)
        return unsupported(rope, "rope scaling", type, "default, linear, llama3", err);
    TRY(hf_config_positive(rope, "factor", 0, CONFIG_MAX_FACTOR, &out->factor, err));
    out->scaling = ROPE_LINEAR;
    if (strcmp(type, "linear") == 0)
        return STATUS_OK;
    out->scaling = ROPE_LLAMA3;
    TRY(hf_config_positive(rope, "low_freq_factor", 0, CONFIG_MAX_FACTOR, &out->low_freq_factor,
                           err));
    TRY(hf_config_positive(rope, "high_freq_factor", 0, CONFIG_MAX_FACTOR, &out->high_freq_factor,
                           err));
    return hf_config_positive(rope, "original_max_position_embeddings", 0, 1e9,
                              &out->original_max_len, err);
}

/* rope.o: an object that describes one rotary embedding, NULL for none; theta: without it. */
static enum status read_rope(struct hf_config rope, double theta, struct rope_config *out,
                             struct error *err)
{
    const char *type;
    double part;
    TRY(hf_config_text(rope, "rope_type", &type, err));
    if (!type)
        TRY(hf_config_text(rope, "type", &type, err));
    TRY(hf_config_positive(rope, "rope_theta", theta, CONFIG_MAX_THETA, &out->theta, err));
    TRY(hf_config_positive(rope, "partial_rotary_factor", 1, 1, &part, err));
    if (part < 1)
        return unsupported(rope, "partial_rotary_factor", "below 1", "whole heads", err);
    return read_scaling(rope, type, out, err);
}

static enum status read_ropes(struct hf_config c, const struct config_family *f,
                              struct model_config *out, struct error *err)
{
    const json_t *rope = hf_json_get(c.o, "rope_scaling");
    double theta, local_theta, part;
    TRY(hf_config_positive(c, "rope_theta", f->theta, CONFIG_MAX_THETA, &theta, err));
    TRY(hf_config_positive(c, "partial_rotary_factor", 1, 1, &part, err));
    if (part < 1)
        return unsupported(c, "partial_rotary_factor", "below 1", "whole heads", err);
    if (!rope || (json_is_object(rope) && json_object_size(rope) == 0))
        rope = hf_json_get(c.o, "rope_parameters");
    if (rope && !json_is_object(rope))
        return error_set(err, STATUS_INVALID, "%s/config.json: its rope scaling is no object",
                         c.folder);
    if (f->window == 0) {
        TRY(read_rope((struct hf_config){c.folder, rope}, theta, &out->rope, err));
        out->rope_local = out->rope;
        return STATUS_OK;
    }
    TRY(hf_config_positive(c, "rope_local_base_freq", f->local_theta, CONFIG_MAX_THETA,
                           &local_theta, err));
    const json_t *full = hf_json_get(rope, "full_attention");
    const json_t *local = hf_json_get(rope, "sliding_attention");
    if ((full && !json_is_object(full)) || (local && !json_is_object(local)))
        return error_set(err, STATUS_INVALID, "%s/config.json: a layer's rope is no object",
                         c.folder);
    if (!full && !local)
        full = rope; /* the windows' layers are never scaled then */
    TRY(read_rope((struct hf_config){c.folder, full}, theta, &out->rope, err));
    return read_rope((struct hf_config){c.folder, local}, local_theta, &out->rope_local, err);
}

/* ---- windows ---- */

static enum status read_layer_types(struct hf_config c, const json_t *types,
                                    struct model_config *out, struct error *err)
{
    if (json_array_size(types) != out->n_layers)
        return error_set(err, STATUS_INVALID,
                         "%s/config.json: layer_types is no list of num_hidden_layers (%u) texts",
                         c.folder, out->n_layers);
    for (uint32_t i = 0; i < out->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_window = type && strcmp(type, "sliding_attention") == 0;
        if (!is_window && (!type || strcmp(type, "full_attention") != 0))
            return unsupported(c, "layer type", type ? type : "no text",
                               "full_attention, sliding_attention", err);
        out->layer_is_window[i] = is_window;
    }
    return STATUS_OK;
}

static enum status read_windows(struct hf_config c, const struct config_family *f,
                                struct model_config *out, struct error *err)
{
    const json_t *types = hf_json_get(c.o, "layer_types");
    uint32_t every;
    TRY(hf_config_u32(c, "sliding_window_pattern", f->full_every, MODEL_MAX_LAYERS, &every, err));
    if (types)
        TRY(read_layer_types(c, types, out, err));
    else
        model_config_set_pattern(out, every);
    if (!memchr(out->layer_is_window, 1, out->n_layers))
        return STATUS_OK;
    /* null is not the default here: such a layer without a window is nothing */
    bool is_null = json_is_null(json_object_get(c.o, "sliding_window"));
    return hf_config_u32(c, "sliding_window", is_null ? 0 : f->window, CONFIG_MAX_WINDOW,
                         &out->window, err);
}

static enum status read_softcap(struct hf_config c, const char *key, float *out, struct error *err)
{
    double cap = 0;
    if (hf_json_get(c.o, key))
        TRY(hf_config_positive(c, key, 0, 1e6, &cap, err));
    *out = (float)cap;
    return STATUS_OK;
}

static enum status read_gemma(struct hf_config c, const struct config_family *f,
                              struct model_config *out, struct error *err)
{
    double scalar;
    bool both_ways;
    TRY(hf_config_bool(c, "use_bidirectional_attention", false, &both_ways, err));
    if (both_ways)
        return unsupported(c, "use_bidirectional_attention", "true", "causal attention", err);
    TRY(read_windows(c, f, out, err));
    TRY(hf_config_positive(c, "query_pre_attn_scalar", f->query_pre_attn_scalar, 1e6, &scalar,
                           err));
    out->attention_scale = (float)(1 / sqrt(scalar));
    TRY(read_softcap(c, "attn_logit_softcapping", &out->attention_softcap, err));
    return read_softcap(c, "final_logit_softcapping", &out->final_softcap, err);
}

/* ---- the rest ---- */

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
        return unsupported(c, f->activation_key, act, "silu, gelu_pytorch_tanh", err);
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
                         "%s/config.json: hidden_size %u over %u attention heads: no head_dim from "
                         "1 to %d",
                         c.folder, out->hidden, out->n_heads, CONFIG_MAX_HEAD_DIM);
    return STATUS_OK;
}

/* In the language model's part or, of a model for several media, beside it. */
static enum status read_tied(struct hf_config c, const json_t *root, const struct config_family *f,
                             struct model_config *out, struct error *err)
{
    bool tied;
    TRY(hf_config_bool((struct hf_config){c.folder, root}, "tie_word_embeddings", f->tied_embedding,
                       &tied, err));
    return hf_config_bool(c, "tie_word_embeddings", tied, &out->tied_embedding, err);
}

static enum status check_quantisation(struct hf_config c, const json_t *root, struct error *err)
{
    const json_t *q = hf_json_get(c.o, "quantization_config");
    if (!q)
        q = hf_json_get(root, "quantization_config");
    if (!q)
        return STATUS_OK;
    const char *method = json_string_value(hf_json_get(q, "quant_method"));
    return unsupported(c, "quantization_config", method ? method : "?",
                       "weights that are not quantised, and GGUF", err);
}

enum status model_config_from_json(const struct model_info *m, const json_t *root,
                                   const struct config_family *f, struct model_config *out,
                                   struct error *err)
{
    struct hf_config c = {m->path, hf_json_text_config(root)};
    double eps;
    TRY(check_quantisation(c, root, err));
    TRY(read_sizes(c, f, out, err));
    TRY(read_activation(c, f, out, err));
    TRY(read_tied(c, root, f, out, err));
    TRY(hf_config_positive(c, "rms_norm_eps", f->norm_eps, 1, &eps, err));
    TRY(hf_config_bool(c, "attention_bias", false, &out->attention_bias, err));
    TRY(hf_config_bool(c, "mlp_bias", false, &out->mlp_bias, err));
    TRY(read_ropes(c, f, out, err));
    out->norm_eps = (float)eps;
    if (f->window > 0)
        return read_gemma(c, f, out, err);
    out->attention_scale = (float)(1 / sqrt((double)out->head_dim));
    return STATUS_OK;
}
