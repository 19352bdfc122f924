#pragma once
/* Declares the cases that comm_test and nccl_test share. */
#include "tests/cuda/rig/comm_ranks.h"

rank_fn comm_sums, comm_gathers, comm_broadcasts;
rank_fn comm_stages_of_two; /* runs two stages of two ranks */
/* In these cases, rank 1 is killed: without a notice to the other ranks, with the head's
 * interrupt, and in two stages of two ranks. */
rank_fn comm_loss_of_two, comm_loss_of_two_told, comm_loss_in_stages;
/* The functions below are parts of the cases above. In comm_lose_rank_1 rank 1 does not return;
 * the other ranks return when the group is lost. comm_interrupt_on_loss is a thread's function;
 * the argument is the struct rank. */
bool comm_lose_rank_1(struct rank *r, uint32_t tp, uint32_t pp);
void *comm_interrupt_on_loss(void *arg);
bool comm_leaves(struct rank *r);
/* Sums n elements over the n_ranks ranks of a stage that has joined. */
bool comm_sum_once(struct rank *r, uint32_t n_ranks, size_t n, bool bf16);
/* Returns the number of devices, at most RANKS_MAX. Returns 0 when there is none, and prints the
 * reason. */
uint32_t comm_devices(void);
