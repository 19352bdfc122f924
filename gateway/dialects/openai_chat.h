#pragma once
/* The `messages` of /v1/chat/completions: checked, reduced to what templates read, and rendered
 * with the model's chat template to one prompt text. Pure but for the template; any thread. */
#include "gateway/prepare/prepared.h"

#define CHAT_MAX_MESSAGES 4096u

/* The template's variables as one JSON object. */
bool openai_chat_context(const struct params *p, const struct text_tokenizer *tokenizer,
                         struct strbuf *out, struct api_error *e);
/* One prompt, text set, not yet tokenized: by the model's template, or the request's own. */
bool openai_chat_prompt(const struct params *p, const struct prepare_model *m,
                        struct prompt_list *out, struct api_error *e);
