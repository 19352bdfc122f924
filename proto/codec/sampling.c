#include "proto/codec/sampling.h"

#include <string.h>

#include "proto/limits.h"
#include "proto/sampling.pb-c.h"

/* PUT_UNUSUAL sets a field, which is sent only when its bits differ from the default value of
 * the .proto file. -0.0 is therefore sent, too. */
#define PUT_UNUSUAL(field, value)                                                                  \
    do {                                                                                           \
        p->field = (value);                                                                        \
        p->has_##field =                                                                           \
            memcmp((const char *)&p->field, (const char *)&usual.field, sizeof p->field) != 0;     \
    } while (0)

Cox__Sampling *wire_put_sampling(struct wire *w, const struct sampling_params *s)
{
    static const Cox__Sampling usual = COX__SAMPLING__INIT;
    Cox__Sampling *p = wire_new(w, &cox__sampling__descriptor);
    uint32_t *tokens = wire_array(w, s->n_logit_bias, sizeof *tokens);
    float *values = wire_array(w, s->n_logit_bias, sizeof *values);
    if (w->status != STATUS_OK)
        return NULL;
    PUT_UNUSUAL(temperature, s->temperature);
    PUT_UNUSUAL(top_p, s->top_p);
    PUT_UNUSUAL(min_p, s->min_p);
    PUT_UNUSUAL(top_k, s->top_k);
    PUT_UNUSUAL(presence_penalty, s->presence_penalty);
    PUT_UNUSUAL(frequency_penalty, s->frequency_penalty);
    PUT_UNUSUAL(repetition_penalty, s->repetition_penalty);
    PUT_UNUSUAL(seed, s->seed);
    PUT_UNUSUAL(i_prompt, s->i_prompt);
    PUT_UNUSUAL(i_choice, s->i_choice);
    PUT_UNUSUAL(n_logprobs_plus_1, (uint32_t)(s->n_logprobs + 1));
    PUT_UNUSUAL(n_prompt_logprobs_plus_1, (uint32_t)(s->n_prompt_logprobs + 1));
    PUT_UNUSUAL(max_tokens, s->max_tokens);
    PUT_UNUSUAL(min_tokens, s->min_tokens);
    WIRE_PUT_SPAN(p, eos_ids, s->eos_ids);
    WIRE_PUT_SPAN(p, stop_ids, s->stop_ids);
    WIRE_PUT_SPAN(p, allowed_ids, s->allowed_ids);
    WIRE_PUT_SPAN(p, bad_words, s->bad_words);
    for (uint32_t i = 0; i < s->n_logit_bias; i++) {
        tokens[i] = s->logit_bias[i].token;
        values[i] = s->logit_bias[i].bias;
    }
    p->n_logit_bias_tokens = p->n_logit_bias_values = s->n_logit_bias;
    p->logit_bias_tokens = tokens;
    p->logit_bias_values = values;
    PUT_UNUSUAL(grammar_kind, (Cox__GrammarKind)s->grammar_kind);
    p->has_grammar = s->grammar.len > 0;
    p->grammar = wire_put_str(s->grammar);
    p->has_lora = s->lora.len > 0;
    p->lora = wire_put_str(s->lora);
    PUT_UNUSUAL(lora_id, s->lora_id);
    PUT_UNUSUAL(pooling, (uint32_t)s->pooling);
    PUT_UNUSUAL(pooling_normalise, s->pooling_normalise);
    return p;
}

void wire_get_sampling(struct wire *w, const Cox__Sampling *p, struct sampling_params *s)
{
    if (!p) {
        wire_fail(w, STATUS_PROTOCOL, "the sampling parameters are missing. Report this bug");
        return;
    }
    if (p->n_logit_bias_tokens != p->n_logit_bias_values) {
        wire_fail(w, STATUS_PROTOCOL,
                  "the sampling parameters do not have one logit bias for each of its tokens. "
                  "Report this bug");
        return;
    }
    if (p->n_logprobs_plus_1 > PROTO_MAX_LOGPROBS + 1) {
        wire_fail(w, STATUS_PROTOCOL,
                  "the number of log-probabilities in the sampling parameters is too large. Report "
                  "this bug");
        return;
    }
    if (p->n_prompt_logprobs_plus_1 > PROTO_MAX_LOGPROBS + 1) {
        wire_fail(w, STATUS_PROTOCOL,
                  "the number of prompt log-probabilities in the sampling parameters is too large. "
                  "Report this bug");
        return;
    }
    struct logit_bias *bias = wire_array(w, p->n_logit_bias_tokens, sizeof *bias);
    if (w->status != STATUS_OK)
        return;
    for (size_t i = 0; i < p->n_logit_bias_tokens; i++)
        bias[i] = (struct logit_bias){p->logit_bias_tokens[i], p->logit_bias_values[i]};
    *s = (struct sampling_params){
        .temperature = p->temperature,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .top_k = p->top_k,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .repetition_penalty = p->repetition_penalty,
        .seed = p->seed,
        .i_prompt = p->i_prompt,
        .i_choice = p->i_choice,
        .n_logprobs = (int32_t)p->n_logprobs_plus_1 - 1,
        .n_prompt_logprobs = (int32_t)p->n_prompt_logprobs_plus_1 - 1,
        .max_tokens = p->max_tokens,
        .min_tokens = p->min_tokens,
        .eos_ids = WIRE_GET_U32(p, eos_ids),
        .stop_ids = WIRE_GET_U32(p, stop_ids),
        .allowed_ids = WIRE_GET_U32(p, allowed_ids),
        .bad_words = WIRE_GET_U32(p, bad_words),
        .logit_bias = bias,
        .n_logit_bias = (uint32_t)p->n_logit_bias_tokens,
        .grammar_kind = (enum grammar_kind)p->grammar_kind,
        .grammar = wire_get_str(p->grammar),
        .lora = wire_get_str(p->lora),
        .lora_id = p->lora_id,
        .pooling = (enum pooling_kind)p->pooling,
        .pooling_normalise = p->pooling_normalise,
    };
}

Cox__LogprobRow **wire_put_rows(struct wire *w, const struct logprob_row *rows, uint32_t n)
{
    Cox__LogprobRow **p = wire_new_array(w, &cox__logprob_row__descriptor, n);
    for (uint32_t i = 0; p && i < n; i++) {
        WIRE_PUT_SPAN(p[i], ids, rows[i].ids);
        WIRE_PUT_SPAN(p[i], values, rows[i].values);
        p[i]->chosen_rank = rows[i].chosen_rank;
    }
    return p;
}

const struct logprob_row *wire_get_rows(struct wire *w, Cox__LogprobRow *const *p, size_t n)
{
    struct logprob_row *rows = wire_array(w, n, sizeof *rows);
    for (size_t i = 0; rows && i < n; i++) {
        rows[i].ids = WIRE_GET_U32(p[i], ids);
        rows[i].values = (struct f32_span){p[i]->values, (uint32_t)p[i]->n_values};
        rows[i].chosen_rank = p[i]->chosen_rank;
    }
    return rows;
}
