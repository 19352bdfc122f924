/* Turns a body's bytes into a prepared request: parse, check the fields, render, check the
 * grammar, tokenize, check lengths.
 * serving/start.c calls `prepare_request` on the loop or on a pool thread; the fuzzer calls it
 * too. The dialect's `read` checks the fields and makes the prompts.
 * `prepare_request` is pure: it reads only `prepare_model` and the body, and writes only
 * `prepared`. `prepare_place` limits the work. With PREPARE_WANTS_… in the error the caller must
 * call it again in another place. The first error ends the preparing. */
#include "gateway/prepare/prepare.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "gateway/prepare/chunks.h"
#include "gateway/prepare/echo.h"
#include "gateway/prepare/outputs_config.h"
#include "gateway/tools/blame.h"
#include "gateway/tools/grammar_source.h"

/* `MAX_COMPILES` is the most compiles for one request. The number includes the search for the
 * tool at fault, which halves the list at each step. */
enum { MAX_BAD_WORD_IDS = 4096, MAX_COMPILES = 10 };

/* Returns the most ids of a prompt. For tokens the limit is the context. For embeddings it is
 * the limit of --pooler-config, else CHUNKS_MAX_IDS with chunked processing, else the context. */
static uint32_t max_input(const struct prepare_model *m, const struct params *p)
{
    if (p->sampling.pooling == POOLING_NONE)
        return m->max_model_len;
    if (m->max_embed_len)
        return m->chunks || m->max_embed_len < m->max_model_len ? m->max_embed_len
                                                                : m->max_model_len;
    return m->chunks ? CHUNKS_MAX_IDS : m->max_model_len;
}

/* Tokenizes one prompt. `field` is the dialect's name for the prompt. */
static bool encode_prompt(const struct prepare_model *m, const struct params *p, const char *field,
                          struct prompt *out, struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "";
    uint32_t *ids = NULL;
    size_t n = 0;
    const uint32_t most = max_input(m, p);
    /* Up to twice the limit, the error states the exact length of a text. A longer text is
     * refused early, so its length stays unknown. */
    size_t limit = (size_t)most * 2;
    int s = text_encode(m->tokenizer, out->text.ptr, out->text.len, p->add_special_tokens, limit,
                        &ids, &n, why);
    if (s == TEXT_LIMIT) {
        e->code = "context_length_exceeded";
        return api_error_set(
            e, 400, field,
            "This model's maximum context length is %u tokens. However, you "
            "requested more than %zu tokens in the %s. Please reduce the length of "
            "the %s.",
            most, limit, field, field);
    }
    if (s != TEXT_OK)
        return api_error_set(e, s == TEXT_INTERNAL ? 500 : 400, field, "%s cannot be tokenized: %s",
                             field, why);
    out->ids = mem_array(n, sizeof *ids);
    memcpy(out->ids, ids, n * sizeof *ids);
    out->n_ids = (uint32_t)n;
    text_free(ids);
    return true;
}

/* Prepares the parts of the prompt that the answer repeats: the prompt's text, and the offset of
 * each id in the text. */
static bool prepare_echo(const struct prepare_model *m, const struct params *p, bool cut,
                         struct prompt *out, struct api_error *e)
{
    if (!p->echo && !p->return_prompt_text)
        return true;
    if ((cut || !out->has_text) && !echo_text(m->tokenizer, p->skip_special_tokens, out, e))
        return false;
    return !p->echo || p->logprobs < 0 ||
           echo_offsets(m->tokenizer, p->skip_special_tokens, out, e);
}

/* Adds the tokens of a word at the beginning of a text, and after a space. As in vLLM, the
 * second form counts only when the two forms differ in their first token alone. UINT32_MAX ends
 * each form. */
static bool add_bad_word(const struct prepare_model *m, const char *word, uint32_t *out,
                         uint32_t *n_out, struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "", spaced[STOP_MAX_BYTES + 2];
    uint32_t *plain = NULL, *behind = NULL;
    size_t n = 0, n_behind = 0;
    while (*word == ' ')
        word++;
    int len = snprintf(spaced, sizeof spaced, " %s", word);
    int s = text_encode(m->tokenizer, spaced + 1, (size_t)len - 1, false, STOP_MAX_BYTES, &plain,
                        &n, why);
    if (s == TEXT_OK)
        s = text_encode(m->tokenizer, spaced, (size_t)len, false, STOP_MAX_BYTES, &behind,
                        &n_behind, why);
    bool both = s == TEXT_OK && n > 0 && n_behind == n && plain[0] != behind[0];
    bool fits = s == TEXT_OK && *n_out + 2 * (n + 1) <= MAX_BAD_WORD_IDS;
    for (int k = 0; fits && n > 0 && k < (both ? 2 : 1); k++) {
        memcpy(out + *n_out, k ? behind : plain, n * sizeof *out);
        *n_out += (uint32_t)n;
        out[(*n_out)++] = UINT32_MAX;
    }
    text_free(plain);
    text_free(behind);
    if (s != TEXT_OK)
        return api_error_set(e, 400, "bad_words", "bad_words cannot be tokenized: %s", why);
    return fits || api_error_set(e, 400, "bad_words",
                                 "bad_words have more than %u tokens in total. Send fewer of them.",
                                 MAX_BAD_WORD_IDS);
}

static bool encode_bad_words(const struct prepare_model *m, struct params *p, struct api_error *e)
{
    uint32_t *ids, n = 0;
    if (json_array_size(p->bad_words) == 0)
        return true;
    ids = arena_try_array(&p->arena, MAX_BAD_WORD_IDS, sizeof *ids);
    if (!ids)
        return api_error_set(
            e, 413, "bad_words",
            "The server has no memory for the tokens of bad_words. Send a shorter request.");
    for (size_t i = 0; i < json_array_size(p->bad_words); i++)
        if (!add_bad_word(m, json_string_value(json_array_get(p->bad_words, i)), ids, &n, e))
            return false;
    p->sampling.bad_words = (struct u32_span){ids, n};
    return true;
}

static bool check_grammar(const struct prepare_model *m, const struct params *p,
                          struct api_error *e)
{
    const struct sampling_params *s = &p->sampling;
    struct grammar_asker a = {.place = m->place,
                              .tenant = m->tenant,
                              .dropped = m->dropped,
                              .n_compiles_left = MAX_COMPILES};
    if (!m->grammars || s->grammar_kind == GRAMMAR_NONE ||
        grammar_check(m->grammars, &a, s->grammar_kind, s->grammar, p->grammar_field, e))
        return true;
    if (e->http_status == 400 && strcmp(p->grammar_field, "tool_choice") == 0)
        tool_blame(m->grammars, &a, p, e);
    return false;
}

/* Allows reasoning before the grammar. Reasoning is required when the prompt has begun it or the
 * model always reasons. It is forbidden when the prompt has ended it. Otherwise it is optional.
 * A chat has one prompt. */
static bool let_reason(const struct prepare_model *m, const struct dialect *d, struct prepared *out,
                       struct api_error *e)
{
    struct reasoning_marks marks;
    const struct prompt *prompt = out->prompts.items;
    if (!m->reasoning || !m->reasoning->marks || !d->call_prefix || out->prompts.n != 1)
        return true;
    return !m->reasoning->marks(m->reasoning, prompt->text, prompt_continued(prompt), &marks) ||
           grammar_after_reasoning(&out->params, &marks, e);
}

/* Checks truncate_prompt_tokens. As in vLLM, a truncation above the context is an error. */
static bool check_truncation(const struct prepare_model *m, const struct params *p,
                             struct api_error *e)
{
    uint32_t most = max_input(m, p);
    return p->truncate_prompt_tokens <= (int64_t)most ||
           api_error_set(e, 400, "truncate_prompt_tokens",
                         "truncate_prompt_tokens=%lld cannot be greater than max_model_len = %u. "
                         "Please request a smaller truncation size.",
                         (long long)p->truncate_prompt_tokens, most);
}

/* Cuts a prompt to truncate_prompt_tokens, and keeps its end or its beginning. Returns true when
 * the prompt was longer. */
static bool truncate_prompt(const struct prepare_model *m, const struct params *p,
                            struct prompt *out)
{
    int64_t keep = p->truncate_prompt_tokens;
    if (keep == PARAMS_NO_TRUNCATION)
        return false;
    if (keep < 0 && p->sampling.pooling != POOLING_NONE)
        keep = (int64_t)max_input(m, p);
    else if (keep < 0) /* the rest of the context is reserved for the answer */
        keep = (int64_t)m->max_model_len -
               (p->max_tokens && !p->max_tokens_is_default ? (int64_t)p->max_tokens : 1);
    if (keep < 0 || out->n_ids <= keep)
        return false;
    if (!p->truncate_right)
        memmove(out->ids, out->ids + (out->n_ids - keep), (size_t)keep * sizeof *out->ids);
    out->n_ids = (uint32_t)keep;
    return true;
}

static bool check_length(const struct prepare_model *m, const struct params *p, const char *field,
                         const struct prompt *prompt, struct api_error *e)
{
    if (prompt->n_ids == 0)
        return api_error_set(e, 400, field, "The prompt must hold at least one token.");
    /* the head shortens max_tokens to fit */
    bool bends = !p->max_tokens || p->max_tokens_is_default;
    bool pools = p->sampling.pooling != POOLING_NONE; /* a vector needs no space in the context */
    uint64_t want = pools ? 0 : bends ? 1 : p->max_tokens;
    const uint32_t most = max_input(m, p);
    if (prompt->n_ids + want <= most)
        return true;
    e->code = "context_length_exceeded";
    if (bends)
        return api_error_set(e, 400, field,
                             "This model's maximum context length is %u tokens. However, you "
                             "requested %u tokens in the %s. Please reduce the length of the %s.",
                             most, prompt->n_ids, field, field);
    return api_error_set(e, 400, field,
                         "This model's maximum context length is %u tokens. However, you requested "
                         "%llu tokens (%u in the %s, %u in the completion). Please reduce the "
                         "length of the %s or completion.",
                         m->max_model_len, (unsigned long long)prompt->n_ids + want, prompt->n_ids,
                         field, p->max_tokens, field);
}

/* Checks the number of prompt log-probabilities in the answer against its limit. */
static bool check_prompt_logprobs(const struct prepared *x, struct api_error *e)
{
    const struct params *p = &x->params;
    uint64_t n_ids = 0, k = (uint64_t)p->sampling.n_prompt_logprobs + 1;
    /* completions repeat the prompt's log-probabilities in each choice */
    uint64_t times = p->kind == API_COMPLETIONS ? (uint64_t)p->n : 1;
    if (p->sampling.n_prompt_logprobs < 0)
        return true;
    for (uint32_t i = 0; i < x->prompts.n; i++)
        n_ids += x->prompts.items[i].n_ids;
    uint32_t most = p->stream ? PARAMS_MAX_STREAMED : PARAMS_MAX_PROMPT_LOGPROBS;
    if (n_ids * k * times <= most)
        return true;
    return api_error_set(
        e, 400, p->prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs",
        "The answer would have too many log-probabilities: %llu prompt tokens, with up to %llu "
        "each, in %llu choices. At most %u are allowed%s. Ask for fewer, or send fewer prompts.",
        (unsigned long long)n_ids, (unsigned long long)k, (unsigned long long)times, most,
        p->stream ? " in a stream" : "");
}

static bool prepare_prompts(const struct prepare_model *m, const struct dialect *d,
                            struct prepared *out)
{
    const char *field = d->prompt_field;
    bool generates = !d->answer;
    struct params *p = &out->params;
    struct api_error *e = &out->error;
    if ((uint64_t)out->prompts.n * p->n_generated > m->max_choices)
        return api_error_set(e, 400, p->n_generated > p->n ? "best_of" : "n",
                             "%u prompts with %u choices each are too many: one request may have "
                             "at most %u choices. Send fewer prompts, or ask for fewer choices.",
                             out->prompts.n, p->n_generated, m->max_choices);
    if (!check_truncation(m, p, e))
        return false;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < out->prompts.n; i++) {
        struct prompt *prompt = &out->prompts.items[i];
        if (prompt->has_text && !encode_prompt(m, p, field, prompt, e))
            return false;
        bool cut = truncate_prompt(m, p, prompt);
        if (generates && !check_length(m, p, field, prompt, e))
            return false;
        if (!prepare_echo(m, p, cut, prompt, e))
            return false;
        if (prompt->n_ids > longest)
            longest = prompt->n_ids;
    }
    if (p->sampling.pooling != POOLING_NONE &&
        !chunks_cut(&out->prompts, m->max_model_len, m->max_choices))
        return api_error_set(e, 400, field,
                             "The field %s is too long: it needs more than %u pieces of %u tokens. "
                             "Send less in one request.",
                             field, m->max_choices, m->max_model_len);
    out->max_tokens_room = m->max_model_len > longest ? m->max_model_len - longest : 0;
    return check_prompt_logprobs(out, e);
}

void prepare_request(const struct prepare_model *m, const struct dialect *d, struct str body,
                     struct prepared *out)
{
    *out = (struct prepared){0};
    json_t *json = params_parse_json(body, &out->error);
    if (json && d->read(m, json, out) && encode_bad_words(m, &out->params, &out->error) &&
        (out->params.tool_choice != TOOL_CHOICE_REQUIRED ||
         grammar_from_tools(&out->params, &out->error)) &&
        (!m->policy.compact_json || outputs_make_compact(&out->params, &out->error)) &&
        let_reason(m, d, out, &out->error) && check_grammar(m, &out->params, &out->error) &&
        prepare_prompts(m, d, out))
        params_settle(&out->params);
}
