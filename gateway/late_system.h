#pragma once
/* System messages that are not the first: agents send them in the midst of a conversation. Many
 * chat templates show the first alone, leave the others out without a word, or fail. What such a
 * template would not show is said as the user's, at its place. */
#include "gateway/prepare.h"

/* The prompt of messages, as openai_chat_prompt. Where p->messages holds a late system message that
 * the template does not show, p->messages becomes a list that it shows; the body owns both. False:
 * e says what is wrong. */
bool late_system_prompt(struct params *p, const struct prepare_model *m, struct prompt_list *out,
                        struct api_error *e);
