#pragma once
/* Reads bodies of OpenAI's responses. responses_json.c writes the answers. The functions are
 * pure, and usable on any thread. */
#include "gateway/prepare/prepared.h"

/* Turns input, instructions and tools of `p` into chat's messages and tools, owned by `p->body`.
 * The answer continues an incomplete message of the assistant. Returns false with the reason in
 * `e`. */
bool responses_for_template(struct params *p, struct api_error *e);
/* Reads a body; this is the dialect's `read` function. `p->asked` gets the members that answers
 * repeat. */
bool responses_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
