#pragma once
/* Logs memory and time of a worker's start on a GPU, as events whose messages use the words of
 * vLLM's log. */
#include "worker/executor/state.h"

/* Returns the number of sequences of full length that fit into the KV cache. */
double gpu_log_concurrency(const struct engine *e);
/* Writes a number such as 613024 as "613,024" to `out`, and returns `out`. */
const char *gpu_log_number(uint64_t n, char out[32]);
/* `gpu_log_budget` is the input of the memory line of vLLM's first engine (and DJL's
 * containers), in GiB. The line has four figures that add up to the budget. Everything except
 * weights, activations and KV cache counts as non_torch_memory. */
struct gpu_log_budget {
    double total, utilization, weights, activations, kv;
};
const char *gpu_log_profile(const struct gpu_log_budget *b, char out[512]);
void gpu_log_start(const struct executor_model *x, uint64_t elapsed_ns);
