#pragma once
/* Roles that a chat template does not show. Agents send system messages in the midst of a
 * conversation, and OpenAI's clients send developer messages. Many templates show users, assistants
 * and a first system message alone, leave the others out without a word, or fail. A developer's
 * message that a template would not show is said as the system's, and a system's behind the first
 * message that it would not show as the user's, at its place. */
#include "gateway/prepare/prepared.h"

/* The prompt of messages, as openai_chat_prompt. Where p->messages holds what the template does not
 * show, p->messages becomes a list that it shows; the body owns both. False: e says what is wrong.
 */
bool chat_roles_prompt(struct params *p, const struct prepare_model *m, struct prompt_list *out,
                       struct api_error *e);
