#pragma once
/* What a start on a GPU did with memory and time, in the words that people look for in vLLM's log,
 * each as the message of an event. */
#include "worker/executor_model.h"

/* Sequences of full length that the KV cache has room for. */
double gpu_log_concurrency(const struct engine *e);
/* 613024 as "613,024"; out has 32 bytes. */
const char *gpu_log_number(uint64_t n, char out[32]);
void gpu_log_start(const struct executor_model *x, uint64_t elapsed_ns);
