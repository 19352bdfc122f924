#include "common/model/config/config.h"

#include <math.h>
#include <string.h>

#include "common/model/config/family_row.h"
#include "common/model/config/family_rows.h"
#include "common/model/config/gguf.h"
#include "common/model/config/hf.h"
#include "common/model/files/hf_json.h"
#include "common/model/gguf/gguf.h"

static enum status cannot_run(const struct model_info *m, struct error *err)
{
    struct strbuf names;
    strbuf_init(&names, 0);
    model_config_families(&names);
    enum status s = error_set(err, STATUS_UNSUPPORTED,
                              "%s: this build cannot run models of the family %s; it runs %s",
                              m->path, m->family, names.ptr);
    strbuf_fini(&names);
    return s;
}

/* Checks one rotary embedding. The limits on theta and factor keep every frequency within the
 * range of a float. A frequency is at most 1 / factor, or theta to a power above -1. */
static enum status check_rope(const struct model_info *m, const struct model_config *c,
                              const struct rope_config *r, struct error *err)
{
    if (r->n_rot < 2 || r->n_rot % 2 != 0 || r->n_rot > c->head_dim)
        return error_set(err, STATUS_INVALID,
                         "%s: RoPE rotates %u of the %u dimensions of a head; the number must be "
                         "even, at least 2 and at most the head's",
                         m->path, r->n_rot, c->head_dim);
    if (r->theta < 1)
        return error_set(err, STATUS_INVALID, "%s: the RoPE theta is %g; it must be at least 1",
                         m->path, r->theta);
    bool by_factor = r->scaling != ROPE_PLAIN && r->scaling != ROPE_LONGROPE;
    if (by_factor && r->factor < CONFIG_MIN_FACTOR)
        return error_set(err, STATUS_INVALID,
                         "%s: the RoPE scaling factor is %g; it must be at least %g", m->path,
                         r->factor, CONFIG_MIN_FACTOR);
    if (r->scaling == ROPE_LLAMA3 && r->high_freq_factor <= r->low_freq_factor)
        return error_set(err, STATUS_INVALID,
                         "%s: RoPE scaling llama3 has high_freq_factor %g, which must be greater "
                         "than low_freq_factor %g",
                         m->path, r->high_freq_factor, r->low_freq_factor);
    if (r->scaling == ROPE_YARN && r->theta <= 1)
        return error_set(err, STATUS_INVALID,
                         "%s: RoPE scaling yarn needs a theta greater than 1, but the theta is %g",
                         m->path, r->theta);
    if (r->scaling == ROPE_LONGROPE && r->n_rot > MODEL_MAX_ROT)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: RoPE scaling longrope rotates %u dimensions of a head; this build "
                         "supports at most %u. Use another model",
                         m->path, r->n_rot, MODEL_MAX_ROT);
    if (!isfinite(r->attention_factor))
        return error_set(err, STATUS_INVALID,
                         "%s: the attention factor of the RoPE scaling is %g; it must be finite",
                         m->path, r->attention_factor);
    return STATUS_OK;
}

/* MAX_PARTS bounds n_layers x (experts + latent heads), because a program allocates an array for
 * each layer before it reads any tensor. */
enum { MAX_PARTS = 1 << 18 };

static enum status check_experts(const struct model_info *m, const struct model_config *c,
                                 struct error *err)
{
    const struct moe_config *x = &c->moe;
    uint64_t n_heads = c->mla.kv_rank ? c->n_heads : 0;
    if (c->n_layers * (n_heads + x->n_experts) > MAX_PARTS)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "%s: the model has %u layers of %u experts and %llu latent heads; this build supports "
            "at most %d experts and latent heads in all layers together. Use another model",
            m->path, c->n_layers, x->n_experts, (unsigned long long)n_heads, MAX_PARTS);
    if (x->n_experts == 0)
        return STATUS_OK;
    if (x->n_chosen == 0 || x->n_chosen > x->n_experts || x->width == 0)
        return error_set(
            err, STATUS_INVALID,
            "%s: the model uses %u of %u experts per token with %u inner dimensions "
            "each; these numbers do not fit together. Fetch the model again, or use another one",
            m->path, x->n_chosen, x->n_experts, x->width);
    uint32_t n = x->n_groups, per_group = n ? x->n_experts / n : 0;
    if (n > 0 && (x->n_experts % n != 0 || x->n_groups_chosen == 0 || x->n_groups_chosen > n ||
                  n > CONFIG_MAX_GROUPS || per_group * x->n_groups_chosen < x->n_chosen))
        return error_set(
            err, STATUS_INVALID,
            "%s: the model cannot choose %u of %u experts from %u of %u expert "
            "groups; these numbers do not fit together. Fetch the model again, or use another one",
            m->path, x->n_chosen, x->n_experts, x->n_groups_chosen, n);
    return STATUS_OK;
}

enum status model_config_check(const struct model_info *m, const struct model_config *c,
                               struct error *err)
{
    TRY(check_experts(m, c, err));
    if (c->n_heads % c->n_kv_heads != 0)
        return error_set(err, STATUS_INVALID,
                         "%s: the number of attention heads (%u) is not a multiple of the number "
                         "of key-value heads (%u)",
                         m->path, c->n_heads, c->n_kv_heads);
    if (c->head_dim < 2 || c->head_dim % 2 != 0 || c->head_dim > CONFIG_MAX_HEAD_DIM)
        return error_set(err, STATUS_INVALID,
                         "%s: an attention head (with MLA: a latent) has %u dimensions; the number "
                         "must be even and at most %d",
                         m->path, c->head_dim, CONFIG_MAX_HEAD_DIM);
    if (!(c->norm_eps > 0) || !(c->attention_scale > 0) || !isfinite(c->attention_scale))
        return error_set(
            err, STATUS_INVALID,
            "%s: the norm epsilon is %g and the attention scale is %g; both must be greater than 0",
            m->path, (double)c->norm_eps, (double)c->attention_scale);
    TRY(check_rope(m, c, &c->rope, err));
    return check_rope(m, c, &c->rope_local, err);
}

static enum status read_json(const struct model_info *m, const struct config_family *f,
                             struct model_config *out, struct error *err)
{
    json_t *root;
    TRY(hf_json_load(m->path, "config.json", 0, &root, err));
    enum status s = model_config_from_json(m, root, f, out, err);
    json_decref(root);
    return s;
}

static enum status read_gguf(const struct model_info *m, const struct config_family *f,
                             struct model_config *out, struct error *err)
{
    struct gguf *g;
    TRY(gguf_open(m->path, &g, err));
    enum status s = model_config_from_gguf(m, g, f, out, err);
    gguf_close(g);
    /* The file itself exists, so a missing key means that the file is incomplete. */
    return s == STATUS_NOT_FOUND ? error_prefix(err, STATUS_INVALID, "the GGUF file is incomplete")
                                 : s;
}

enum status model_config_read(const struct model_info *m, struct model_config *out,
                              struct error *err)
{
    const struct config_family *f = model_config_family(m->family);
    *out = (struct model_config){0};
    if (!f)
        return cannot_run(m, err);
    out->family = f->name;
    out->format = m->format;
    out->vocab_size = m->vocab_size;
    TRY((m->format == MODEL_GGUF ? read_gguf : read_json)(m, f, out, err));
    return model_config_check(m, out, err);
}
