#pragma once
/* Turns a configuration into a program, and cuts it for one rank. The list of families is in the
 * .c file. */
#include "worker/model/program.h"

struct program_setup {
    uint32_t tp, rank;
    uint32_t max_model_len; /* served length; some rotary embeddings depend on it */
    uint32_t inner_unit; /* the MLP's width is cut into units of this size: a block of its format */
    bool expert_parallel; /* a rank has whole experts, not a part of each */
    uint32_t pp, stage;   /* number of stages (0 = 1) and this rank's stage */
};
/* Writes the program of the configuration's family for one rank. STATUS_UNSUPPORTED: the family
 * is unknown, or there are fewer parts of the vocabulary than ranks, or fewer layers than
 * stages. After success the caller must call program_free. */
MUST_USE enum status program_build(const struct model_config *config, const struct program_setup *s,
                                   struct program **out, struct error *err);
