/* Reads experts and latent attention from a GGUF's metadata. Settings that a family's metadata
 * never has are taken from its published models. */
#include "common/model/config/gguf_moe.h"

#include <math.h>
#include <string.h>

#include "common/model/config/family_row.h"
#include "common/model/gguf/values.h"
#include "common/model/info/arch.h"

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 }; /* values of expert_gating_func */

/* Reads the number of experts, how many each token uses, and their width. When the file has no
 * width, the width of the MLP is used. */
static enum status read_experts(const struct gguf_reader *r, struct model_config *out)
{
    struct moe_config *m = &out->moe;
    m->factor = 1;
    TRY(gguf_reader_u32(r, "expert_count", CONFIG_MAX_EXPERTS, &m->n_experts));
    TRY(gguf_reader_u32(r, "expert_used_count", CONFIG_MAX_EXPERTS, &m->n_chosen));
    TRY(gguf_reader_count_or(r, "expert_feed_forward_length", out->intermediate,
                             CONFIG_MAX_INTERMEDIATE, &m->width));
    memset(m->layer_has, 1, out->n_layers);
    return STATUS_OK;
}

enum status model_config_gguf_mixtral(const struct gguf_reader *r, struct model_config *out)
{
    out->moe.normalise = true;
    return read_experts(r, out);
}

enum status model_config_gguf_qwen2_moe(const struct gguf_reader *r, struct model_config *out)
{
    TRY(read_experts(r, out));
    out->moe.shared_gate = true;
    TRY(gguf_reader_bool_or(r, "expert_weights_norm", false, &out->moe.normalise));
    return gguf_reader_u32(r, "expert_shared_feed_forward_length", CONFIG_MAX_INTERMEDIATE,
                           &out->moe.shared_width);
}

enum status model_config_gguf_qwen3_moe(const struct gguf_reader *r, struct model_config *out)
{
    TRY(read_experts(r, out));
    return gguf_reader_bool_or(r, "expert_weights_norm", true, &out->moe.normalise);
}

/* Reads gpt-oss's special settings. gpt-oss does not round the bounds of its YaRN scaling to
 * whole numbers. */
enum status model_config_gguf_gpt_oss(const struct gguf_reader *r, struct model_config *out)
{
    TRY(read_experts(r, out));
    out->moe.scores = MOE_SOFTMAX_OF_CHOSEN;
    out->moe.router_bias = true;
    out->swiglu_limit = 7;
    out->sinks = true;
    out->rope.truncate = out->rope_local.truncate = false;
    return STATUS_OK;
}

/* ---- DeepSeek ---- */

/* Reads the sizes of latent attention. Newer files store the sizes of whole heads as
 * key_length_mla and value_length_mla, and the size of the cached vector as key_length. Older
 * files store the sizes of heads in key_length and value_length. Newer files also have kv_b in
 * two tensors. */
static enum status read_latent(const struct gguf_reader *r, struct model_config *out)
{
    struct mla_config *m = &out->mla;
    uint32_t key;
    m->split_kv_b = gguf_find_tensor(r->g, "blk.0.attn_k_b.weight") != NULL;
    TRY(gguf_reader_u32(r, "attention.kv_lora_rank", CONFIG_MAX_HIDDEN, &m->kv_rank));
    TRY(gguf_reader_count_or(r, "attention.q_lora_rank", 0, CONFIG_MAX_HIDDEN, &m->q_rank));
    TRY(gguf_reader_u32(r, "rope.dimension_count", CONFIG_MAX_HEAD_DIM, &m->rope));
    if (gguf_find(r->g, model_arch_key(r->arch, "attention.key_length_mla").text)) {
        TRY(gguf_reader_u32(r, "attention.key_length_mla", CONFIG_MAX_HEAD_DIM, &key));
        TRY(gguf_reader_u32(r, "attention.value_length_mla", CONFIG_MAX_HEAD_DIM, &m->v));
    } else {
        TRY(gguf_reader_u32(r, "attention.key_length", CONFIG_MAX_HEAD_DIM, &key));
        TRY(gguf_reader_u32(r, "attention.value_length", CONFIG_MAX_HEAD_DIM, &m->v));
    }
    if (key <= m->rope)
        return error_set(r->err, STATUS_INVALID,
                         "%s: an attention head has %u dimensions and RoPE rotates %u of them; it "
                         "must rotate fewer than all",
                         gguf_path(r->g), key, m->rope);
    m->nope = key - m->rope;
    out->n_kv_heads = 1;
    out->head_dim = m->kv_rank + m->rope;
    return STATUS_OK;
}

/* Reads the groups of experts. Some files are older than these keys: DeepSeek-V3 then has 8
 * groups and uses 4. */
static enum status read_groups(const struct gguf_reader *r, struct moe_config *m, bool is_v3)
{
    bool as_v3 = is_v3 && m->n_experts == 256;
    uint32_t n, n_chosen;
    TRY(gguf_reader_count_or(r, "expert_group_count", as_v3 ? 8 : 1, CONFIG_MAX_GROUPS, &n));
    TRY(gguf_reader_count_or(r, "expert_group_used_count", as_v3 ? 4 : 1, CONFIG_MAX_GROUPS,
                             &n_chosen));
    if (n > 1) {
        m->n_groups = n;
        m->n_groups_chosen = n_chosen;
    }
    return STATUS_OK;
}

static enum status read_deepseek_experts(const struct gguf_reader *r, struct model_config *out)
{
    struct moe_config *m = &out->moe;
    bool is_v3 = strcmp(out->family, "deepseek_v3") == 0;
    uint32_t n_dense, n_shared, gating;
    double factor;
    if (!model_arch_has_experts(r->g, r->arch))
        return STATUS_OK;
    TRY(read_experts(r, out));
    TRY(gguf_reader_count_or(r, "expert_gating_func", GATING_SOFTMAX, GATING_SIGMOID, &gating));
    TRY(gguf_reader_count_or(r, "expert_shared_count", 0, CONFIG_MAX_EXPERTS, &n_shared));
    TRY(gguf_reader_count_or(r, "leading_dense_block_count", 0, MODEL_MAX_LAYERS, &n_dense));
    TRY(gguf_reader_positive_or(r, "expert_weights_scale", 1, 1e6, &factor));
    if ((uint64_t)n_shared * m->width > CONFIG_MAX_INTERMEDIATE || n_dense > out->n_layers)
        return error_set(r->err, STATUS_INVALID,
                         "%s: the model has %u shared experts of %u dimensions and %u dense layers "
                         "of %u layers; these numbers are too large",
                         gguf_path(r->g), n_shared, m->width, n_dense, out->n_layers);
    memset(m->layer_has, 0, n_dense);
    m->shared_width = n_shared * m->width;
    m->factor = (float)factor;
    m->scores = gating == GATING_SIGMOID ? MOE_SIGMOID : MOE_SOFTMAX;
    m->groups_by_two = m->choice_bias = is_v3;
    TRY(gguf_reader_bool_or(r, "expert_weights_norm", is_v3, &m->normalise));
    return read_groups(r, m, is_v3);
}

/* Sets the attention scale from the size of whole heads. YaRN has two scales; the file stores
 * only the scale for all dimensions, as yarn_log_multiplier. The two are equal in all published
 * models, so cos and sin need no scale. */
static enum status read_scale(const struct gguf_reader *r, struct model_config *out)
{
    double multiplier, mscale = 1;
    TRY(gguf_reader_positive_or(r, "rope.scaling.yarn_log_multiplier", 0, CONFIG_MAX_FACTOR,
                                &multiplier));
    if (out->rope.scaling == ROPE_YARN) {
        if (out->rope.factor > 1)
            mscale = multiplier * log(out->rope.factor) + 1;
        out->rope.attention_factor = 1;
        out->rope_local = out->rope;
    }
    out->attention_scale = (float)(mscale * mscale / sqrt((double)out->mla.nope + out->mla.rope));
    return STATUS_OK;
}

enum status model_config_gguf_deepseek(const struct gguf_reader *r, struct model_config *out)
{
    TRY(read_latent(r, out));
    TRY(read_deepseek_experts(r, out));
    return read_scale(r, out);
}
