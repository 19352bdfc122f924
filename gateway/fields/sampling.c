/* Defines the fields about sampling, and about the end of a text.
 * read.c reads a body by these rows. A row's own parser writes checked values into `params`.
 * prepare.c turns bad_words into ids.
 * The order of rows matters: a newer name of a field follows the older name, so the newer name
 * overrides. Arrays are on the arena of `params`, and all other values are borrowed from the
 * body. The functions are pure, and usable on any thread. */
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/rows.h"

enum { MAX_REPETITION_PENALTY = 10000 };

static bool parse_token_id(const json_t *v, const char *name, uint32_t vocab, uint32_t *out,
                           struct api_error *e)
{
    if (!json_is_integer(v))
        return field_wrong_type(e, name, "a list of token ids", v);
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= UINT32_MAX || (vocab && id >= vocab))
        return api_error_set(e, 400, name, "%s: token id %lld is out of vocabulary (0 to %u).",
                             name, (long long)id, vocab ? vocab - 1 : UINT32_MAX - 1);
    *out = (uint32_t)id;
    return true;
}

static bool parse_id_list(struct params *p, const char *name, const json_t *v, uint32_t vocab,
                          struct u32_span *out, struct api_error *e)
{
    if (!json_is_array(v))
        return field_wrong_type(e, name, "a list of token ids", v);
    size_t n = json_array_size(v);
    if (n > PARAMS_MAX_STOP_IDS)
        return api_error_set(e, 400, name, "%s may hold at most %u ids, got %zu.", name,
                             PARAMS_MAX_STOP_IDS, n);
    uint32_t *ids = arena_try_array(&p->arena, n ? n : 1, sizeof *ids);
    if (!ids)
        return api_error_set(e, 400, name, "%s is too long: the server has no memory for %zu ids.",
                             name, n);
    for (size_t i = 0; i < n; i++)
        if (!parse_token_id(json_array_get(v, i), name, vocab, &ids[i], e))
            return false;
    *out = (struct u32_span){ids, (uint32_t)n};
    return true;
}

static bool parse_stop_token_ids(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *name = c->name;
    struct api_error *e = c->e;
    return parse_id_list(p, name, v, c->policy->vocab_size, &p->sampling.stop_ids, e);
}

static bool parse_allowed_token_ids(struct params *p, const json_t *v,
                                    const struct field_context *c)
{
    const char *name = c->name;
    struct api_error *e = c->e;
    if (!parse_id_list(p, name, v, c->policy->vocab_size, &p->sampling.allowed_ids, e))
        return false;
    if (p->sampling.allowed_ids.n == 0)
        return api_error_set(e, 400, name, "%s must not be empty.", name);
    return true;
}

static bool add_stop(struct params *p, const char *name, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v))
        return field_wrong_type(e, name, "a string or a list of strings", v);
    struct str s = params_json_str(v);
    if (s.len == 0)
        return api_error_set(e, 400, name, "%s must not contain an empty string.", name);
    if (s.len > STOP_MAX_BYTES)
        return api_error_set(e, 400, name, "%s: a stop string may have at most %u bytes, got %zu.",
                             name, STOP_MAX_BYTES, s.len);
    p->stops[p->n_stops++] = s;
    return true;
}

static bool parse_stop(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *name = c->name;
    struct api_error *e = c->e;
    if (!json_is_array(v))
        return add_stop(p, name, v, e);
    if (json_array_size(v) > STOP_MAX_STRINGS)
        return api_error_set(e, 400, name, "%s may hold at most %u strings, got %zu.", name,
                             STOP_MAX_STRINGS, json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_stop(p, name, json_array_get(v, i), e))
            return false;
    return true;
}

static bool is_token_id(const char *key, uint32_t vocab, uint64_t *id)
{
    return str_to_u64(str_from(key), id) == STATUS_OK && *id < (vocab ? vocab : UINT32_MAX);
}

/* Refuses keys outside of the vocabulary and lists all of them, as vLLM does. The error thus
 * shows the cause to a client with another tokenizer. */
static bool refuse_bias_keys(const json_t *v, const char *name, uint32_t vocab, struct api_error *e)
{
    char list[200];
    size_t at = 0, n = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        uint64_t id;
        if (is_token_id(key, vocab, &id))
            continue;
        n++;
        if (at + 48 < sizeof list) /* 48 bytes hold the longest entry */
            at += (size_t)snprintf(list + at, sizeof list - at, "%s\"%.40s\"", at ? ", " : "", key);
        else if (n > 0 && list[at - 1] != '.')
            at += (size_t)snprintf(list + at, sizeof list - at, ", ...");
    }
    return api_error_set(
        e, 400, name,
        "%s: %zu keys are not token ids of the vocabulary (0 to %u, its size is %u): %s.", name, n,
        vocab ? vocab - 1 : UINT32_MAX - 1, vocab, list);
}

static bool parse_logit_bias(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *name = c->name;
    struct api_error *e = c->e;
    if (!json_text_is_object(v))
        return field_wrong_type(e, name, "an object that maps token ids to biases", v);
    size_t n = json_object_size(v);
    uint32_t vocab = c->policy->vocab_size;
    struct logit_bias *bias =
        n <= PARAMS_MAX_LOGIT_BIAS ? arena_try_array(&p->arena, n + 1, sizeof *bias) : NULL;
    if (!bias)
        return api_error_set(e, 400, name, "%s may hold at most %u entries, got %zu.", name,
                             PARAMS_MAX_LOGIT_BIAS, n);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        uint64_t id;
        if (!is_token_id(key, vocab, &id))
            return refuse_bias_keys(v, name, vocab, e);
        if (!json_is_number(value))
            return field_wrong_type(e, name, "an object that maps token ids to numbers", value);
        double b = json_number_value(value);
        bias[p->sampling.n_logit_bias++] = (struct logit_bias){.token = (uint32_t)id,
                                                               .bias = (float)(b < -100  ? -100
                                                                               : b > 100 ? 100
                                                                                         : b)};
    }
    p->sampling.logit_bias = bias;
    return true;
}

static bool parse_bad_words(struct params *p, const json_t *v, const struct field_context *c)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return field_wrong_type(c->e, c->name, "a list of strings", v);
    if (n > PARAMS_MAX_BAD_WORDS)
        return api_error_set(c->e, 400, c->name, "%s may hold at most %u strings, got %zu.",
                             c->name, PARAMS_MAX_BAD_WORDS, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_array_get(v, i);
        if (!json_is_string(word))
            return field_wrong_type(c->e, c->name, "a list of strings", word);
        if (json_string_length(word) == 0 ||
            strlen(json_string_value(word)) != json_string_length(word) ||
            json_string_length(word) > STOP_MAX_BYTES)
            return api_error_set(c->e, 400, c->name,
                                 "%s: each string must have 1 to %u bytes, and no NUL byte.",
                                 c->name, STOP_MAX_BYTES);
    }
    p->bad_words = (json_t *)v;
    return true;
}

static const struct field rows[] = {
    /* a value of 0 is allowed only with echo */
    ROW_U32("max_tokens", max_tokens, TEXT, 0, 1 << 30),
    ROW_U32("max_tokens", max_tokens, CHAT | MESSAGES, 1, 1 << 30),
    /* this row follows max_tokens, so the newer name overrides the older one */
    ROW_U32("max_completion_tokens", max_tokens, CHAT, 1, 1 << 30),
    ROW_U32("max_output_tokens", max_tokens, RESPONSES, 1, 1 << 30),
    ROW_U32("n", n, BOTH, 1, PARAMS_MAX_CHOICES),
    ROW_U32("best_of", best_of, TEXT, 1, PARAMS_MAX_CHOICES),
    ROW_FLOAT(temperature, GENERATES | MESSAGES, 0, 2),
    ROW_FLOAT_ABOVE(top_p, GENERATES | MESSAGES, 0, 1),
    ROW_INT("top_k", top_k, GENERATES | MESSAGES, -1, INT_MAX),
    ROW_FLOAT(min_p, GENERATES, 0, 1),
    ROW_FLOAT(presence_penalty, GENERATES, -2, 2),
    ROW_FLOAT(frequency_penalty, GENERATES, -2, 2),
    ROW_FLOAT_ABOVE(repetition_penalty, GENERATES, 0, MAX_REPETITION_PENALTY),
    ROW_INT("seed", seed, GENERATES, -0x1p63, 0x1p63),
    ROW_CUSTOM(stop, GENERATES, "a string, or up to 16"),
    {ROW("stop_sequences", FIELD_CUSTOM, MESSAGES), .parse = parse_stop, .why = "up to 16"},
    ROW_CUSTOM(stop_token_ids, GENERATES, "up to 1024 ids"),
    ROW_CUSTOM(allowed_token_ids, GENERATES, "up to 1024 ids"),
    ROW_CUSTOM(logit_bias, GENERATES, "token id: bias, clamped to ±100; up to 4096"),
    ROW_CUSTOM(bad_words, GENERATES, "up to 128 strings"),
    ROW_INT("min_tokens", min_tokens, GENERATES, 0, 1 << 30),
    ROW_BOOL(ignore_eos, GENERATES),
};

FIELD_TABLE(sampling);
