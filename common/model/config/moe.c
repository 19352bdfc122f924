/* Reads experts and latent attention from config.json, for the families that have them.
 * config_family.more points to one function per family. Defaults are those of transformers. The
 * result goes into model_config: `moe`, `mla`, and the head sizes and attention scale that
 * latent attention changes.
 * Counts and widths are bounded when they are read. A routing method that this build does not
 * run is STATUS_UNSUPPORTED with its key. Nothing is allocated. */
#include "common/model/config/moe.h"

#include <math.h>
#include <string.h>

#include "common/model/config/family_row.h"
#include "common/model/config/hf_error.h"
#include "common/model/files/hf_json.h"

/* Reads a count like hf_config_u32, but also accepts 0. */
static enum status read_count(const struct hf_config *c, const char *key, uint32_t def,
                              uint32_t max, uint32_t *out, struct error *err)
{
    const json_t *v = hf_json_get(c->o, key);
    *out = def;
    if (!v || (json_is_integer(v) && json_integer_value(v) == 0)) {
        *out = v ? 0 : def;
        return STATUS_OK;
    }
    return hf_config_u32(*c, key, 1, max, out, err);
}

static enum status read_experts(const struct hf_config *c, const char *key, uint32_t n,
                                uint32_t n_chosen, struct moe_config *m, struct error *err)
{
    m->factor = 1;
    TRY(hf_config_u32(*c, key, n, CONFIG_MAX_EXPERTS, &m->n_experts, err));
    return hf_config_u32(*c, "num_experts_per_tok", n_chosen, CONFIG_MAX_EXPERTS, &m->n_chosen,
                         err);
}

enum status model_config_mixtral(const struct hf_config *c, struct model_config *out,
                                 struct error *err)
{
    struct moe_config *m = &out->moe;
    TRY(read_experts(c, "num_local_experts", 8, 2, m, err));
    m->width = out->intermediate;
    m->normalise = true;
    memset(m->layer_has, 1, out->n_layers);
    return STATUS_OK;
}

/* Reads which layers have experts: each decoder_sparse_step-th layer, except for those of
 * mlp_only_layers. */
static enum status read_qwen_layers(const struct hf_config *c, struct model_config *out,
                                    struct error *err)
{
    const json_t *dense = hf_json_get(c->o, "mlp_only_layers");
    uint32_t step;
    TRY(hf_config_u32(*c, "decoder_sparse_step", 1, MODEL_MAX_LAYERS, &step, err));
    for (uint32_t i = 0; i < out->n_layers; i++)
        out->moe.layer_has[i] = (i + 1) % step == 0;
    if (dense && !json_is_array(dense))
        return error_set(err, STATUS_INVALID, "%s/config.json: mlp_only_layers must be a list",
                         c->folder);
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *v = json_array_get(dense, i);
        json_int_t layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0 || layer >= out->n_layers)
            return error_set(err, STATUS_INVALID,
                             "%s/config.json: mlp_only_layers contains a value that is not the "
                             "number of a layer; the model has %u layers",
                             c->folder, out->n_layers);
        out->moe.layer_has[layer] = 0;
    }
    return STATUS_OK;
}

enum status model_config_qwen2_moe(const struct hf_config *c, struct model_config *out,
                                   struct error *err)
{
    struct moe_config *m = &out->moe;
    TRY(read_experts(c, "num_experts", 60, 4, m, err));
    TRY(hf_config_u32(*c, "moe_intermediate_size", 1408, CONFIG_MAX_INTERMEDIATE, &m->width, err));
    TRY(hf_config_u32(*c, "shared_expert_intermediate_size", 5632, CONFIG_MAX_INTERMEDIATE,
                      &m->shared_width, err));
    TRY(hf_config_bool(*c, "norm_topk_prob", false, &m->normalise, err));
    m->shared_gate = true;
    return read_qwen_layers(c, out, err);
}

enum status model_config_qwen3_moe(const struct hf_config *c, struct model_config *out,
                                   struct error *err)
{
    struct moe_config *m = &out->moe;
    TRY(read_experts(c, "num_experts", 128, 8, m, err));
    TRY(hf_config_u32(*c, "moe_intermediate_size", 768, CONFIG_MAX_INTERMEDIATE, &m->width, err));
    TRY(hf_config_bool(*c, "norm_topk_prob", false, &m->normalise, err));
    return read_qwen_layers(c, out, err);
}

enum status model_config_gpt_oss(const struct hf_config *c, struct model_config *out,
                                 struct error *err)
{
    struct moe_config *m = &out->moe;
    double limit, alpha;
    TRY(read_experts(c, "num_local_experts", 128, 4, m, err));
    TRY(hf_config_positive(*c, "swiglu_limit", 7, 1e6, &limit, err));
    TRY(hf_config_positive(*c, "swiglu_alpha", 1.702, 1e6, &alpha, err));
    if (alpha != 1.702)
        return model_config_unsupported(c, "swiglu_alpha", "another", "1.702", err);
    m->width = out->intermediate;
    m->scores = MOE_SOFTMAX_OF_CHOSEN;
    m->router_bias = true;
    memset(m->layer_has, 1, out->n_layers);
    out->swiglu_limit = (float)limit;
    out->sinks = true;
    out->attention_out_bias = true;
    return STATUS_OK;
}

/* ---- DeepSeek ---- */

/* Reads latent attention and replaces the head sizes by those of the cached vector. The vector
 * is one key head of kv_rank + rope numbers, and its first part is also the value. */
static enum status read_latent(const struct hf_config *c, struct model_config *out,
                               struct error *err)
{
    struct mla_config *m = &out->mla;
    bool interleaved;
    TRY(hf_config_bool(*c, "rope_interleave", true, &interleaved, err));
    if (!interleaved)
        return model_config_unsupported(c, "rope_interleave", "false", "true", err);
    if (out->attention_bias)
        return model_config_unsupported(c, "attention_bias", "true", "false for this family", err);
    TRY(read_count(c, "q_lora_rank", 0, CONFIG_MAX_HIDDEN, &m->q_rank, err));
    TRY(hf_config_u32(*c, "kv_lora_rank", 512, CONFIG_MAX_HIDDEN, &m->kv_rank, err));
    TRY(hf_config_u32(*c, "qk_nope_head_dim", 128, CONFIG_MAX_HEAD_DIM, &m->nope, err));
    TRY(hf_config_u32(*c, "qk_rope_head_dim", 64, CONFIG_MAX_HEAD_DIM, &m->rope, err));
    TRY(hf_config_u32(*c, "v_head_dim", 128, CONFIG_MAX_HEAD_DIM, &m->v, err));
    out->n_kv_heads = 1;
    out->head_dim = m->kv_rank + m->rope;
    return STATUS_OK;
}

static enum status read_choice(const struct hf_config *c, struct model_config *out, bool is_v3,
                               struct error *err)
{
    struct moe_config *m = &out->moe;
    const char *scores, *method;
    double factor;
    TRY(hf_config_text(*c, "scoring_func", &scores, err));
    TRY(hf_config_text(*c, "topk_method", &method, err));
    scores = scores ? scores : is_v3 ? "sigmoid" : "softmax";
    method = method ? method : is_v3 ? "noaux_tc" : "greedy";
    if (strcmp(scores, is_v3 ? "sigmoid" : "softmax") != 0)
        return model_config_unsupported(c, "scoring_func", scores, is_v3 ? "sigmoid" : "softmax",
                                        err);
    bool by_groups = strcmp(method, is_v3 ? "noaux_tc" : "group_limited_greedy") == 0;
    if (!by_groups && (is_v3 || strcmp(method, "greedy") != 0))
        return model_config_unsupported(c, "topk_method", method,
                                        is_v3 ? "noaux_tc" : "greedy, group_limited_greedy", err);
    TRY(hf_config_positive(*c, "routed_scaling_factor", is_v3 ? 2.5 : 1, 1e6, &factor, err));
    m->factor = (float)factor;
    if (by_groups) {
        TRY(hf_config_u32(*c, "n_group", is_v3 ? 8 : 1, CONFIG_MAX_GROUPS, &m->n_groups, err));
        TRY(hf_config_u32(*c, "topk_group", is_v3 ? 4 : 1, CONFIG_MAX_GROUPS, &m->n_groups_chosen,
                          err));
    }
    m->scores = is_v3 ? MOE_SIGMOID : MOE_SOFTMAX;
    m->groups_by_two = m->choice_bias = is_v3;
    if (!is_v3) /* transformers ignores norm_topk_prob for V2 */
        return STATUS_OK;
    return hf_config_bool(*c, "norm_topk_prob", true, &m->normalise, err);
}

static enum status read_deepseek_experts(const struct hf_config *c, struct model_config *out,
                                         bool is_v3, struct error *err)
{
    struct moe_config *m = &out->moe;
    uint32_t first, every, n_shared;
    TRY(read_count(c, "n_routed_experts", 0, CONFIG_MAX_EXPERTS, &m->n_experts, err));
    if (m->n_experts == 0)
        return STATUS_OK;
    TRY(read_experts(c, "n_routed_experts", 0, is_v3 ? 8 : 6, m, err));
    TRY(hf_config_u32(*c, "moe_intermediate_size", is_v3 ? 2048 : 1407, CONFIG_MAX_INTERMEDIATE,
                      &m->width, err));
    TRY(read_count(c, "n_shared_experts", is_v3 ? 1 : 2, CONFIG_MAX_EXPERTS, &n_shared, err));
    if ((uint64_t)n_shared * m->width > CONFIG_MAX_INTERMEDIATE)
        return error_set(err, STATUS_INVALID,
                         "%s/config.json: the model has %u shared experts of %u dimensions each; "
                         "these numbers are too large",
                         c->folder, n_shared, m->width);
    m->shared_width = n_shared * m->width;
    TRY(read_count(c, "first_k_dense_replace", is_v3 ? 3 : 0, MODEL_MAX_LAYERS, &first, err));
    TRY(hf_config_u32(*c, "moe_layer_freq", 1, MODEL_MAX_LAYERS, &every, err));
    for (uint32_t i = 0; i < out->n_layers; i++)
        m->layer_has[i] = i >= first && i % every == 0;
    return read_choice(c, out, is_v3, err);
}

/* Sets the attention scale from the size of whole heads. YaRN with mscale_all_dim has a scale of
 * its own, whose square multiplies the attention scale. */
static enum status read_deepseek_scale(const struct hf_config *c, struct model_config *out,
                                       struct error *err)
{
    const json_t *rope = hf_json_get(c->o, "rope_scaling");
    double factor = 1, all_dim = 0;
    if (!json_is_object(rope))
        rope = hf_json_get(c->o, "rope_parameters");
    struct hf_config r = {c->folder, json_is_object(rope) ? rope : NULL};
    if (hf_json_get(r.o, "mscale_all_dim")) {
        TRY(hf_config_positive(r, "mscale_all_dim", 0, CONFIG_MAX_FACTOR, &all_dim, err));
        TRY(hf_config_positive(r, "factor", 1, CONFIG_MAX_FACTOR, &factor, err));
    }
    double mscale = factor > 1 ? 0.1 * all_dim * log(factor) + 1 : 1;
    out->attention_scale = (float)(mscale * mscale / sqrt((double)out->mla.nope + out->mla.rope));
    return STATUS_OK;
}

enum status model_config_deepseek(const struct hf_config *c, struct model_config *out,
                                  struct error *err)
{
    bool is_v3 = strcmp(out->family, "deepseek_v3") == 0;
    TRY(read_latent(c, out, err));
    TRY(read_deepseek_experts(c, out, is_v3, err));
    return read_deepseek_scale(c, out, err);
}
