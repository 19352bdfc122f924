#pragma once
/* Opens the samplers of the sampling rank, with grammars and masks. They exist only while this
 * rank is the sampling rank. */
#include "worker/executor/state.h"

MUST_USE enum status executor_samplers_open(struct executor_model *x, struct error *err);
void executor_samplers_close(struct executor_model *x); /* does nothing without samplers */
/* executor_samplers_bytes returns the bytes of samplers and grammars, 0 before they are opened.
 * executor_samplers_measure computes these bytes before the opening. */
uint64_t executor_samplers_bytes(const struct executor_model *x);
uint64_t executor_samplers_measure(uint32_t n_threads, uint32_t vocab_size);
