#pragma once
/* Reads bodies of Anthropic's messages. messages_json.c writes the answers. The functions are
 * pure, and usable on any thread. */
#include "gateway/prepare/prepared.h"

/* Turns messages, system and tools of `p` into chat's, owned by `p->body`. A last message of the
 * assistant is continued. Returns false with the reason in `e`. */
bool messages_for_template(struct params *p, struct api_error *e);
/* Reads a body; these are the dialects' `read` functions. */
bool messages_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool messages_count_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
