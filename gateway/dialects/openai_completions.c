#include "gateway/dialects/openai_completions.h"

#include "common/base/mem.h"

#include "gateway/fields/read.h"

static void set_text(struct prompt *out, const json_t *v)
{
    struct str s = params_json_str(v);
    out->text = (struct str){mem_strndup(s.ptr, s.len), s.len};
    out->has_text = true;
}

bool openai_ids_read(const json_t *list, const char *field, uint32_t vocab, struct prompt *out,
                     struct api_error *e)
{
    size_t n = json_array_size(list);
    out->ids = mem_try_array(n, sizeof *out->ids);
    if (!out->ids)
        return api_error_set(
            e, 413, field, "%s is too long: the server has no memory for %zu token ids.", field, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v))
            return api_error_set(e, 400, field, "%s: token ids must be integers.", field);
        json_int_t id = json_integer_value(v);
        if (id < 0 || id >= UINT32_MAX || (vocab && id >= vocab))
            return api_error_set(e, 400, field, "Token id %lld is out of vocabulary",
                                 (long long)id);
        out->ids[i] = (uint32_t)id;
    }
    out->n_ids = (uint32_t)n;
    return true;
}

static bool set_list(const json_t *list, const char *field, uint32_t vocab, struct prompt_list *out,
                     struct api_error *e)
{
    size_t n = json_array_size(list);
    if (n > COMPLETIONS_MAX_PROMPTS)
        return api_error_set(e, 400, field, "%s may hold at most %u prompts, got %zu.", field,
                             COMPLETIONS_MAX_PROMPTS, n);
    prompt_list_init(out, (uint32_t)n);
    json_type want = json_typeof(json_array_get(list, 0));
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_typeof(v) != want)
            return api_error_set(e, 400, field, "%s must not mix strings and token ids.", field);
        if (want == JSON_STRING)
            set_text(&out->items[i], v);
        else if (!openai_ids_read(v, field, vocab, &out->items[i], e))
            return false;
    }
    return true;
}

bool openai_prompts_read(const json_t *v, const char *field, uint32_t vocab_size,
                         struct prompt_list *out, struct api_error *e)
{
    if (json_is_string(v)) {
        prompt_list_init(out, 1);
        set_text(&out->items[0], v);
        return true;
    }
    if (!json_is_array(v) || json_array_size(v) == 0)
        return api_error_set(e, 400, field,
                             "%s must be a string, a list of strings, a list of token ids or a "
                             "list of lists of token ids, and not empty.",
                             field);
    const json_t *first = json_array_get(v, 0);
    if (json_is_integer(first)) {
        prompt_list_init(out, 1);
        return openai_ids_read(v, field, vocab_size, &out->items[0], e);
    }
    if (json_is_string(first) || json_is_array(first))
        return set_list(v, field, vocab_size, out, e);
    return api_error_set(e, 400, field,
                         "%s must be a string, a list of strings, a list of token ids or a "
                         "list of lists of token ids.",
                         field);
}

bool openai_completions_prompts(const struct params *p, uint32_t vocab_size,
                                struct prompt_list *out, struct api_error *e)
{
    return openai_prompts_read(p->prompt, "prompt", vocab_size, out, e);
}

bool openai_completions_read(const struct prepare_model *m, json_t *owned_body,
                             struct prepared *out)
{
    return params_init(&out->params, API_COMPLETIONS, owned_body, &m->policy, &out->error) &&
           openai_completions_prompts(&out->params, m->policy.vocab_size, &out->prompts,
                                      &out->error);
}
