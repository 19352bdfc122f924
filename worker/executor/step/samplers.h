#pragma once
/* The samplers of the sampling rank, with grammars and masks: they come and go with its rank
 * slot. */
#include "worker/executor/state.h"

MUST_USE enum status executor_samplers_open(struct executor_model *x, struct error *err);
void executor_samplers_close(struct executor_model *x); /* NULL is fine */
/* Theirs and of grammars; before there are any, of a sampling rank: _measure. */
uint64_t executor_samplers_bytes(const struct executor_model *x);
uint64_t executor_samplers_measure(uint32_t n_threads, uint32_t vocab_size);
