#include "gateway/params.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/random.h"

enum { PARAMS_ARENA_LIMIT = 1 << 20, MAX_REPETITION_PENALTY = 10000, MAX_TIMEOUT_S = 86400 };

/* A double above 0 may be 0 as a float, which would mean something else. */
#define SMALLEST_FACTOR 1e-6f

enum field_type {
    FIELD_BOOL,
    FIELD_INT,    /* int64_t; a real without a fraction is taken, as pydantic does */
    FIELD_U32,    /* the same, into uint32_t */
    FIELD_FLOAT,  /* double */
    FIELD_STR,    /* struct str of 0 .. max bytes */
    FIELD_JSON,   /* borrowed json_t of the kind `want`, looked into later */
    FIELD_CUSTOM, /* parse */
    FIELD_REFUSE, /* not supported: anything but null, false, empty is a 400 with `why` */
};

struct field {
    const char *name;
    enum field_type type;
    unsigned kinds; /* API_COMPLETIONS | API_CHAT */
    size_t offset;
    double min, max;
    bool above_min; /* min itself is not allowed */
    json_type want;
    bool (*parse)(struct params *p, const char *name, const json_t *v, uint32_t vocab,
                  struct api_error *e);
    const char *why;
};

struct str params_json_str(const json_t *string)
{
    return (struct str){json_string_value(string), json_string_length(string)};
}

static const char *json_type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

static bool wrong_type(struct api_error *e, const char *name, const char *want, const json_t *got)
{
    return api_error_set(e, 400, name, "%s must be %s, got %s.", name, want, json_type_name(got));
}

/* ---- fields with a form of their own ---- */

static bool parse_token_id(const json_t *v, const char *name, uint32_t vocab, uint32_t *out,
                           struct api_error *e)
{
    if (!json_is_integer(v))
        return wrong_type(e, name, "a list of token ids", v);
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
        return wrong_type(e, name, "a list of token ids", v);
    size_t n = json_array_size(v);
    if (n > PARAMS_MAX_STOP_IDS)
        return api_error_set(e, 400, name, "%s may hold at most %u ids, got %zu.", name,
                             PARAMS_MAX_STOP_IDS, n);
    uint32_t *ids = arena_try_array(&p->arena, n ? n : 1, sizeof *ids);
    if (!ids)
        return api_error_set(e, 400, name, "%s is too long.", name);
    for (size_t i = 0; i < n; i++)
        if (!parse_token_id(json_array_get(v, i), name, vocab, &ids[i], e))
            return false;
    *out = (struct u32_span){ids, (uint32_t)n};
    return true;
}

static bool parse_stop_token_ids(struct params *p, const char *name, const json_t *v,
                                 uint32_t vocab, struct api_error *e)
{
    return parse_id_list(p, name, v, vocab, &p->sampling.stop_ids, e);
}

static bool parse_allowed_token_ids(struct params *p, const char *name, const json_t *v,
                                    uint32_t vocab, struct api_error *e)
{
    if (!parse_id_list(p, name, v, vocab, &p->sampling.allowed_ids, e))
        return false;
    if (p->sampling.allowed_ids.n == 0)
        return api_error_set(e, 400, name, "%s must not be empty.", name);
    return true;
}

static bool add_stop(struct params *p, const char *name, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v))
        return wrong_type(e, name, "a string or a list of strings", v);
    struct str s = params_json_str(v);
    if (s.len == 0)
        return api_error_set(e, 400, name, "%s must not hold an empty string.", name);
    if (s.len > STOP_MAX_BYTES)
        return api_error_set(e, 400, name, "%s: a stop string may have at most %u bytes, got %zu.",
                             name, STOP_MAX_BYTES, s.len);
    p->stops[p->n_stops++] = s;
    return true;
}

static bool parse_stop(struct params *p, const char *name, const json_t *v, uint32_t vocab,
                       struct api_error *e)
{
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

static bool parse_logit_bias(struct params *p, const char *name, const json_t *v, uint32_t vocab,
                             struct api_error *e)
{
    if (!json_is_object(v))
        return wrong_type(e, name, "an object of token id: bias", v);
    size_t n = json_object_size(v);
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
        if (str_to_u64(str_from(key), &id) != STATUS_OK || id >= (vocab ? vocab : UINT32_MAX))
            return api_error_set(e, 400, name, "%s: key \"%.40s\" is not a token id (0 to %u).",
                                 name, key, vocab ? vocab - 1 : UINT32_MAX - 1);
        if (!json_is_number(value))
            return wrong_type(e, name, "an object of token id: number", value);
        double b = json_number_value(value);
        bias[p->sampling.n_logit_bias++] = (struct logit_bias){.token = (uint32_t)id,
                                                               .bias = (float)(b < -100  ? -100
                                                                               : b > 100 ? 100
                                                                                         : b)};
    }
    p->sampling.logit_bias = bias;
    return true;
}

static bool read_bool(const json_t *v, const char *name, bool *out, struct api_error *e)
{
    if (!json_is_boolean(v))
        return wrong_type(e, name, "a boolean", v);
    *out = json_is_true(v);
    return true;
}

static bool parse_stream_options(struct params *p, const char *name, const json_t *v,
                                 uint32_t vocab, struct api_error *e)
{
    if (!json_is_object(v))
        return wrong_type(e, name, "an object", v);
    if (!json_is_true(json_object_get(p->body, "stream")))
        return api_error_set(e, 400, name,
                             "Stream options can only be defined when `stream=True`.");
    const json_t *usage = json_object_get(v, "include_usage");
    const json_t *each = json_object_get(v, "continuous_usage_stats");
    if (usage && !json_is_null(usage) &&
        !read_bool(usage, "stream_options.include_usage", &p->include_usage, e))
        return false;
    if (each && !json_is_null(each) &&
        !read_bool(each, "stream_options.continuous_usage_stats", &p->continuous_usage_stats, e))
        return false;
    p->continuous_usage_stats = p->continuous_usage_stats && p->include_usage;
    return true;
}

static bool parse_response_format(struct params *p, const char *name, const json_t *v,
                                  uint32_t vocab, struct api_error *e)
{
    const json_t *type = json_object_get(v, "type");
    if (!json_is_object(v) || !json_is_string(type))
        return wrong_type(e, name, "an object with a type", v);
    if (strcmp(json_string_value(type), "text") != 0)
        return api_error_set(
            e, 400, name, "response_format of type \"%.40s\" is not supported: only \"text\" is.",
            json_string_value(type));
    return true;
}

static bool parse_tools(struct params *p, const char *name, const json_t *v, uint32_t vocab,
                        struct api_error *e)
{
    if (!json_is_array(v))
        return wrong_type(e, name, "a list", v);
    const json_t *choice = json_object_get(p->body, "tool_choice");
    if (json_is_string(choice) && strcmp(json_string_value(choice), "none") == 0)
        return true;
    return api_error_set(e, 400, name,
                         "tools are not supported by this server: leave them out, or set "
                         "tool_choice to \"none\".");
}

static bool parse_tool_choice(struct params *p, const char *name, const json_t *v, uint32_t vocab,
                              struct api_error *e)
{
    if (json_is_string(v) &&
        (strcmp(json_string_value(v), "none") == 0 || strcmp(json_string_value(v), "auto") == 0))
        return true;
    return api_error_set(e, 400, name, "tool_choice must be \"none\" or \"auto\" on this server.");
}

/* ---- the table ---- */

#define BOTH      (API_COMPLETIONS | API_CHAT)
#define AT(field) offsetof(struct params, field)
#define ROW_BOOL(field, k)                                                                         \
    {                                                                                              \
        .name = #field, .type = FIELD_BOOL, .kinds = k, .offset = AT(field)                        \
    }
#define ROW_FLOAT(field, lo, hi)                                                                   \
    {                                                                                              \
        .name = #field, .type = FIELD_FLOAT, .kinds = BOTH, .offset = AT(field), .min = lo,        \
        .max = hi                                                                                  \
    }
#define ROW_FLOAT_ABOVE(field, lo, hi)                                                             \
    {                                                                                              \
        .name = #field, .type = FIELD_FLOAT, .kinds = BOTH, .offset = AT(field), .min = lo,        \
        .max = hi, .above_min = true                                                               \
    }
#define ROW_INT(nm, field, k, lo, hi)                                                              \
    {                                                                                              \
        .name = nm, .type = FIELD_INT, .kinds = k, .offset = AT(field), .min = lo, .max = hi       \
    }
#define ROW_U32(nm, field, k, lo, hi)                                                              \
    {                                                                                              \
        .name = nm, .type = FIELD_U32, .kinds = k, .offset = AT(field), .min = lo, .max = hi       \
    }
#define ROW_STR(nm, field, k, hi)                                                                  \
    {                                                                                              \
        .name = nm, .type = FIELD_STR, .kinds = k, .offset = AT(field), .max = hi                  \
    }
#define ROW_JSON(nm, field, k, w)                                                                  \
    {                                                                                              \
        .name = nm, .type = FIELD_JSON, .kinds = k, .offset = AT(field), .want = w                 \
    }
#define ROW_CUSTOM(nm, k)                                                                          \
    {                                                                                              \
        .name = #nm, .type = FIELD_CUSTOM, .kinds = k, .parse = parse_##nm                         \
    }
#define ROW_REFUSE(nm, k, text)                                                                    \
    {                                                                                              \
        .name = nm, .type = FIELD_REFUSE, .kinds = k, .why = text                                  \
    }
#define LATER "is not supported by this server"

static const struct field fields[] = {
    ROW_STR("model", model, BOTH, 512),
    {.name = "prompt",
     .type = FIELD_JSON,
     .kinds = API_COMPLETIONS,
     .offset = AT(prompt),
     .want = JSON_NULL}, /* string or list: openai_completions.c looks into it */
    ROW_JSON("messages", messages, API_CHAT, JSON_ARRAY),
    ROW_JSON("chat_template_kwargs", template_kwargs, API_CHAT, JSON_OBJECT),
    /* max_completion_tokens is later, so that it wins over the name it replaces */
    ROW_U32("max_tokens", max_tokens, BOTH, 1, 1 << 30),
    ROW_U32("max_completion_tokens", max_tokens, API_CHAT, 1, 1 << 30),
    ROW_U32("n", n, BOTH, 1, PARAMS_MAX_CHOICES),
    ROW_U32("best_of", best_of, API_COMPLETIONS, 1, PARAMS_MAX_CHOICES),
    ROW_FLOAT(temperature, 0, 2),
    ROW_FLOAT_ABOVE(top_p, 0, 1),
    ROW_INT("top_k", top_k, BOTH, -1, INT_MAX),
    ROW_FLOAT(min_p, 0, 1),
    ROW_FLOAT(presence_penalty, -2, 2),
    ROW_FLOAT(frequency_penalty, -2, 2),
    ROW_FLOAT_ABOVE(repetition_penalty, 0, MAX_REPETITION_PENALTY),
    ROW_INT("seed", seed, BOTH, -0x1p63, 0x1p63),
    ROW_CUSTOM(stop, BOTH),
    ROW_CUSTOM(stop_token_ids, BOTH),
    ROW_CUSTOM(allowed_token_ids, BOTH),
    ROW_CUSTOM(logit_bias, BOTH),
    ROW_INT("min_tokens", min_tokens, BOTH, 0, 1 << 30),
    ROW_BOOL(ignore_eos, BOTH),
    ROW_INT("logprobs", logprobs, API_COMPLETIONS, 0, PARAMS_MAX_LOGPROBS),
    {.name = "logprobs", .type = FIELD_BOOL, .kinds = API_CHAT, .offset = AT(want_logprobs)},
    ROW_INT("top_logprobs", logprobs, API_CHAT, 0, PARAMS_MAX_LOGPROBS),
    ROW_BOOL(stream, BOTH),
    ROW_CUSTOM(stream_options, BOTH),
    ROW_BOOL(echo, API_COMPLETIONS),
    ROW_BOOL(add_special_tokens, BOTH),
    ROW_BOOL(skip_special_tokens, BOTH),
    ROW_BOOL(include_stop_str_in_output, BOTH),
    ROW_BOOL(add_generation_prompt, API_CHAT),
    ROW_BOOL(continue_final_message, API_CHAT),
    ROW_BOOL(return_token_ids, BOTH),
    ROW_INT("priority", priority, BOTH, INT_MIN, INT_MAX),
    {.name = "timeout",
     .type = FIELD_FLOAT,
     .kinds = BOTH,
     .offset = AT(timeout_s),
     .max = MAX_TIMEOUT_S,
     .above_min = true},
    ROW_STR("cache_salt", cache_salt, BOTH, 128),
    ROW_CUSTOM(response_format, BOTH),
    ROW_CUSTOM(tools, API_CHAT),
    ROW_CUSTOM(tool_choice, API_CHAT),
    ROW_REFUSE("suffix", API_COMPLETIONS, LATER),
    ROW_REFUSE("prompt_embeds", API_COMPLETIONS, LATER),
    ROW_REFUSE("prompt_logprobs", BOTH, LATER),
    ROW_REFUSE("logprob_token_ids", BOTH, LATER),
    ROW_REFUSE("bad_words", BOTH, LATER),
    ROW_REFUSE("truncate_prompt_tokens", BOTH, LATER),
    ROW_REFUSE("use_beam_search", BOTH, LATER),
    ROW_REFUSE("structured_outputs", BOTH, LATER),
    ROW_REFUSE("guided_json", BOTH, LATER),
    ROW_REFUSE("guided_regex", BOTH, LATER),
    ROW_REFUSE("guided_choice", BOTH, LATER),
    ROW_REFUSE("guided_grammar", BOTH, LATER),
    ROW_REFUSE("thinking_token_budget", BOTH, LATER),
    ROW_REFUSE("chat_template", API_CHAT, "is not taken from requests by this server"),
    ROW_REFUSE("functions", API_CHAT, LATER ": use tools with tool_choice \"none\""),
    ROW_REFUSE("audio", API_CHAT, LATER),
};

static bool parse_number(const struct field *f, const json_t *v, double *out, struct api_error *e)
{
    bool is_float = f->type == FIELD_FLOAT;
    if (!json_is_number(v))
        return wrong_type(e, f->name, is_float ? "a number" : "an integer", v);
    double d = json_number_value(v);
    if (!isfinite(d) || (!is_float && d != floor(d)))
        return wrong_type(e, f->name, is_float ? "a finite number" : "an integer", v);
    if (d < f->min || d > f->max || (f->above_min && d <= f->min))
        return api_error_set(e, 400, f->name, "%s must be in %s%.10g, %.10g], got %.10g.", f->name,
                             f->above_min ? "(" : "[", f->min, f->max, d);
    *out = d;
    return true;
}

static bool parse_str(const struct field *f, const json_t *v, struct str *out, struct api_error *e)
{
    if (!json_is_string(v))
        return wrong_type(e, f->name, "a string", v);
    struct str s = params_json_str(v);
    if ((double)s.len > f->max)
        return api_error_set(e, 400, f->name, "%s may have at most %g bytes, got %zu.", f->name,
                             f->max, s.len);
    *out = s;
    return true;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static bool parse_field(struct params *p, const struct field *f, json_t *v, uint32_t vocab,
                        struct api_error *e)
{
    void *at = (char *)p + f->offset;
    double d = 0;
    switch (f->type) {
    case FIELD_BOOL:
        return read_bool(v, f->name, at, e);
    case FIELD_INT:
        if (!parse_number(f, v, &d, e))
            return false;
        *(int64_t *)at = json_is_integer(v) ? json_integer_value(v)
                         : d >= 0x1p63      ? INT64_MAX
                                            : (int64_t)d;
        return true;
    case FIELD_U32:
        if (!parse_number(f, v, &d, e))
            return false;
        *(uint32_t *)at = (uint32_t)d;
        return true;
    case FIELD_FLOAT:
        return parse_number(f, v, at, e);
    case FIELD_STR:
        return parse_str(f, v, at, e);
    case FIELD_JSON:
        if (f->want != JSON_NULL && json_typeof(v) != f->want)
            return wrong_type(e, f->name, f->want == JSON_ARRAY ? "a list" : "an object", v);
        *(json_t **)at = v;
        return true;
    case FIELD_CUSTOM:
        return f->parse(p, f->name, v, vocab, e);
    case FIELD_REFUSE:
        return is_empty(v) || api_error_set(e, 400, f->name, "%s %s.", f->name, f->why);
    }
    return false;
}

static void log_unknown_fields(const json_t *body)
{
    const char *key;
    json_t *value;
    if (!log_enabled(LOG_DEBUG))
        return;
    json_object_foreach((json_t *)body, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof fields / sizeof *fields && !known; i++)
            known = strcmp(fields[i].name, key) == 0;
        if (!known)
            log_debug("field_ignored", "name=%s", log_quote(key));
    }
}

/* ---- rules between fields ---- */

static bool check_together(struct params *p, struct api_error *e)
{
    if (p->best_of && p->best_of < p->n)
        return api_error_set(e, 400, "best_of",
                             "best_of must be greater than or equal to n, got n=%u and best_of=%u.",
                             p->n, p->best_of);
    if (p->best_of > p->n && p->stream)
        return api_error_set(e, 400, "best_of",
                             "Cannot stream results with best_of greater than n.");
    if (p->max_tokens && p->min_tokens > (int64_t)p->max_tokens)
        return api_error_set(e, 400, "min_tokens",
                             "min_tokens must be less than or equal to max_tokens=%u, got %lld.",
                             p->max_tokens, (long long)p->min_tokens);
    if (p->kind == API_CHAT && p->logprobs >= 0 && !p->want_logprobs)
        return api_error_set(e, 400, "top_logprobs",
                             "when using `top_logprobs`, `logprobs` must be set to true.");
    if (p->echo && p->logprobs >= 0)
        return api_error_set(e, 400, "logprobs",
                             "echo with logprobs is not supported by this server.");
    if (p->continue_final_message && p->add_generation_prompt)
        return api_error_set(e, 400, "continue_final_message",
                             "Cannot set both `continue_final_message` and "
                             "`add_generation_prompt` to True.");
    if (p->kind == API_CHAT && !p->messages)
        return api_error_set(e, 400, "messages", "messages is required.");
    if (p->kind == API_COMPLETIONS && !p->prompt)
        return api_error_set(e, 400, "prompt", "prompt is required.");
    return true;
}

static void fill_sampling(struct params *p)
{
    struct sampling_params *s = &p->sampling;
    /* vLLM: below 1e-5 is greedy, and what is below 0.01 is raised to it for numerical safety */
    double t = p->temperature < 1e-5 ? 0 : p->temperature < 0.01 ? 0.01 : p->temperature;
    s->temperature = (float)t;
    s->top_p = t > 0 ? fmaxf((float)p->top_p, SMALLEST_FACTOR) : 1;
    s->top_k = t > 0 && p->top_k > 0 ? (int32_t)p->top_k : 0;
    s->min_p = t > 0 ? (float)p->min_p : 0;
    s->presence_penalty = (float)p->presence_penalty;
    s->frequency_penalty = (float)p->frequency_penalty;
    s->repetition_penalty = fmaxf((float)p->repetition_penalty, SMALLEST_FACTOR);
    s->seed = p->seed == -1 ? random_secure_u64() : (uint64_t)p->seed;
    s->min_tokens = (uint32_t)p->min_tokens;
    s->max_tokens = p->max_tokens;
    s->n_prompt_logprobs = -1;
    s->n_logprobs = (int32_t)p->logprobs;
    p->n_generated = p->best_of ? p->best_of : p->n;
    if (p->n_generated > p->n && s->n_logprobs < 0)
        s->n_logprobs = 0; /* of the chosen tokens: what they are ranked by */
    if (p->kind == API_CHAT)
        s->n_logprobs = !p->want_logprobs ? -1 : p->logprobs < 0 ? 0 : (int32_t)p->logprobs;
}

bool params_init(struct params *out, enum api_kind kind, json_t *owned_body, uint32_t vocab_size,
                 struct api_error *e)
{
    *out = (struct params){
        .kind = kind,
        .body = owned_body,
        .n = 1,
        .seed = -1,
        .logprobs = -1,
        .temperature = 1,
        .top_p = 1,
        .repetition_penalty = 1,
        .skip_special_tokens = true,
        .add_special_tokens = kind == API_COMPLETIONS,
    };
    arena_init(&out->arena, PARAMS_ARENA_LIMIT);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *f = &fields[i];
        json_t *v = f->kinds & kind ? json_object_get(out->body, f->name) : NULL;
        if (v && !json_is_null(v) && !parse_field(out, f, v, vocab_size, e))
            return false;
    }
    const json_t *agp = json_object_get(out->body, "add_generation_prompt");
    if (kind == API_CHAT && (!agp || json_is_null(agp)))
        out->add_generation_prompt = !out->continue_final_message;
    if (kind == API_COMPLETIONS && !out->max_tokens) {
        out->max_tokens = 16;
        out->max_tokens_is_default = true;
    }
    log_unknown_fields(out->body);
    if (!check_together(out, e))
        return false;
    fill_sampling(out);
    return true;
}

void params_fini(struct params *p)
{
    json_decref(p->body);
    arena_fini(&p->arena);
    *p = (struct params){0};
}

/* ---- the text ---- */

/* jansson's tree takes some 48 bytes a value, so a body of "1,1,1,…" would grow 24-fold: count
 * before building. Strings are skipped; what is not JSON is jansson's to report. */
static bool scan_size(struct str body, struct api_error *e)
{
    uint32_t depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < body.len; i++) {
        char c = body.ptr[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            values++;
            if (++depth > PARAMS_MAX_DEPTH)
                return api_error_set(e, 400, NULL, "The body is nested deeper than %u levels.",
                                     PARAMS_MAX_DEPTH);
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',') {
            values++;
        }
        if (values > PARAMS_MAX_VALUES)
            return api_error_set(e, 413, NULL, "The body holds more than %u values.",
                                 PARAMS_MAX_VALUES);
    }
    return true;
}

json_t *params_parse_json(struct str body, struct api_error *e)
{
    if (!scan_size(body, e))
        return NULL;
    size_t valid = str_utf8_valid(body);
    if (valid != body.len) {
        api_error_set(e, 400, NULL, "The body is not valid UTF-8 at byte %zu.", valid);
        return NULL;
    }
    json_error_t je;
    json_t *j = json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!j) {
        api_error_set(e, 400, NULL, "The body is not valid JSON: %s (line %d, column %d).", je.text,
                      je.line, je.column);
        return NULL;
    }
    if (!json_is_object(j)) {
        json_decref(j);
        api_error_set(e, 400, NULL, "The body must be a JSON object.");
        return NULL;
    }
    return j;
}
