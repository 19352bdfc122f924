#pragma once
/* Checks the `messages` of /v1/chat/completions, copies them in the form that templates read,
 * and renders them by the chat template to one prompt text. The functions are pure except for
 * the template, and usable on any thread. */
#include "gateway/prepare/prepared.h"

#define CHAT_MAX_MESSAGES 4096u

/* Appends the template's variables as one JSON object. */
bool openai_chat_context(const struct params *p, const struct text_tokenizer *tokenizer,
                         struct strbuf *out, struct api_error *e);
/* Makes one prompt with text, not tokenized yet, by the model's template or the request's own
 * template. */
bool openai_chat_prompt(const struct params *p, const struct prepare_model *m,
                        struct prompt_list *out, struct api_error *e);
