#pragma once
/* Tokens that a request rules out by its own parameters: allowed_token_ids, bad_words, min_tokens.
 * Together they may leave none (worker/sampling/sampler.h: then a token comes all the same), and an
 * answer must never hold one of them. Pure; any thread. */
#include "proto/messages.h"

struct forbidden {
    const struct sampling_params *params; /* borrowed; eos_ids are not looked at */
    struct u32_span eos_ids;              /* that end a request, and may not before min_tokens */
};

/* Whether anything is ruled out at all: else nothing has to be asked. */
bool forbidden_any(const struct forbidden *f);
/* Whether id may not come behind the n_out generated ids of out. The end of an answer whose grammar
 * has come to its own always may: nothing else could follow. */
bool forbidden_id(const struct forbidden *f, const uint32_t *out, uint32_t n_out, uint32_t id);
/* Whether allowed_token_ids hold no id that the first token could be. */
bool forbidden_all(const struct forbidden *f);
