#include "common/model/info/gguf.h"

#include "common/base/mem.h"
#include "common/model/gguf/gguf.h"
#include "common/model/gguf/values.h"
#include "common/model/info/arch.h"
#include "common/model/info/base.h"
#include "common/model/info/family.h"

enum { SIGMOID_GATING = 2 }; /* value of expert_gating_func in DeepSeek-V3; V2 has softmax */

/* Finds the model's family. The two DeepSeek families are "deepseek2" in GGUF, and Mixtral is a
 * "llama" with experts. */
static enum status find_family(const struct gguf *g, struct model_info *m, struct str arch,
                               const struct family **out, struct error *err)
{
    uint64_t gating;
    *out = family_by_gguf_arch(arch);
    if (!*out)
        return model_info_unknown(m, arch, err);
    if (str_eq_c(arch, "deepseek2") && model_arch_u64(g, arch, "expert_gating_func", SIGMOID_GATING,
                                                      SIGMOID_GATING, &gating, NULL) == STATUS_OK)
        *out = family_by_hf_type(STR("deepseek_v3"));
    if (str_eq_c(arch, "llama") && model_arch_has_experts(g, arch))
        *out = family_by_hf_type(STR("mixtral"));
    return STATUS_OK;
}

/* Reads the size of the vocabulary. The rows of the embedding give the number of logits. A file
 * without tensors (a test's vocabulary, or the first part of a split model) has only its list of
 * tokens. */
static enum status read_vocab(const struct gguf *g, struct model_info *m,
                              const struct gguf_array *tokens, struct error *err)
{
    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    uint64_t n = embd ? embd->shape[1] : tokens->n;
    if (embd && embd->n_dims != 2)
        return error_set(err, STATUS_INVALID,
                         "%s: the tensor token_embd.weight has %u dimensions, but must have 2. "
                         "Fetch the file again",
                         m->path, embd->n_dims);
    if (n < 1 || n > MODEL_MAX_VOCAB)
        return error_set(
            err, STATUS_INVALID,
            "%s: the vocabulary has %llu tokens; Coxswain supports 1 to %d. Use another model",
            m->path, (unsigned long long)n, MODEL_MAX_VOCAB);
    if (tokens->n > n)
        return error_set(err, STATUS_INVALID,
                         "%s: the tokenizer has %llu tokens, but the embedding has only %llu. "
                         "Fetch the file again",
                         m->path, (unsigned long long)tokens->n, (unsigned long long)n);
    m->vocab_size = (uint32_t)n;
    return STATUS_OK;
}

static enum status read_eos(const struct gguf *g, struct model_info *m, const struct family *f,
                            const struct gguf_array *tokens, struct error *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t id;
        enum status s = gguf_get_u64(g, keys[i], 0, UINT32_MAX, &id, err);
        if (s == STATUS_OK)
            s = model_info_add_eos(m, id, err);
        if (s != STATUS_OK && s != STATUS_NOT_FOUND)
            return s;
    }
    const uint8_t *cursor = NULL;
    struct str token;
    for (uint64_t id = 0; gguf_array_next_str(tokens, &cursor, &token); id++)
        for (int i = 0; i < FAMILY_MAX_EOS_TEXTS && f->eos_texts[i]; i++)
            if (str_eq_c(token, f->eos_texts[i]))
                TRY(model_info_add_eos(m, id, err));
    return STATUS_OK;
}

static enum status read_all(const struct gguf *g, struct model_info *m, struct error *err)
{
    struct str arch;
    const struct family *f;
    struct gguf_array tokens;
    uint64_t max_len;
    TRY(gguf_get_str(g, "general.architecture", &arch, err));
    TRY(find_family(g, m, arch, &f, err));
    TRY(model_arch_u64(g, arch, "context_length", 1, MODEL_MAX_LEN, &max_len, err));
    TRY(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, err));
    TRY(read_vocab(g, m, &tokens, err));
    TRY(read_eos(g, m, f, &tokens, err));
    uint64_t hidden;
    if (model_arch_u64(g, arch, "embedding_length", 1, UINT32_MAX, &hidden, NULL) == STATUS_OK)
        m->hidden = (uint32_t)hidden;
    m->family = mem_strdup(f->name);
    m->max_model_len = (uint32_t)max_len;
    return STATUS_OK;
}

enum status model_info_read_gguf(struct model_info *m, struct error *err)
{
    struct gguf *g;
    TRY(gguf_open(m->path, &g, err));
    enum status s = read_all(g, m, err);
    gguf_close(g);
    /* The file itself exists, so a missing key means that the file is incomplete. */
    return s == STATUS_NOT_FOUND ? error_prefix(err, STATUS_INVALID, "the GGUF file is incomplete")
                                 : s;
}
