#pragma once
/* OpenAI's responses: their bodies. responses_json.c writes the answers. Pure; any thread. */
#include "gateway/prepare/prepared.h"

/* input, instructions and tools of p become chat's messages and tools, owned by p->body; an
 * assistant's message that is not complete is one to go on with. False: e says why. */
bool responses_for_template(struct params *p, struct api_error *e);
/* The dialect's read; what answers repeat of the request is in p->asked. */
bool responses_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
