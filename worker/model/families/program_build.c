#include "worker/model/families/program_build.h"

#include <assert.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/model/families/family.h"

/* `writers` has the function for each family name of common/model/info/family.c, in any order. */
/* clang-format off */
static const struct {
    const char *name;
    void (*write)(struct program *p);
} writers[] = {
    {"llama", family_llama},
    {"mistral", family_llama},
    {"qwen2", family_llama},
    {"qwen3", family_qwen3},
    {"gemma2", family_gemma2},
    {"gemma3", family_gemma3},
    {"olmo2", family_olmo2},
    {"phi3", family_phi3},
    {"mixtral", family_mixtral},
    {"qwen2_moe", family_qwen_moe},
    {"qwen3_moe", family_qwen_moe},
    {"gpt_oss", family_gpt_oss},
    {"deepseek_v2", family_deepseek},
    {"deepseek_v3", family_deepseek},
};
/* clang-format on */
enum { N_FAMILIES = sizeof writers / sizeof writers[0] };

static void count_layers(struct program *p, uint32_t stage)
{
    struct cut_range r = cut_layers(p->config->n_layers, p->pp, stage);
    uint32_t n[PROGRAM_MAX_KV_GROUPS] = {0};
    for (uint32_t l = r.first; l < r.first + r.n; l++)
        n[p->kv_group_of[l]]++;
    for (uint32_t g = 0; g < p->n_kv_groups; g++) {
        struct kv_layers *k = &p->kv_groups[g];
        k->most_layers = n[g] > k->most_layers ? n[g] : k->most_layers;
        if (stage == p->stage)
            k->n_layers = n[g];
    }
}

/* Makes one KV group for the layers with full attention and one for the layers with a window. */
static void place_layers(struct program *p)
{
    const struct model_config *c = p->config;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        uint32_t window = c->layer_is_window[l] ? c->window : 0, g = 0;
        while (g < p->n_kv_groups && p->kv_groups[g].window != window)
            g++;
        if (g == p->n_kv_groups)
            p->kv_groups[p->n_kv_groups++] = (struct kv_layers){.window = window};
        p->kv_group_of[l] = g;
    }
    for (uint32_t stage = 0; stage < p->pp; stage++)
        count_layers(p, stage);
}

static enum status check_cut(const struct model_config *c, uint32_t tp, uint32_t pp,
                             struct error *err)
{
    if (pp > c->n_layers)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--pp %u is too large: the model has %u layers, and each stage needs at "
                         "least one. Use fewer stages",
                         pp, c->n_layers);
    if (cut_units(c->vocab_size, PROGRAM_VOCAB_UNIT, tp, tp - 1).n > 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "--tp %u is too large: a vocabulary of %u tokens, cut into multiples of %d, "
                     "leaves none for rank %u. Use fewer ranks",
                     tp, c->vocab_size, PROGRAM_VOCAB_UNIT, tp - 1);
}

static uint32_t n_stages(const struct program_setup *s)
{
    return s->pp ? s->pp : 1;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Cuts the experts of a mixture: gives each rank whole experts, or a part of every expert. */
static void cut_mixture(struct program *p, const struct program_setup *s)
{
    const struct moe_config *m = &p->config->moe;
    bool whole = s->expert_parallel;
    p->experts =
        whole ? cut_units(m->n_experts, 1, s->tp, s->rank) : (struct cut_range){0, m->n_experts};
    p->expert_inner = whole ? (struct cut_range){0, m->width}
                            : cut_units(m->width, s->inner_unit, s->tp, s->rank);
    p->shared_inner = cut_units(m->shared_width, s->inner_unit, s->tp, s->rank);
    uint32_t widest = larger(p->inner.n, larger(p->expert_inner.n, p->shared_inner.n));
    p->widths[REG_GATE] = p->widths[REG_UP] = widest;
    p->widths[REG_ROUTER] = m->n_experts;
    p->widths[REG_SHARE] = m->shared_gate;
    p->widths[REG_E] = p->widths[REG_PICKED] = p->widths[REG_MADE] = p->config->hidden;
}

static void cut(struct program *p, const struct program_setup *s)
{
    const struct model_config *c = p->config;
    p->tp = s->tp;
    p->rank = s->rank;
    p->pp = n_stages(s);
    p->stage = s->stage;
    struct cut_range layers = cut_layers(c->n_layers, p->pp, p->stage);
    p->layer_begin = layers.first;
    p->layer_end = layers.first + layers.n;
    p->max_model_len = s->max_model_len;
    p->heads = cut_heads(c->n_heads, c->n_kv_heads, s->tp, s->rank);
    p->most_kv_heads = cut_most_kv_heads(c->n_heads, c->n_kv_heads, s->tp);
    p->inner = cut_units(c->intermediate, s->inner_unit, s->tp, s->rank);
    p->widths[REG_X] = p->widths[REG_H] = c->hidden;
    p->widths[REG_Q] = p->widths[REG_A] = p->heads.q.n * c->head_dim;
    p->widths[REG_K] = p->widths[REG_V] = p->heads.kv.n * c->head_dim;
    p->widths[REG_GATE] = p->widths[REG_UP] = p->inner.n;
    if (c->moe.n_experts > 0)
        cut_mixture(p, s);
}

enum status program_build(const struct model_config *config, const struct program_setup *s,
                          struct program **out, struct error *err)
{
    int i = 0;
    while (i < N_FAMILIES && strcmp(writers[i].name, config->family) != 0)
        i++;
    if (i == N_FAMILIES)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this build cannot run models of the family %s. Use another model",
                         config->family);
    TRY(check_cut(config, s->tp, n_stages(s), err));
    struct program *p = mem_zalloc(sizeof *p);
    p->config = config;
    cut(p, s);
    place_layers(p);
    writers[i].write(p);
    for (uint32_t o = 0; o < p->n_ops; o++) /* a family writes only the layers of this stage */
        assert(p->ops[o].layer >= p->layer_begin && p->ops[o].layer < p->layer_end);
    *out = p;
    return STATUS_OK;
}
