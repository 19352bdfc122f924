/* Translates DJL Serving's bodies into OpenAI's fields.
 * The dialects in djl_dialects.c call `djl_read` while a request is prepared. `inputs` and
 * `parameters` become members of a new body in `translation.to`, which OpenAI's readers check by
 * the table of fields. Chat bodies keep OpenAI's fields.
 * Unknown parameters are dropped with a warning. The new body shares values with the client's by
 * reference counts. `params` owns it at the end. The functions are pure and may run on any
 * thread. */
#include "gateway/sagemaker/djl.h"

#include <string.h>

#include "common/base/log.h"
#include "common/json/text.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/openai_completions.h"
#include "gateway/prepare/dialect.h"

enum { MAX_DROPPED_BYTES = 200 };
#define BATCH (DJL_ROLLING | DJL_TGI) /* `BATCH`: both forms of rolling_batch=vllm */
#define EVERY (BATCH | DJL_ASYNC | DJL_STATIC)
enum djl_format { FORMAT_JSON, FORMAT_LINES, FORMAT_SSE };

struct translation {
    enum djl_form form;
    const struct djl_answers *answers;
    json_t *to; /* new body with OpenAI's fields */
    bool greedy, sampled;
    struct djl_params djl;
    const char *format;    /* name of the output format; NULL = not given */
    struct strbuf dropped; /* names of the parameters that were dropped */
    struct api_error *e;
};

static void drop(struct translation *t, const char *key)
{
    if (strbuf_str(&t->dropped).len < MAX_DROPPED_BYTES)
        strbuf_printf(&t->dropped, "%s%.60s", strbuf_str(&t->dropped).len > 0 ? " " : "", key);
}

static bool wrong_type(struct translation *t, const char *key, const char *want)
{
    return api_error_set(t->e, 400, key, "%s must be %s.", key, want);
}

static bool read_bool(struct translation *t, const char *key, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return wrong_type(t, key, "a boolean");
    *out = json_is_true(v);
    return true;
}

/* ---- parameters ---- */

static bool take_do_sample(struct translation *t, const char *key, json_t *v)
{
    bool on = false;
    if (!read_bool(t, key, v, &on))
        return false;
    t->sampled = on;
    t->greedy = !on;
    return true;
}

/* Reads top_k. All values up to 0 turn top_k off, which is -1 in OpenAI's fields. */
static bool take_top_k(struct translation *t, const char *key, json_t *v)
{
    bool off = json_is_number(v) && json_number_value(v) <= 0;
    json_object_set_new(t->to, "top_k", off ? json_integer(-1) : json_incref(v));
    return true;
}

static bool take_seed(struct translation *t, const char *key, json_t *v)
{
    int64_t seed;
    if (!json_is_string(v)) {
        json_object_set(t->to, "seed", v);
        return true;
    }
    if (str_to_i64(params_json_str(v), &seed) != STATUS_OK)
        return wrong_type(t, key, "an integer");
    json_object_set_new(t->to, "seed", json_integer(seed));
    return true;
}

/* Reads stop and stop_sequences, which are added together. */
static bool take_stop(struct translation *t, const char *key, json_t *v)
{
    json_t *all = json_object_get(t->to, "stop");
    if (!all) {
        all = json_array();
        json_object_set_new(t->to, "stop", all);
    }
    if (!json_is_string(v) && !json_is_array(v))
        return wrong_type(t, key, "a list of strings");
    if (json_is_string(v))
        json_array_append(all, v);
    else
        json_array_extend(all, v);
    return true;
}

static bool take_details(struct translation *t, const char *key, json_t *v)
{
    return read_bool(t, key, v, &t->djl.details);
}

static bool take_input_details(struct translation *t, const char *key, json_t *v)
{
    return read_bool(t, key, v, &t->djl.input_details);
}

static bool take_return_full_text(struct translation *t, const char *key, json_t *v)
{
    return read_bool(t, key, v, &t->djl.return_full_text);
}

static bool take_output_formatter(struct translation *t, const char *key, json_t *v)
{
    if (!json_is_string(v))
        return wrong_type(t, key, "a string");
    t->format = json_string_value(v);
    return true;
}

/* `parameter` is a row of DJL's parameters. A row without `take` becomes OpenAI's field `to`. A
 * parameter without a row is dropped with a warning. */
static const struct parameter {
    const char *name, *to;
    unsigned forms;
    bool (*take)(struct translation *t, const char *key, json_t *v);
} parameters[] = {
    {"max_new_tokens", "max_tokens", EVERY, NULL},
    {"do_sample", NULL, EVERY, take_do_sample},
    {"temperature", "temperature", EVERY, NULL},
    {"top_k", NULL, EVERY, take_top_k},
    {"top_p", "top_p", EVERY, NULL},
    {"min_p", "min_p", EVERY, NULL},
    {"repetition_penalty", "repetition_penalty", EVERY, NULL},
    {"presence_penalty", "presence_penalty", EVERY, NULL},
    {"frequency_penalty", "frequency_penalty", EVERY, NULL},
    {"seed", NULL, EVERY, take_seed},
    {"stop_sequences", NULL, EVERY, take_stop},
    {"stop", NULL, EVERY, take_stop},
    {"stop_token_ids", "stop_token_ids", EVERY, NULL},
    {"include_stop_str_in_output", "include_stop_str_in_output", EVERY, NULL},
    {"ignore_eos_token", "ignore_eos", EVERY, NULL},
    {"ignore_eos", "ignore_eos", EVERY, NULL},
    {"min_tokens", "min_tokens", EVERY, NULL},
    {"logit_bias", "logit_bias", EVERY, NULL},
    {"bad_words", "bad_words", EVERY, NULL},
    {"skip_special_tokens", "skip_special_tokens", EVERY, NULL},
    {"truncate", "truncate_prompt_tokens", DJL_ASYNC, NULL},
    {"top_n_tokens", "logprobs", BATCH, NULL},
    {"n", "n", BATCH, NULL},
    {"best_of", "best_of", BATCH, NULL},
    {"return_full_text", NULL, EVERY, take_return_full_text},
    {"details", NULL, EVERY, take_details},
    {"decoder_input_details", NULL, EVERY, take_input_details},
    {"output_formatter", NULL, BATCH, take_output_formatter},
};

static const struct parameter *find_parameter(enum djl_form form, const char *name)
{
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (parameters[i].forms & form && strcmp(parameters[i].name, name) == 0)
            return &parameters[i];
    return NULL;
}

static bool take_parameters(struct translation *t, json_t *given)
{
    const char *key;
    json_t *v;
    if (given && !json_is_null(given) && !json_text_is_object(given))
        return wrong_type(t, "parameters", "an object");
    json_object_foreach(given, key, v)
    {
        const struct parameter *p = find_parameter(t->form, key);
        if (json_is_null(v))
            continue;
        if (!p)
            drop(t, key);
        else if (!p->take)
            json_object_set(t->to, p->to, v);
        else if (!p->take(t, key, v))
            return false;
    }
    return true;
}

/* Sets DJL's defaults. Sampling is greedy unless there is a temperature or do_sample (not for
 * DJL_ASYNC). Answers have the chosen tokens' log-probabilities. An answer in one piece also has
 * the prompt's, when the request asks for them. best_of alone means n. */
static void fill_defaults(struct translation *t)
{
    json_t *to = t->to, *best_of = json_object_get(to, "best_of");
    bool chance = t->form == DJL_ASYNC || t->sampled || json_object_get(to, "temperature");
    if (t->greedy || !chance)
        json_object_set_new(to, "temperature", json_integer(0));
    if (!json_object_get(to, "logprobs"))
        json_object_set_new(to, "logprobs", json_integer(0));
    if (t->djl.input_details && t->djl.details && json_is_false(json_object_get(to, "stream")))
        json_object_set_new(to, "prompt_logprobs", json_integer(0));
    if (best_of && !json_object_get(to, "n")) {
        json_object_set(to, "n", best_of);
        json_object_del(to, "best_of");
    }
}

/* ---- members next to the parameters ---- */

/* Reads the adapter: a name, or a list of one name. "" is the model itself. */
static bool take_adapter(struct translation *t, json_t *v)
{
    if (json_is_array(v) && json_array_size(v) == 1)
        v = json_array_get(v, 0);
    if (!v || json_is_null(v))
        return true;
    if (!json_is_string(v))
        return wrong_type(t, "adapters", "a string, or a list of one string");
    if (json_string_length(v) > 0)
        json_object_set(t->to, "model", v);
    return true;
}

/* Finds the output format. An unknown or absent name gives the form's default. */
static enum djl_format find_format(struct translation *t, bool stream)
{
    if (t->format && strncmp(t->format, "jsonlines", 9) == 0)
        return FORMAT_LINES;
    if (t->format && strncmp(t->format, "json", 4) == 0)
        return FORMAT_JSON;
    if (t->format && strncmp(t->format, "sse", 3) == 0)
        return FORMAT_SSE;
    if (t->format)
        log_warn("formatter_ignored", "name=%s", log_quote(t->format));
    if (!stream)
        return FORMAT_JSON;
    return t->form == DJL_TGI ? FORMAT_SSE : FORMAT_LINES;
}

static bool read_format(struct translation *t, const json_t *body, enum djl_format *out)
{
    const json_t *stream = json_object_get(body, "stream");
    bool on = false;
    if (stream && !json_is_null(stream) && !read_bool(t, "stream", stream, &on))
        return false;
    *out = find_format(t, on);
    json_object_set_new(t->to, "stream", json_boolean(*out != FORMAT_JSON));
    return true;
}

static void drop_unknown(struct translation *t, const json_t *body)
{
    static const char *const known[] = {"inputs", "parameters", "stream", "adapters",
                                        "cached_prompt"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)body, key, v)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found)
            drop(t, key);
    }
}

static bool is_text(const json_t *v)
{
    return json_is_string(v) && json_string_length(v) > 0;
}

/* Returns true for a list of texts. A static batch may have several texts. OpenAI's reader
 * limits their number. */
static bool is_batch(const json_t *v)
{
    size_t n = json_array_size(v);
    for (size_t i = 0; i < n; i++)
        if (!is_text(json_array_get(v, i)))
            return false;
    return n > 0;
}

static bool take_inputs(struct translation *t, const json_t *body, enum djl_format *format)
{
    json_t *inputs = json_object_get(body, "inputs");
    if (t->form == DJL_STATIC && !is_text(inputs) && !is_batch(inputs))
        return wrong_type(t, "inputs", "a string or a list of strings, and not empty");
    if (t->form != DJL_STATIC && !is_text(inputs))
        return wrong_type(t, "inputs", "a string that is not empty");
    json_object_set(t->to, "prompt", inputs);
    drop_unknown(t, body);
    if (!take_adapter(t, json_object_get(body, "adapters")) ||
        !take_parameters(t, json_object_get(body, "parameters")) || !read_format(t, body, format))
        return false;
    fill_defaults(t);
    return true;
}

static struct prepare_model with_warnings(const struct prepare_model *m)
{
    struct prepare_model own = *m;
    own.policy.unknown = UNKNOWN_WARN;
    return own;
}

static bool read_inputs(struct translation *t, const struct prepare_model *m, const json_t *body,
                        struct prepared *out)
{
    enum djl_format format;
    struct params *p = &out->params;
    struct prepare_model own = with_warnings(m);
    if (!take_inputs(t, body, &format))
        return false;
    if (strbuf_str(&t->dropped).len > 0)
        log_warn("parameters_ignored", "names=%s", log_quote(strbuf_str(&t->dropped).ptr));
    if (format == FORMAT_SSE)
        out->dialect = t->answers->sse;
    t->djl.sse = format == FORMAT_SSE;
    if (!openai_completions_read(&own, json_incref(t->to), out))
        return false;
    p->djl = t->djl;
    if (!json_object_get(t->to, "max_tokens")) {
        p->max_tokens =
            t->form == DJL_STATIC && p->stream ? DJL_STATIC_STREAM_TOKENS : DJL_DEFAULT_NEW_TOKENS;
        p->sampling.max_tokens = p->max_tokens;
        p->max_tokens_is_default = true;
    }
    if (p->n > 1 && p->stream)
        return api_error_set(t->e, 400, "n",
                             "An answer with n or best_of above 1 cannot be streamed. Set both to "
                             "1, or do not stream.");
    if (out->prompts.n > 1 && p->stream)
        return api_error_set(
            t->e, 400, "inputs",
            "The answer to several inputs cannot be streamed. Send one input, or do not stream.");
    return true;
}

/* Reads a body with OpenAI's fields. Its `model` has no effect. */
static bool read_openai(struct translation *t, const struct prepare_model *m, const json_t *body,
                        bool is_chat, struct prepared *out)
{
    enum djl_format format;
    struct prepare_model own = with_warnings(m);
    json_object_update(t->to, (json_t *)body);
    json_object_del(t->to, "model");
    json_object_del(t->to, "adapters");
    json_t *f = t->form & BATCH ? json_object_get(body, "output_formatter") : NULL;
    if (f && !json_is_null(f) && !take_output_formatter(t, "output_formatter", f))
        return false;
    json_object_del(t->to, "output_formatter");
    if (!take_adapter(t, json_object_get(body, "adapters")) || !read_format(t, body, &format))
        return false;
    if (!is_chat)
        out->dialect = t->answers->async_prompt;
    else if (t->form == DJL_ASYNC)
        out->dialect = t->answers->async_chat;
    else
        out->dialect = format == FORMAT_SSE ? t->answers->chat_sse : t->answers->chat;
    t->djl.sse = format == FORMAT_SSE;
    bool ok = is_chat ? dialect_chat.read(&own, json_incref(t->to), out)
                      : openai_completions_read(&own, json_incref(t->to), out);
    out->params.djl = t->djl;
    return ok;
}

bool djl_read(enum djl_form form, const struct djl_answers *answers, const struct prepare_model *m,
              json_t *owned_body, struct prepared *out)
{
    struct translation t = {.form = form,
                            .answers = answers,
                            .to = json_object(),
                            .djl = {.is_async = form == DJL_ASYNC,
                                    .is_tgi = form == DJL_TGI,
                                    .details = form == DJL_TGI,
                                    .return_full_text = form == DJL_STATIC},
                            .e = &out->error};
    bool ok, chat = json_object_get(owned_body, "messages"),
             inputs = json_object_get(owned_body, "inputs");
    strbuf_init(&t.dropped, 0);
    if (form == DJL_ASYNC && json_object_get(owned_body, "prompt"))
        ok = read_openai(&t, m, owned_body, false, out);
    else if (chat && !(form == DJL_ASYNC && inputs))
        ok = read_openai(&t, m, owned_body, true, out);
    else if (form == DJL_ASYNC && !inputs)
        ok = api_error_set(t.e, 400, "inputs",
                           "invalid payload. must contain prompt, inputs, or messages");
    else
        ok = read_inputs(&t, m, owned_body, out);
    strbuf_fini(&t.dropped);
    json_decref(t.to);       /* `params` has its own reference to this body */
    json_decref(owned_body); /* the body in `params` has its own references to the shared values */
    return ok;
}
