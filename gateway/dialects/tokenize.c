/* Serves /tokenize and /detokenize: the ids of a text or a chat, and the text of ids. Bodies and
 * answers are vLLM's. No token is generated. */
#include <string.h>

#include "common/base/mem.h"
#include "gateway/dialects/chat_roles.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/openai_completions.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/fields/read.h"
#include "gateway/prepare/dialect.h"

/* Reads a body. As in completions, special tokens are added by default. For a chat no special
 * tokens are added, because the template has written them. */
static bool read_text(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    if (!params_init(p, API_TOKENIZE, owned_body, &m->policy, &out->error))
        return false;
    if (p->messages) {
        p->add_special_tokens = json_is_true(json_object_get(p->body, "add_special_tokens"));
        return chat_roles_prompt(p, m, &out->prompts, &out->error);
    }
    return openai_completions_prompts(p, m->policy.vocab_size, &out->prompts, &out->error);
}

static bool read_ids(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    char why[TEXT_ERR_MAX] = "";
    char *text = NULL;
    size_t len = 0;
    if (!params_init(p, API_DETOKENIZE, owned_body, &m->policy, &out->error))
        return false;
    prompt_list_init(&out->prompts, 1);
    struct prompt *prompt = &out->prompts.items[0];
    *prompt = (struct prompt){0};
    if (!openai_ids_read(p->prompt, "tokens", m->policy.vocab_size, prompt, &out->error))
        return false;
    if (text_decode(m->tokenizer, prompt->ids, prompt->n_ids, false, &text, &len, why) != TEXT_OK)
        return api_error_set(&out->error, 400, "tokens", "tokens cannot be decoded: %s", why);
    prompt->text = (struct str){mem_strndup(text, len), len};
    text_free(text);
    return true;
}

static void write_ids(struct strbuf *out, const struct answer_shape *a)
{
    const struct prompt *p = &a->prompts->items[0];
    char buf[OPENAI_TOKEN_MAX];
    strbuf_printf(out, "{\"count\":%u,\"max_model_len\":%u", p->n_ids, a->max_model_len);
    openai_ids(out, "tokens", p->ids, p->n_ids);
    strbuf_append_c(out, ",\"token_strs\":");
    if (!a->params->return_token_strs) {
        strbuf_append_c(out, "null}");
        return;
    }
    strbuf_append_c(out, "[");
    for (uint32_t i = 0; i < p->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        strbuf_append_json(out, openai_token(a, p->ids[i], buf));
    }
    strbuf_append_c(out, "]}");
}

static void write_text(struct strbuf *out, const struct answer_shape *a)
{
    strbuf_append_c(out, "{\"prompt\":");
    strbuf_append_json(out, a->prompts->items[0].text);
    strbuf_append_c(out, "}");
}

const struct dialect dialect_tokenize = {
    .name = "tokenize",
    .id_prefix = "tokn-",
    .prompt_field = "prompt",
    .kind = API_TOKENIZE,
    .read = read_text,
    .answer = write_ids,
    .error = openai_error,
};

const struct dialect dialect_detokenize = {
    .name = "detokenize",
    .id_prefix = "tokn-",
    .prompt_field = "tokens",
    .kind = API_DETOKENIZE,
    .read = read_ids,
    .answer = write_text,
    .error = openai_error,
};
