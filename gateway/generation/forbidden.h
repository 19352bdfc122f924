#pragma once
/* Finds tokens that a request forbids by its own parameters: allowed_token_ids, bad_words,
 * min_tokens. These parameters together may forbid all tokens. The sampler then samples a
 * forbidden token (worker/sampling/sampler.h), but an answer must never contain it. The
 * functions are pure, and usable on any thread. */
#include "proto/messages.h"

struct forbidden {
    /* sampling parameters of the request, borrowed; `eos_ids` is not used here */
    const struct sampling_params *params;
    struct u32_span eos_ids; /* tokens that end an answer, forbidden before `min_tokens` */
};

/* Returns true when the request forbids any token. */
bool forbidden_any(const struct forbidden *f);
/* Returns true when `id` must not follow the `n_out` generated ids in `out`. With a grammar the
 * end tokens are always allowed, because no other token can follow a complete answer. */
bool forbidden_id(const struct forbidden *f, const uint32_t *out, uint32_t n_out, uint32_t id);
/* Returns true when the request allows no token as the first one. */
bool forbidden_all(const struct forbidden *f);
