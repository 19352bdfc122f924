#pragma once
/* Admits waiting sequences to the next plan. */
#include "head/scheduler/prompt_budget.h"
#include "head/scheduler/state.h"

/* Preempts running sequences of lower priority for waiting ones. */
void admit_make_way(struct scheduler *s);
void admit_waiting(struct scheduler *s, struct prompt_budget budget, uint64_t now_ns);
/* Returns the most bytes that r's admission with n_ids ids takes in a plan. */
uint64_t admit_bytes(const struct scheduler *s, const struct request *r, uint32_t n_ids);
