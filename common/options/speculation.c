#include "common/options/speculation.h"

#include <jansson.h>
#include <string.h>

/* The defaults are 4 draft tokens and matches of 2 to 16 tokens. vLLM matches exactly 5 tokens
 * by default. In our measurements a longer match finds a better continuation and a shorter match
 * finds a continuation more often. Neither costs more (bench/results/speculation.md). */
enum { DEFAULT_TOKENS = 4, DEFAULT_LOOKUP_MAX = 16, DEFAULT_LOOKUP_MIN = 2 };

static const struct {
    const char *key;
    size_t offset;
    int64_t max;
} int_keys[] = {
    {"num_speculative_tokens", offsetof(struct speculation_options, n_tokens),
     SPECULATION_MAX_TOKENS},
    {"prompt_lookup_max", offsetof(struct speculation_options, lookup_max), SPECULATION_MAX_LOOKUP},
    {"prompt_lookup_min", offsetof(struct speculation_options, lookup_min), SPECULATION_MAX_LOOKUP},
    {"disable_by_batch_size", offsetof(struct speculation_options, disable_by_batch_size), 65536},
};
enum { N_INT_KEYS = sizeof int_keys / sizeof int_keys[0] };

static enum status unknown_key(const char *key, struct error *err)
{
    return error_set(
        err, STATUS_INVALID,
        "--speculative-config: unknown key \"%.40s\"; the known keys are method, model, "
        "num_speculative_tokens, prompt_lookup_max, prompt_lookup_min and disable_by_batch_size",
        key);
}

/* Reads one key of the JSON. A value that a flag has set is kept. */
static enum status read_key(struct speculation_options *o, const char *key, const json_t *value,
                            struct error *err)
{
    if (strcmp(key, "method") == 0 || strcmp(key, "model") == 0) {
        const char **out = key[1] == 'e' ? &o->method : &o->model;
        if (!json_is_string(value) && !json_is_null(value))
            return error_set(err, STATUS_INVALID, "--speculative-config: %s must be a string", key);
        if (!*out)
            *out = json_string_value(value);
        return STATUS_OK;
    }
    for (size_t i = 0; i < N_INT_KEYS; i++) {
        if (strcmp(key, int_keys[i].key) != 0)
            continue;
        int64_t *out = (int64_t *)(void *)((char *)o + int_keys[i].offset);
        if (json_is_null(value))
            return STATUS_OK;
        if (!json_is_integer(value) || json_integer_value(value) < 1 ||
            json_integer_value(value) > int_keys[i].max)
            return error_set(err, STATUS_INVALID,
                             "--speculative-config: %s must be a whole number from 1 to %lld", key,
                             (long long)int_keys[i].max);
        if (*out == 0)
            *out = json_integer_value(value);
        return STATUS_OK;
    }
    return unknown_key(key, err);
}

static enum status read_keys(struct speculation_options *o, json_t *json, struct error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return error_set(err, STATUS_INVALID,
                         "--speculative-config must be a JSON object, such as "
                         "{\"method\":\"ngram\",\"num_speculative_tokens\":4}");
    json_object_foreach(json, key, value) TRY(read_key(o, key, value, err));
    return STATUS_OK;
}

static bool means_ngram(const char *text)
{
    return text && (strcmp(text, "ngram") == 0 || strcmp(text, "[ngram]") == 0);
}

/* Chooses the method as vLLM does: a model without a method means a draft model, unless the
 * model is named ngram. */
static enum status decide_method(const struct speculation_options *o, struct speculation *out,
                                 struct error *err)
{
    const char *model = means_ngram(o->model) ? NULL : o->model;
    if (means_ngram(o->method) || (!o->method && !model))
        return STATUS_OK;
    if (o->method && strcmp(o->method, "draft_model") != 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the speculative method \"%.60s\" is not supported; choose ngram or draft_model",
            o->method);
    if (!model || !model[0])
        return error_set(err, STATUS_INVALID,
                         "the speculative method draft_model needs a model. Give it with "
                         "--spec-model or \"model\" in --speculative-config");
    if (strlen(model) >= sizeof out->model)
        return error_set(err, STATUS_INVALID,
                         "the name of the draft model has %zu bytes; at most %zu are allowed. Use "
                         "a shorter name",
                         strlen(model), sizeof out->model - 1);
    out->method = SPECULATION_DRAFT_MODEL;
    strcpy(out->model, model);
    return STATUS_OK;
}

static enum status decide_lookup(const struct speculation_options *o, struct speculation *out,
                                 struct error *err)
{
    out->lookup_max = (uint32_t)o->lookup_max;
    out->lookup_min = (uint32_t)o->lookup_min;
    if (out->lookup_max == 0)
        out->lookup_max =
            out->lookup_min > DEFAULT_LOOKUP_MAX ? out->lookup_min : DEFAULT_LOOKUP_MAX;
    if (out->lookup_min == 0)
        out->lookup_min =
            out->lookup_max < DEFAULT_LOOKUP_MIN ? out->lookup_max : DEFAULT_LOOKUP_MIN;
    if (out->lookup_min > out->lookup_max)
        return error_set(
            err, STATUS_INVALID,
            "speculation: prompt_lookup_min (%u) must not be greater than prompt_lookup_max (%u)",
            out->lookup_min, out->lookup_max);
    return STATUS_OK;
}

/* Computes the settings from the options `o`. A 0 in `o` means that neither a flag nor the JSON
 * has the value. */
static enum status decide(const struct speculation_options *o, struct speculation *out,
                          struct error *err)
{
    TRY(decide_method(o, out, err));
    out->n_tokens = o->n_tokens ? (uint32_t)o->n_tokens : DEFAULT_TOKENS;
    out->max_seqs = (uint32_t)o->disable_by_batch_size;
    return out->method == SPECULATION_NGRAM ? decide_lookup(o, out, err) : STATUS_OK;
}

enum status speculation_read(const struct speculation_options *given, struct speculation *out,
                             struct error *err)
{
    struct speculation_options o = *given;
    *out = (struct speculation){0};
    if (!o.config && !o.method && !o.model && o.n_tokens == 0)
        return STATUS_OK;
    json_error_t e;
    json_t *json = o.config ? json_loads(o.config, JSON_REJECT_DUPLICATES, &e) : NULL;
    if (o.config && !json)
        return error_set(err, STATUS_INVALID, "--speculative-config is not valid JSON: %s", e.text);
    enum status s = json ? read_keys(&o, json, err) : STATUS_OK;
    if (s == STATUS_OK)
        s = decide(&o, out, err);
    json_decref(json);
    return s;
}
