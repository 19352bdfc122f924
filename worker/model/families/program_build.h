#pragma once
/* A configuration becomes a program: the list of families, and what of a model one rank has. */
#include "worker/model/program.h"

struct program_setup {
    uint32_t tp, rank;
    uint32_t max_model_len; /* that is served: some rotary embeddings depend on it */
    uint32_t inner_unit;    /* the MLP's width is cut between so many: a block of its format */
    bool expert_parallel;   /* ranks have experts of their own, not a part of each */
    uint32_t pp, stage;     /* pp 0: 1 */
};
/* Writes the program of config's family for one rank. STATUS_UNSUPPORTED: no such family, fewer
 * parts of the vocabulary than ranks, or fewer layers than stages. program_free is due after
 * success only. */
MUST_USE enum status program_build(const struct model_config *config, const struct program_setup *s,
                                   struct program **out, struct error *err);
