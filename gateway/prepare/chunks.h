#pragma once
/* Texts that are longer than the model's context, for embeddings: cut into pieces of it, each a
 * prompt of its own, and their vectors joined again, as vLLM's chunked processing does. Pure; any
 * thread. */
#include "gateway/generation/generation.h"
#include "gateway/generation/prompt.h"

enum { CHUNKS_MAX_IDS = 16 << 20 }; /* of one text, where nothing else bounds it */

/* Cuts each prompt of more than max_len ids into pieces of so many, of which all but the last go on
 * in the next prompt (prompt.goes_on). False: there would be more than max_prompts; l is as it was.
 */
bool chunks_cut(struct prompt_list *l, uint32_t max_len, uint32_t max_prompts);
/* The vector of n pieces, of which d are the generations: out[n_out] is the mean of the first n_out
 * numbers of each, a piece weighing as much as it has ids. normalise: each piece, and the mean of
 * several, has length 1. */
void chunks_join(const struct generation *const *pieces, const struct prompt *const *prompts,
                 uint32_t n, bool normalise, float *out, uint32_t n_out);
