/* Reads rotary embeddings from config.json. rope_theta and rope_scaling, rope_parameters, or
 * rope_parameters for each kind of layer describe them. The formulas are those of transformers'
 * modeling_rope_utils.py. */
#include "common/model/config/rope.h"

#include <math.h>
#include <string.h>

#include "common/model/config/hf_error.h"
#include "common/model/files/hf_json.h"

#define RUNS "default, linear, dynamic, llama3, yarn, longrope"

/* `rope_reader` holds the inputs for one rotary embedding. */
struct rope_reader {
    /* `root` is config.json; `rope` is the object that describes the embedding (o NULL = none). */
    struct hf_config root, rope;
    uint32_t max_len, head_dim;
    double original; /* default length before stretching; 0 = the file must have it */
};

/* Reads the model's length before stretching. The key of the model's own part overrides the same
 * key in the object with the factor. */
static enum status read_original(const struct rope_reader *x, struct rope_config *out,
                                 struct error *err)
{
    double beside;
    TRY(hf_config_positive(x->rope, "original_max_position_embeddings", x->original, 1e9, &beside,
                           err));
    return hf_config_positive(x->root, "original_max_position_embeddings", beside, 1e9,
                              &out->original_max_len, err);
}

static enum status read_dynamic(const struct rope_reader *x, struct rope_config *out,
                                struct error *err)
{
    out->original_max_len = x->max_len;
    return STATUS_OK;
}

static enum status read_llama3(const struct rope_reader *x, struct rope_config *out,
                               struct error *err)
{
    TRY(hf_config_positive(x->rope, "low_freq_factor", 0, CONFIG_MAX_FACTOR, &out->low_freq_factor,
                           err));
    TRY(hf_config_positive(x->rope, "high_freq_factor", 0, CONFIG_MAX_FACTOR,
                           &out->high_freq_factor, err));
    struct rope_reader no_default = *x;
    no_default.original = 0;
    return read_original(&no_default, out, err);
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static enum status read_yarn(const struct rope_reader *x, struct rope_config *out,
                             struct error *err)
{
    struct hf_config r = x->rope;
    double mscale = 0, all_dim = 0, factor;
    TRY(read_original(x, out, err));
    TRY(hf_config_positive(r, "beta_fast", 32, CONFIG_MAX_FACTOR, &out->beta_fast, err));
    TRY(hf_config_positive(r, "beta_slow", 1, CONFIG_MAX_FACTOR, &out->beta_slow, err));
    TRY(hf_config_bool(r, "truncate", true, &out->truncate, err));
    if (hf_json_get(r.o, "mscale") && hf_json_get(r.o, "mscale_all_dim")) {
        TRY(hf_config_positive(r, "mscale", 0, CONFIG_MAX_FACTOR, &mscale, err));
        TRY(hf_config_positive(r, "mscale_all_dim", 0, CONFIG_MAX_FACTOR, &all_dim, err));
        factor = yarn_scale(out->factor, mscale) / yarn_scale(out->factor, all_dim);
    } else {
        factor = yarn_scale(out->factor, 1);
    }
    return hf_config_positive(r, "attention_factor", factor, CONFIG_MAX_FACTOR,
                              &out->attention_factor, err);
}

static enum status read_factors(const struct rope_reader *x, const char *key, uint32_t n,
                                float *out, struct error *err)
{
    const json_t *list = hf_json_get(x->rope.o, key);
    bool ok = json_is_array(list) && json_array_size(list) == n && n <= MODEL_MAX_ROT / 2;
    for (uint32_t i = 0; ok && i < n; i++) {
        double v = json_number_value(json_array_get(list, i));
        ok = v >= CONFIG_MIN_FACTOR && v <= CONFIG_MAX_FACTOR;
        out[i] = (float)v;
    }
    if (ok)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "%s/config.json: %s must be a list of %u numbers from %g to %g",
                     x->rope.folder, key, n, CONFIG_MIN_FACTOR, CONFIG_MAX_FACTOR);
}

static enum status read_longrope(const struct rope_reader *x, struct rope_config *out,
                                 struct error *err)
{
    double stretch, factor = 1;
    TRY(read_original(x, out, err));
    TRY(read_factors(x, "short_factor", out->n_rot / 2, out->short_factors, err));
    TRY(read_factors(x, "long_factor", out->n_rot / 2, out->long_factors, err));
    TRY(hf_config_positive(x->rope, "factor", x->max_len / out->original_max_len, CONFIG_MAX_FACTOR,
                           &stretch, err));
    if (stretch > 1)
        factor = sqrt(1 + log(stretch) / log(out->original_max_len));
    return hf_config_positive(x->rope, "attention_factor", factor, CONFIG_MAX_FACTOR,
                              &out->attention_factor, err);
}

static enum status read_scaling(const struct rope_reader *x, const char *type,
                                struct rope_config *out, struct error *err)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
        enum status (*read)(const struct rope_reader *, struct rope_config *, struct error *);
    } kinds[] = {{"default", ROPE_PLAIN, NULL},
                 {"linear", ROPE_LINEAR, NULL},
                 {"dynamic", ROPE_DYNAMIC, read_dynamic},
                 {"llama3", ROPE_LLAMA3, read_llama3},
                 {"yarn", ROPE_YARN, read_yarn},
                 {"longrope", ROPE_LONGROPE, read_longrope},
                 /* "su" is an older name of longrope, in early Phi-3 */
                 {"su", ROPE_LONGROPE, read_longrope}};
    size_t i = 0, n = sizeof kinds / sizeof *kinds;
    while (i < n && type && strcmp(kinds[i].name, type) != 0)
        i++;
    if (i == n)
        return model_config_unsupported(&x->rope, "the RoPE scaling", type, RUNS, err);
    out->scaling = kinds[i].scaling;
    if (out->scaling != ROPE_PLAIN && out->scaling != ROPE_LONGROPE)
        TRY(hf_config_positive(x->rope, "factor", 0, CONFIG_MAX_FACTOR, &out->factor, err));
    return kinds[i].read ? kinds[i].read(x, out, err) : STATUS_OK;
}

/* Reads one rotary embedding. `theta` and `part` are defaults for values that the embedding's
 * own description does not have. */
static enum status read_rope(const struct rope_reader *x, double theta, double part,
                             struct rope_config *out, struct error *err)
{
    const char *type;
    TRY(hf_config_text(x->rope, "rope_type", &type, err));
    if (!type)
        TRY(hf_config_text(x->rope, "type", &type, err));
    TRY(hf_config_positive(x->rope, "rope_theta", theta, CONFIG_MAX_THETA, &out->theta, err));
    TRY(hf_config_positive(x->rope, "partial_rotary_factor", part, 1, &part, err));
    out->n_rot = (uint32_t)(x->head_dim * part);
    return read_scaling(x, type, out, err);
}

enum status model_config_ropes(const struct hf_config *c, const struct config_family *f,
                               uint32_t max_len, struct model_config *out, struct error *err)
{
    const json_t *rope = hf_json_get(c->o, "rope_scaling");
    double theta, local_theta, part;
    TRY(hf_config_positive(*c, "rope_theta", f->theta, CONFIG_MAX_THETA, &theta, err));
    TRY(hf_config_positive(*c, "partial_rotary_factor", 1, 1, &part, err));
    if (!rope || (json_is_object(rope) && json_object_size(rope) == 0))
        rope = hf_json_get(c->o, "rope_parameters");
    if (rope && !json_is_object(rope))
        return error_set(err, STATUS_INVALID,
                         "%s/config.json: rope_scaling or rope_parameters must be a JSON object",
                         c->folder);
    uint32_t dim = out->mla.kv_rank ? out->mla.rope : out->head_dim;
    double original = f->original_len ? f->original_len : max_len;
    struct rope_reader x = {*c, {c->folder, rope}, max_len, dim, original};
    if (f->local_theta == 0) {
        TRY(read_rope(&x, theta, part, &out->rope, err));
        out->rope_local = out->rope;
        return STATUS_OK;
    }
    TRY(hf_config_positive(*c, "rope_local_base_freq", f->local_theta, CONFIG_MAX_THETA,
                           &local_theta, err));
    const json_t *full = hf_json_get(rope, "full_attention");
    const json_t *local = hf_json_get(rope, "sliding_attention");
    if ((full && !json_is_object(full)) || (local && !json_is_object(local)))
        return error_set(
            err, STATUS_INVALID,
            "%s/config.json: the RoPE parameters of a layer type must be a JSON object", c->folder);
    if (!full && !local)
        full = rope; /* the embedding of window layers is then never scaled */
    x.rope.o = full;
    TRY(read_rope(&x, theta, part, &out->rope, err));
    x.rope.o = local;
    return read_rope(&x, local_theta, part, &out->rope_local, err);
}
