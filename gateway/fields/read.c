/* Reads a body's JSON into `params` by the table of fields, then checks the rules between
 * fields.
 * A dialect's `read` calls `params_init` while a request is prepared. Each row of the table
 * (fields_at) is looked up in the body. The row says type, range and target.
 * `params` takes the body also on failure, and all strings and JSON in `params` are borrowed
 * from the body. The first error ends the reading. Rows are read in the table's order, because
 * some rows depend on earlier rows. The functions are pure, and usable on any thread. */
#include "gateway/fields/read.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/random.h"
#include "common/json/text.h"
#include "gateway/fields/members.h"
#include "gateway/fields/table.h"
#include "gateway/tools/set.h"

enum { PARAMS_ARENA_LIMIT = 1 << 20 };

/* `KINDS_OF_CALLS` has the bits of the dialects in which a model may call tools. */
enum { KINDS_OF_CALLS = API_CHAT | API_MESSAGES | API_RESPONSES };

/* A double just above 0 may become 0 as a float, and 0 has another meaning. `SMALLEST_FACTOR` is
 * therefore the smallest value. */
#define SMALLEST_FACTOR 1e-6f

/* ---- the table ---- */

static bool is_known(const char *name, unsigned kind)
{
    const struct field *f;
    for (size_t i = 0; (f = fields_at(i)); i++)
        if (f->kinds & kind && strcmp(f->name, name) == 0)
            return true;
    return false;
}

static bool parse_number(const struct field *f, const json_t *v, double *out, struct api_error *e)
{
    bool is_float = f->type == FIELD_FLOAT;
    if (!json_is_number(v))
        return field_wrong_type(e, f->name, is_float ? "a number" : "an integer", v);
    double d = json_number_value(v);
    if (!isfinite(d) || (!is_float && d != floor(d)))
        return field_wrong_type(e, f->name, is_float ? "a finite number" : "an integer", v);
    if (d < f->min || d > f->max || (f->above_min && d <= f->min))
        return api_error_set(e, 400, f->name, "%s must be in %s%.10g, %.10g], got %.10g.", f->name,
                             f->above_min ? "(" : "[", f->min, f->max, d);
    *out = d;
    return true;
}

static bool parse_str(const struct field *f, const json_t *v, struct str *out, struct api_error *e)
{
    if (!json_is_string(v))
        return field_wrong_type(e, f->name, "a string", v);
    struct str s = params_json_str(v);
    if ((double)s.len > f->max)
        return api_error_set(e, 400, f->name, "%s may have at most %g bytes, got %zu.", f->name,
                             f->max, s.len);
    *out = s;
    return true;
}

/* Returns true when `v` equals one of the compact JSON texts, which are separated by |. */
static bool is_one_of(const json_t *v, const char *only)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    size_t n = text ? strlen(text) : 0;
    bool found = false;
    for (const char *at = only; text && *at && !found;) {
        size_t k = strcspn(at, "|");
        found = k == n && memcmp(at, text, n) == 0;
        at += k + (at[k] == '|');
    }
    free(text);
    return found;
}

static bool refuse_other(const struct field *f, struct api_error *e)
{
    struct strbuf choices;
    strbuf_init(&choices, 0);
    for (const char *at = f->only; *at; at++)
        strbuf_append_c(&choices, *at == '|' ? " or " : (char[]){*at, '\0'});
    api_error_set(e, 400, f->name, "%s must be %s on this server, or be left out: %s.", f->name,
                  strbuf_str(&choices).ptr, f->why);
    strbuf_fini(&choices);
    return false;
}

static bool parse_field(struct params *p, const struct field *f, json_t *v,
                        const struct params_policy *policy, struct api_error *e)
{
    void *at = (char *)p + f->offset;
    double d = 0;
    switch (f->type) {
    case FIELD_BOOL:
        return field_read_bool(v, f->name, at, e);
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
        if (f->want != JSON_NULL && (json_typeof(v) != f->want || json_text_is_number(v)))
            return field_wrong_type(e, f->name,
                                    f->want == JSON_ARRAY    ? "a list"
                                    : f->want == JSON_STRING ? "a string"
                                                             : "an object",
                                    v);
        *(json_t **)at = v;
        return true;
    case FIELD_CUSTOM:
        return f->parse(p, v, &(struct field_context){policy, f->name, e, &p->n_ignored});
    case FIELD_HARMLESS:
        return true;
    case FIELD_ONLY:
        return is_one_of(v, f->only) || refuse_other(f, e);
    case FIELD_REFUSE:
        return field_is_empty(v) || api_error_set(e, 400, f->name, "%s %s.", f->name, f->why);
    }
    return false;
}

/* Checks the body for keys without a row, because a client must learn that a field has no
 * effect. */
static bool check_unknown(struct params *p, enum unknown_fields policy, struct api_error *e)
{
    const char *key;
    json_t *value;
    if (policy == UNKNOWN_IGNORE)
        return true;
    json_object_foreach(p->body, key, value)
    {
        if (p->n_ignored >=
            FIELD_MOST_TOLD) /* the limit of log lines is reached, and each check scans all rows */
            return true;
        if (json_is_null(value) || is_known(key, p->kind))
            continue;
        if (policy == UNKNOWN_REFUSE)
            return api_error_set(e, 400, key, "There is no field `%.80s`: leave it out.", key);
        field_tell_ignored(&p->n_ignored, key);
    }
    return true;
}

/* ---- rules between fields ---- */

/* Checks log-probabilities before the fields are read. The rows have the bounds that hold for
 * all servers. This server's bound may be lower. */
static bool check_logprobs(const json_t *body, enum api_kind kind,
                           const struct params_policy *policy, struct api_error *e)
{
    const char *const names[] = {kind == API_COMPLETIONS ? "logprobs" : "top_logprobs",
                                 "prompt_logprobs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(body, names[i]);
        double n = json_number_value(v);
        if (json_is_number(v) && is_known(names[i], kind) && (n < 0 || n > policy->max_logprobs))
            return api_error_set(e, 400, names[i], "%s must be in [0, %u], got %.10g%s.", names[i],
                                 policy->max_logprobs, n,
                                 n == -1 ? ": this server does not return the whole vocabulary"
                                 : n > 0 ? ": the gateway's limit is --max-logprobs"
                                         : "");
    }
    return true;
}

/* Checks the fields that each kind of request requires. */
static bool check_present(const struct params *p, struct api_error *e)
{
    if (p->kind & (API_CHAT | API_MESSAGES | API_COUNT_TOKENS) && !p->messages)
        return api_error_set(e, 400, "messages", "messages is required.");
    if (p->kind == API_MESSAGES && !p->max_tokens)
        return api_error_set(e, 400, "max_tokens", "max_tokens is required.");
    if (p->kind == API_TOKENIZE && (p->prompt != NULL) == (p->messages != NULL))
        return api_error_set(e, 400, "prompt", "Exactly one of prompt and messages is required.");
    if (p->kind & (API_EMBEDDINGS | API_RESPONSES) && !p->prompt)
        return api_error_set(e, 400, "input", "input is required.");
    if (p->kind == API_DETOKENIZE && !p->prompt)
        return api_error_set(e, 400, "tokens", "tokens is required.");
    if (p->kind == API_COMPLETIONS && !p->prompt)
        return api_error_set(e, 400, "prompt", "prompt is required.");
    return true;
}

/* Refuses a request that requires a tool call but has no tools. */
static bool refuse_no_tools(const struct params *p, struct api_error *e)
{
    struct strbuf left;
    strbuf_init(&left, 0);
    tool_set_left_out(p, &left);
    const struct str types = strbuf_str(&left);
    if (types.len == 0)
        api_error_set(e, 400, "tool_choice",
                      "tool_choice asks for a tool call, but the request has no tools. Add a tool, "
                      "or leave tool_choice out.");
    else
        api_error_set(e, 400, "tool_choice",
                      "tool_choice asks for a tool call, but this server leaves out all tools of "
                      "the request (%.*s): a provider's server would run them, or this server does "
                      "not know their schema. Add a function, or leave tool_choice out.",
                      (int)(types.len < 128 ? types.len : 128), types.ptr);
    strbuf_fini(&left);
    return false;
}

static bool check_together(const struct params *p, const struct params_policy *policy,
                           struct api_error *e)
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
    if (p->kind == API_CHAT && p->logprobs > 0 && !p->want_logprobs)
        return api_error_set(e, 400, "top_logprobs",
                             "when using `top_logprobs`, `logprobs` must be set to true.");
    if (p->kind == API_RESPONSES && p->logprobs > 0 && !p->want_logprobs)
        return api_error_set(e, 400, "top_logprobs",
                             "top_logprobs needs \"message.output_text.logprobs\" in include.");
    if (p->prompt_logprobs >= 0 && p->stream)
        return api_error_set(e, 400, "prompt_logprobs",
                             "`prompt_logprobs` are not available when `stream=True`.");
    if (p->prompt_only && !p->echo)
        return api_error_set(e, 400, "max_tokens",
                             "max_tokens must be at least 1 without `echo`, got 0.");
    if (p->tools && p->tool_choice == TOOL_CHOICE_AUTO && !policy->auto_tools)
        return api_error_set(e, 400, "tool_choice",
                             "\"auto\" tool choice requires --enable-auto-tool-choice and "
                             "--tool-call-parser to be set: leave tools out, or set tool_choice to "
                             "\"none\".");
    if (!p->tools && p->tool_choice == TOOL_CHOICE_REQUIRED)
        return refuse_no_tools(p, e);
    if (p->continue_final_message && p->add_generation_prompt)
        return api_error_set(e, 400, "continue_final_message",
                             "Cannot set both `continue_final_message` and "
                             "`add_generation_prompt` to True.");
    return check_present(p, e);
}

/* Returns true when the last message has prefix: true, the form of continue_final_message in
 * Mistral's and DeepSeek's APIs. */
static bool is_prefix(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return json_is_true(json_object_get(last, "prefix"));
}

static void fill_sampling(struct params *p)
{
    struct sampling_params *s = &p->sampling;
    /* As in vLLM, a temperature below 1e-5 means greedy, and a temperature below 0.01 is raised
     * to 0.01 for numerical safety. */
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
    s->n_prompt_logprobs = (int32_t)p->prompt_logprobs;
    if (p->echo && p->logprobs > p->prompt_logprobs)
        s->n_prompt_logprobs = (int32_t)p->logprobs;
    s->n_logprobs = (int32_t)p->logprobs;
    p->n_generated = p->best_of ? p->best_of : p->n;
    if (p->n_generated > p->n && s->n_logprobs < 0)
        s->n_logprobs = 0; /* log-probabilities are needed to rank the choices */
    if (p->kind & (API_CHAT | API_RESPONSES))
        s->n_logprobs = !p->want_logprobs ? -1 : p->logprobs < 0 ? 0 : (int32_t)p->logprobs;
}

bool params_init(struct params *out, enum api_kind kind, json_t *owned_body,
                 const struct params_policy *policy, struct api_error *e)
{
    const struct field *f;
    const struct sampling_defaults own = SAMPLING_DEFAULTS_OPENAI;
    const struct sampling_defaults *d = policy->defaults ? policy->defaults : &own;
    *out = (struct params){
        .kind = kind,
        .body = owned_body,
        .n = 1,
        .seed = -1,
        .logprobs = -1,
        .prompt_logprobs = -1,
        .temperature = d->temperature,
        .top_p = d->top_p,
        .top_k = d->top_k,
        .min_p = d->min_p,
        .repetition_penalty = d->repetition_penalty,
        .skip_special_tokens = true,
        .add_special_tokens =
            kind == API_COMPLETIONS || kind == API_TOKENIZE || kind == API_EMBEDDINGS,
        .use_activation = true,
        .truncate_prompt_tokens = PARAMS_NO_TRUNCATION,
        .stream_interval = 1,
        .parallel_tool_calls = true,
        .include_reasoning = true,
        .any_role = policy->unknown != UNKNOWN_REFUSE,
    };
    arena_init(&out->arena, PARAMS_ARENA_LIMIT);
    const json_t *tools = json_object_get(out->body, "tools");
    bool calls = kind & KINDS_OF_CALLS && tools && !json_is_null(tools);
    out->tool_choice = calls ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
    if (!check_logprobs(out->body, kind, policy, e))
        return false;
    for (size_t i = 0; (f = fields_at(i)); i++) {
        json_t *v = f->kinds & kind ? json_object_get(out->body, f->name) : NULL;
        if (v && !json_is_null(v) && !parse_field(out, f, v, policy, e))
            return false;
    }
    if (kind & (API_CHAT | API_TOKENIZE) && is_prefix(out->messages))
        out->continue_final_message = true;
    const json_t *agp = json_object_get(out->body, "add_generation_prompt");
    if (kind != API_COMPLETIONS && (!agp || json_is_null(agp)))
        out->add_generation_prompt = !out->continue_final_message;
    const json_t *max_tokens = json_object_get(out->body, "max_tokens");
    if (kind == API_COMPLETIONS && !out->max_tokens && max_tokens && !json_is_null(max_tokens)) {
        out->prompt_only = true;
        /* 1 is the smallest max_tokens that the head accepts; the sampled token is dropped */
        out->max_tokens = 1;
    } else if (kind == API_COMPLETIONS && !out->max_tokens) {
        out->max_tokens = 16;
        out->max_tokens_is_default = true;
    }
    if (!check_unknown(out, policy->unknown, e) || !fields_check_members(out, policy, e) ||
        !check_together(out, policy, e))
        return false;
    if (!out->tools) /* the client sent no tools, or all of its tools were left out */
        out->tool_choice = TOOL_CHOICE_NONE;
    fill_sampling(out);
    return true;
}
