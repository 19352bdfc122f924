#pragma once
/* Anthropic's messages: their bodies. messages_json.c writes the answers. Pure; any thread. */
#include "gateway/prepare/prepared.h"

/* messages, system and tools of p become chat's, owned by p->body; a last message of the
 * assistant's is one to go on with. False: e says why. */
bool messages_for_template(struct params *p, struct api_error *e);
/* The dialects' reads. */
bool messages_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool messages_count_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
