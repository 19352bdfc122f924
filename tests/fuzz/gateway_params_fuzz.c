/* Fuzzes request bodies of all endpoints through all their readers: JSON, the field table,
 * prompts, messages, a template, the tokenizer. The first byte selects the endpoint. An accepted
 * body must keep the promises that the rest of the gateway relies on. */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "gateway/dialects/dialects.h"
#include "gateway/prepare/dialect.h"
#include "gateway/prepare/prepare.h"
#include "gateway/sagemaker/djl_dialects.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct prepare_model model;

static void open_model(void)
{
    static const char source[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                                 "{% if add_generation_prompt %}<assistant>{% endif %}";
    struct text_tokenizer *tokenizer;
    struct text_template *tmpl;
    char err[TEXT_ERR_MAX];
    if (text_tokenizer_open("builtin:bytes", NULL, &tokenizer, err) != TEXT_OK ||
        text_template_new(source, sizeof source - 1, &tmpl, err) != TEXT_OK)
        abort();
    model = (struct prepare_model){.tokenizer = tokenizer,
                                   .chat_template = tmpl,
                                   .max_model_len = 4096,
                                   .max_choices = 256,
                                   .pooling = POOLING_LAST,
                                   .policy = {.vocab_size = 259,
                                              .max_logprobs = PARAMS_MAX_LOGPROBS,
                                              .trust_chat_template = true,
                                              .auto_tools = true,
                                              .unknown = UNKNOWN_IGNORE}};
}

static void check(const struct prepared *p)
{
    const struct sampling_params *s = &p->params.sampling;
    assert(s->temperature >= 0 && s->temperature <= 2);
    assert(s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    assert(isfinite(s->presence_penalty) && isfinite(s->frequency_penalty));
    assert(s->repetition_penalty > 0);
    assert(s->n_logprobs >= -1 && s->n_logprobs <= (int32_t)PARAMS_MAX_LOGPROBS);
    assert(p->prompts.n > 0 && p->params.n > 0);
    assert((uint64_t)p->prompts.n * p->params.n <= model.max_choices);
    for (uint32_t i = 0; i < p->prompts.n; i++) {
        const struct prompt *q = &p->prompts.items[i];
        uint32_t max_tokens = p->params.max_tokens ? p->params.max_tokens : p->max_tokens_room;
        assert(q->n_ids > 0 && max_tokens > 0);
        /* a default only needs space for one token, because the head reduces it */
        uint32_t least = p->params.max_tokens_is_default ? 1 : max_tokens;
        assert((uint64_t)q->n_ids + least <= model.max_model_len);
        for (uint32_t k = 0; k < q->n_ids; k++)
            assert(q->ids[k] < model.policy.vocab_size);
    }
    for (uint32_t i = 0; i < s->stop_ids.n; i++)
        assert(s->stop_ids.ptr[i] < model.policy.vocab_size);
    for (uint32_t i = 0; i < s->n_logit_bias; i++)
        assert(s->logit_bias[i].token < model.policy.vocab_size &&
               fabsf(s->logit_bias[i].bias) <= 100);
}

static const struct dialect *dialect_of(uint8_t letter)
{
    switch (letter) {
    case 'a':
        return &dialect_djl_async;
    case 'd':
        return &dialect_djl;
    case 'e':
        return &dialect_embeddings;
    case 'h':
        return &dialect_chat;
    case 'm':
        return &dialect_messages;
    case 'n':
        return &dialect_count_tokens;
    case 'r':
        return &dialect_responses;
    case 't':
        return &dialect_tokenize;
    case 'u':
        return &dialect_detokenize;
    default:
        return &dialect_completions;
    }
}

/* Checks that an answer without generation is JSON. */
static void answer(const struct dialect *d, const struct prepared *p)
{
    const struct answer_shape a = {
        .params = &p->params, .prompts = &p->prompts, .tokenizer = model.tokenizer};
    struct strbuf b;
    strbuf_init(&b, 0);
    d->answer(&b, &a);
    json_t *j = json_loadb(b.ptr, b.len, JSON_ALLOW_NUL, NULL);
    assert(j);
    json_decref(j);
    strbuf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prepared p;
    if (size < 1)
        return 0;
    if (!model.tokenizer)
        open_model();
    const struct dialect *d = dialect_of(data[0]);
    prepare_request(&model, d, (struct str){(const char *)data + 1, size - 1}, &p);
    if (p.error.http_status == 0 && d->answer) {
        answer(d, &p);
    } else if (p.error.http_status == 0) {
        check(&p);
    } else {
        struct strbuf b;
        assert(p.error.http_status >= 400 && p.error.http_status < 500);
        strbuf_init(&b, 0);
        d->error(&b, &p.error, false);
        json_t *j = json_loadb(b.ptr, b.len, 0, NULL); /* the answer must be JSON for every body */
        assert(j);
        json_decref(j);
        strbuf_fini(&b);
    }
    prepared_fini(&p);
    return 0;
}
