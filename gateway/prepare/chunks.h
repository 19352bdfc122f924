#pragma once
/* Embedding of texts longer than the context. A text is cut into pieces, each a prompt of its
 * own, and the vectors are joined again, as vLLM's chunked processing does. Pure; any thread. */
#include "gateway/generation/generation.h"
#include "gateway/generation/prompt.h"

enum { CHUNKS_MAX_IDS = 16 << 20 }; /* ids of one text when nothing else bounds it */

/* Cuts each prompt of more than `max_len` ids into pieces of that length. All but the last piece
 * have `goes_on` set. Returns false when there would be more than `max_prompts`; the list is
 * unchanged then. */
bool chunks_cut(struct prompt_list *l, uint32_t max_len, uint32_t max_prompts);
/* Joins the vectors of n pieces. `out[n_out]` is the mean of the first `n_out` elements of each,
 * weighted by the number of ids. With `normalise`, each piece and the mean of several have
 * length 1. */
void chunks_join(const struct generation *const *pieces, const struct prompt *const *prompts,
                 uint32_t n, bool normalise, float *out, uint32_t n_out);
