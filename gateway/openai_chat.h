#pragma once
/* The `messages` of /v1/chat/completions: checked, reduced to what templates read, and rendered
 * with the model's chat template to one prompt text. Pure but for the template; any thread. */
#include "gateway/prepare.h"

#define CHAT_MAX_MESSAGES 4096u

/* The template's variables as one JSON object. */
bool openai_chat_context(const struct params *p, struct strbuf *out, struct api_error *e);
/* One prompt, text set, not yet tokenized. now_unix: what the template's clock shows. */
bool openai_chat_prompt(const struct params *p, const struct text_template *tmpl, int64_t now_unix,
                        struct prompt_list *out, struct api_error *e);
/* The dialect's read. */
bool openai_chat_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
