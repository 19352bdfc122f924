#pragma once
/* Cases that comm_test and nccl_test share. */
#include "tests/cuda/comm_ranks.h"

rank_fn comm_sums, comm_gathers, comm_broadcasts;
rank_fn comm_stages_of_two; /* two stages of two ranks */
/* n elements over the n_ranks of a stage that is joined. */
bool comm_sum_once(struct rank *r, uint32_t n_ranks, size_t n, bool bf16);
/* RANKS_MAX at most; 0: there is none, and why is said. */
uint32_t comm_devices(void);
