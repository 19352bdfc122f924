/* Reads model_config from a GGUF's metadata, with the keys and defaults of llama.cpp. The
 * tensors decide about settings without a key: without output.weight the embeddings are tied,
 * and a bias is used when it exists. Llama 3's rotary scaling is a tensor as well
 * (rope_freqs.weight), which the loader reads and not this file. */
#include "common/model/config/gguf.h"

#include <math.h>
#include <string.h>

#include "common/model/config/gguf_reader.h"
#include "common/model/config/gguf_rope.h"
#include "common/model/gguf/values.h"
#include "common/model/info/arch.h"

/* Reads a number, or a list with one number per layer. All numbers of a list must be equal. */
static enum status get_u32_of_layers(const struct gguf_reader *r, const char *name,
                                     uint32_t n_layers, uint32_t max, uint32_t *out)
{
    struct model_arch_key key = model_arch_key(r->arch, name);
    const struct gguf_value *v = gguf_find(r->g, key.text);
    if (!v || v->type != GGUF_ARRAY)
        return gguf_reader_u32(r, name, max, out);
    uint64_t first = gguf_array_u64(&v->array, 0);
    if (v->array.n != n_layers || (v->array.type != GGUF_U32 && v->array.type != GGUF_I32))
        return error_set(r->err, STATUS_INVALID,
                         "%s: %s must be a list of %u integers. Convert or fetch the model again",
                         gguf_path(r->g), key.text, n_layers);
    for (uint32_t i = 1; i < n_layers; i++)
        if (gguf_array_u64(&v->array, i) != first)
            return error_set(
                r->err, STATUS_UNSUPPORTED,
                "%s: %s differs between layers (%lld, but %lld in layer %u). This "
                "build runs only models where all layers have the same value. Use another model",
                gguf_path(r->g), key.text, (long long)first,
                (long long)gguf_array_u64(&v->array, i), i);
    if (first < 1 || first > max)
        return error_set(r->err, STATUS_INVALID, "%s: %s is %lld; it must be from 1 to %u",
                         gguf_path(r->g), key.text, (long long)first, max);
    *out = (uint32_t)first;
    return STATUS_OK;
}

static enum status read_sizes(const struct gguf_reader *r, struct model_config *out)
{
    uint32_t n = 0;
    TRY(gguf_reader_u32(r, "block_count", MODEL_MAX_LAYERS, &n));
    out->n_layers = n;
    TRY(gguf_reader_u32(r, "embedding_length", CONFIG_MAX_HIDDEN, &out->hidden));
    TRY(get_u32_of_layers(r, "feed_forward_length", n, CONFIG_MAX_INTERMEDIATE,
                          &out->intermediate));
    TRY(get_u32_of_layers(r, "attention.head_count", n, CONFIG_MAX_HEADS, &out->n_heads));
    enum status s =
        get_u32_of_layers(r, "attention.head_count_kv", n, CONFIG_MAX_HEADS, &out->n_kv_heads);
    if (s != STATUS_NOT_FOUND)
        return s;
    out->n_kv_heads = out->n_heads;
    return STATUS_OK;
}

static enum status read_head_dim(const struct gguf_reader *r, struct model_config *out)
{
    uint32_t value_dim;
    TRY(gguf_reader_u32_or(r, "attention.key_length", out->hidden / out->n_heads,
                           CONFIG_MAX_HEAD_DIM, &out->head_dim));
    TRY(gguf_reader_u32_or(r, "attention.value_length", out->head_dim, CONFIG_MAX_HEAD_DIM,
                           &value_dim));
    bool is_given = gguf_find(r->g, model_arch_key(r->arch, "attention.key_length").text) != NULL;
    if (!is_given && out->hidden % out->n_heads != 0)
        return error_set(r->err, STATUS_INVALID,
                         "%s: the number of dimensions (%u) is not a multiple of the number of "
                         "attention heads (%u)",
                         gguf_path(r->g), out->hidden, out->n_heads);
    if (out->head_dim < 1 || out->head_dim > CONFIG_MAX_HEAD_DIM)
        return error_set(r->err, STATUS_INVALID,
                         "%s: attention heads have %u dimensions; the number must be from 1 to %d",
                         gguf_path(r->g), out->head_dim, CONFIG_MAX_HEAD_DIM);
    if (value_dim != out->head_dim)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: attention heads have keys of %u dimensions and values of %u. This "
                         "build runs only models where the two are equal. Use another model",
                         gguf_path(r->g), out->head_dim, value_dim);
    return STATUS_OK;
}

/* Reads the window and the layers that have it. The pattern is a period, or one flag per layer. */
static enum status read_windows(const struct gguf_reader *r, const struct config_family *f,
                                struct model_config *out)
{
    struct model_arch_key key = model_arch_key(r->arch, "attention.sliding_window_pattern");
    const struct gguf_value *v = gguf_find(r->g, key.text);
    uint32_t every;
    uint64_t window = 0;
    enum status s = gguf_get_u64(r->g, model_arch_key(r->arch, "attention.sliding_window").text, 0,
                                 CONFIG_MAX_WINDOW, &window, r->err);
    if (s == STATUS_NOT_FOUND)
        window = f->gguf_window;
    else if (s != STATUS_OK)
        return s;
    if (window == 0)
        return STATUS_OK; /* no layer has a window */
    if (v && v->type == GGUF_ARRAY) {
        if (v->array.type != GGUF_BOOL || v->array.n != out->n_layers)
            return error_set(r->err, STATUS_INVALID,
                             "%s: %s must be a list of %u bools. Convert or fetch the model again",
                             gguf_path(r->g), key.text, out->n_layers);
        for (uint32_t i = 0; i < out->n_layers; i++)
            out->layer_is_window[i] = gguf_array_u64(&v->array, i) != 0;
    } else if (f->windows == WINDOWS_LAYERS) {
        TRY(gguf_reader_u32_or(r, "attention.sliding_window_pattern", f->full_every,
                               MODEL_MAX_LAYERS, &every));
        model_config_set_pattern(out, every);
    } else if (f->windows == WINDOWS_ALL) {
        memset(out->layer_is_window, 1, out->n_layers);
    }
    if (memchr(out->layer_is_window, 1, out->n_layers))
        out->window = (uint32_t)window;
    return STATUS_OK;
}

/* Reads the scale of the scores. GGUF has no query_pre_attn_scalar. It equals head_dim, except
 * in the largest model of a family. */
static enum status read_scores(const struct gguf_reader *r, const struct config_family *f,
                               struct model_config *out)
{
    double cap, scalar = out->head_dim;
    if (f->gguf_odd_hidden && out->hidden == f->gguf_odd_hidden)
        scalar = (double)out->hidden / out->n_heads;
    out->attention_scale = (float)(1 / sqrt(scalar));
    TRY(gguf_reader_positive_or(r, "attn_logit_softcapping", f->attention_softcap, 1e6, &cap));
    out->attention_softcap = (float)cap;
    TRY(gguf_reader_positive_or(r, "final_logit_softcapping", f->final_softcap, 1e6, &cap));
    out->final_softcap = (float)cap;
    return STATUS_OK;
}

static void read_what_tensors_say(const struct gguf *g, struct model_config *out)
{
    out->tied_embedding = !gguf_find_tensor(g, "output.weight");
    out->attention_bias = gguf_find_tensor(g, "blk.0.attn_q.bias") != NULL;
    out->attention_out_bias = gguf_find_tensor(g, "blk.0.attn_output.bias") != NULL;
    out->mlp_bias = gguf_find_tensor(g, "blk.0.ffn_gate.bias") != NULL;
}

enum status model_config_from_gguf(const struct model_info *m, const struct gguf *g,
                                   const struct config_family *f, struct model_config *out,
                                   struct error *err)
{
    struct gguf_reader r = {.g = g, .max_len = m->max_model_len, .err = err};
    double eps;
    TRY(gguf_get_str(g, "general.architecture", &r.arch, err));
    TRY(read_sizes(&r, out));
    if (!f->latent)
        TRY(read_head_dim(&r, out));
    TRY(gguf_reader_u32_or(&r, "rope.dimension_count", out->head_dim, CONFIG_MAX_HEAD_DIM,
                           &out->rope.n_rot));
    TRY(model_config_gguf_ropes(&r, f, out));
    TRY(gguf_reader_positive_or(&r, "attention.layer_norm_rms_epsilon", f->norm_eps, 1, &eps));
    out->norm_eps = (float)eps;
    out->activation = f->activation;
    read_what_tensors_say(g, out);
    if (f->windows != WINDOWS_NONE)
        TRY(read_windows(&r, f, out));
    if (!f->latent)
        TRY(read_scores(&r, f, out));
    return f->gguf_more ? f->gguf_more(&r, out) : STATUS_OK;
}
