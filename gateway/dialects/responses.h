#pragma once
/* Bodies of OpenAI's responses. responses_json.c writes the answers. Pure; any thread. */
#include "gateway/prepare/prepared.h"

/* Turns input, instructions and tools of `p` into chat's messages and tools, owned by `p->body`.
 * An incomplete message of the assistant is continued. Returns false with the reason in `e`. */
bool responses_for_template(struct params *p, struct api_error *e);
/* The dialect's `read` function. `p->asked` has the members that answers repeat. */
bool responses_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
