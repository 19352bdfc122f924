#pragma once
/* Handles roles that a chat template does not show. Agents send system messages within a
 * conversation, and OpenAI's clients send developer messages. Many templates show only users,
 * assistants and a first system message. They drop other messages silently, or fail. When a
 * developer's message would be dropped, it is rendered as the system's. When a later system
 * message would be dropped, it is rendered as the user's, at the same place. */
#include "gateway/prepare/prepared.h"

/* Renders the prompt like `openai_chat_prompt`. When the template drops messages, `p->messages`
 * becomes a list of messages that the template renders. The body owns both lists. Returns false
 * with the reason in `e`. */
bool chat_roles_prompt(struct params *p, const struct prepare_model *m, struct prompt_list *out,
                       struct api_error *e);
