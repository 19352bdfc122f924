#pragma once
/* What a start on a GPU did with memory and time, in the words that people look for in vLLM's log,
 * each as the message of an event. */
#include "worker/executor/state.h"

/* Sequences of full length that the KV cache has room for. */
double gpu_log_concurrency(const struct engine *e);
/* 613024 as "613,024"; out has 32 bytes. */
const char *gpu_log_number(uint64_t n, char out[32]);
/* The line of vLLM's first engine (and DJL's containers), whose figures are four: what is neither
 * weights nor activations nor KV cache is non_torch_memory, so that they are the budget together.
 * All in GiB; out has 512 bytes. */
struct gpu_log_budget {
    double total, utilization, weights, activations, kv;
};
const char *gpu_log_profile(const struct gpu_log_budget *b, char out[512]);
void gpu_log_start(const struct executor_model *x, uint64_t elapsed_ns);
