#pragma once
/* Converts a configuration to a program, and cuts it for one rank. The list of families is in
 * the .c file. */
#include "worker/model/program.h"

struct program_setup {
    uint32_t tp, rank;
    uint32_t max_model_len; /* served length; some rotary embeddings depend on it */
    /* the MLP's width is cut into units of this size, the block size of its weight format */
    uint32_t inner_unit;
    bool expert_parallel; /* a rank has whole experts, not a part of each */
    uint32_t pp, stage;   /* number of stages (0 = 1) and this rank's stage */
};
/* Builds the program of the configuration's family for one rank. STATUS_UNSUPPORTED: the family
 * is unknown, or there are more ranks than parts of the vocabulary, or more stages than layers.
 * After success the caller must call program_free. */
MUST_USE enum status program_build(const struct model_config *config, const struct program_setup *s,
                                   struct program **out, struct error *err);
