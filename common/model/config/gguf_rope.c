/* Reads rotary embeddings from a GGUF. A type and a factor describe them, or tensors with
 * LongRoPE's factors. Llama 3's divisors are a tensor that the loader reads. */
#include "common/model/config/gguf_rope.h"

#include <math.h>
#include <string.h>

#include "common/model/gguf/values.h"
#include "common/model/info/arch.h"

static enum status read_original(const struct gguf_reader *r, struct rope_config *out)
{
    uint32_t n;
    TRY(gguf_reader_count_or(r, "rope.scaling.original_context_length", r->max_len, MODEL_MAX_LEN,
                             &n));
    out->original_max_len = n;
    return STATUS_OK;
}

static enum status read_yarn(const struct gguf_reader *r, struct rope_config *out)
{
    double more;
    TRY(read_original(r, out));
    TRY(gguf_reader_positive_or(r, "rope.scaling.yarn_beta_fast", 32, CONFIG_MAX_FACTOR,
                                &out->beta_fast));
    TRY(gguf_reader_positive_or(r, "rope.scaling.yarn_beta_slow", 1, CONFIG_MAX_FACTOR,
                                &out->beta_slow));
    TRY(gguf_reader_positive_or(r, "rope.scaling.attn_factor", 1, CONFIG_MAX_FACTOR, &more));
    out->truncate = true;
    out->attention_factor = out->factor > 1 ? more * (0.1 * log(out->factor) + 1) : more;
    return STATUS_OK;
}

static enum status read_factors(const struct gguf_reader *r, const char *name, uint32_t n,
                                float *out)
{
    const struct gguf_tensor *t = gguf_find_tensor(r->g, name);
    bool ok =
        t && t->n_dims == 1 && t->shape[0] == n && n <= MODEL_MAX_ROT / 2 && t->dtype == DTYPE_F32;
    for (uint32_t i = 0; ok && i < n; i++) {
        memcpy(&out[i], t->data + sizeof *out * i, sizeof *out);
        ok = out[i] >= (float)CONFIG_MIN_FACTOR && out[i] <= (float)CONFIG_MAX_FACTOR;
    }
    if (ok)
        return STATUS_OK;
    return error_set(r->err, STATUS_INVALID,
                     "%s: the tensor %s must be a list of %u F32 numbers from %g to %g",
                     gguf_path(r->g), name, n, CONFIG_MIN_FACTOR, CONFIG_MAX_FACTOR);
}

static enum status read_longrope(const struct gguf_reader *r, struct rope_config *out)
{
    double factor = 1;
    TRY(read_original(r, out));
    TRY(read_factors(r, "rope_factors_short.weight", out->n_rot / 2, out->short_factors));
    TRY(read_factors(r, "rope_factors_long.weight", out->n_rot / 2, out->long_factors));
    double stretch = r->max_len / out->original_max_len;
    if (stretch > 1)
        factor = sqrt(1 + log(stretch) / log(out->original_max_len));
    return gguf_reader_positive_or(r, "rope.scaling.attn_factor", factor, CONFIG_MAX_FACTOR,
                                   &out->attention_factor);
}

/* Reads the scaling of a rotary embedding. A factor without a type means linear, as in
 * llama.cpp. Some LongRoPE files have no type but only LongRoPE's tensors. */
static enum status read_scaling(const struct gguf_reader *r, struct rope_config *out)
{
    struct str type = STR("linear");
    double factor;
    enum status s =
        gguf_get_str(r->g, model_arch_key(r->arch, "rope.scaling.type").text, &type, r->err);
    if (s != STATUS_OK && s != STATUS_NOT_FOUND)
        return s;
    if (gguf_find_tensor(r->g, "rope_factors_long.weight"))
        type = STR("longrope");
    /* rope.scale_linear is an older key for the factor */
    TRY(gguf_reader_positive_or(r, "rope.scale_linear", 1, CONFIG_MAX_FACTOR, &factor));
    TRY(gguf_reader_positive_or(r, "rope.scaling.factor", factor, CONFIG_MAX_FACTOR, &factor));
    if (str_eq_c(type, "longrope")) {
        out->scaling = ROPE_LONGROPE;
        return read_longrope(r, out);
    }
    if (str_eq_c(type, "none") || factor == 1)
        return STATUS_OK;
    out->factor = factor;
    if (str_eq_c(type, "linear")) {
        out->scaling = ROPE_LINEAR;
        return STATUS_OK;
    }
    if (str_eq_c(type, "yarn")) {
        out->scaling = ROPE_YARN;
        return read_yarn(r, out);
    }
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: this build does not support the RoPE scaling \"%.*s\" in a GGUF file; it "
                     "supports none, linear, yarn and longrope. Use another model",
                     gguf_path(r->g), (int)(type.len > 64 ? 64 : type.len), type.ptr);
}

enum status model_config_gguf_ropes(const struct gguf_reader *r, const struct config_family *f,
                                    struct model_config *out)
{
    TRY(gguf_reader_positive_or(r, "rope.freq_base", f->theta, CONFIG_MAX_THETA, &out->rope.theta));
    TRY(read_scaling(r, &out->rope));
    out->rope_local = out->rope;
    if (f->local_theta == 0)
        return STATUS_OK;
    out->rope_local = (struct rope_config){.scaling = ROPE_PLAIN, .n_rot = out->rope.n_rot};
    return gguf_reader_positive_or(r, "rope.freq_base_swa", f->local_theta, CONFIG_MAX_THETA,
                                   &out->rope_local.theta);
}
