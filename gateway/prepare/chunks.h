#pragma once
/* Embeds texts that are longer than the context. A text is cut into pieces, each a prompt of its
 * own, and the vectors are joined again, as vLLM's chunked processing does. The functions are
 * pure, and usable on any thread. */
#include "gateway/generation/generation.h"
#include "gateway/generation/prompt.h"

enum { CHUNKS_MAX_IDS = 16 << 20 }; /* most ids of one text when no option limits them */

/* Cuts each prompt of more than `max_len` ids into pieces of that length. All but the last piece
 * have `goes_on` set. Returns false, and leaves the list unchanged, when there would be more
 * than `max_prompts`. */
bool chunks_cut(struct prompt_list *l, uint32_t max_len, uint32_t max_prompts);
/* Joins the vectors of n pieces. `out[n_out]` is the mean of the first `n_out` elements of each
 * vector, weighted by the number of ids. With `normalise`, each piece and the mean of several
 * pieces have length 1. */
void chunks_join(const struct generation *const *pieces, const struct prompt *const *prompts,
                 uint32_t n, bool normalise, float *out, uint32_t n_out);
