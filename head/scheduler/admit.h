#pragma once
/* The next plan: who comes in. */
#include "head/scheduler/prompt_budget.h"
#include "head/scheduler/state.h"

/* Places are taken from running sequences of worse classes for those that wait. */
void admit_make_way(struct scheduler *s);
void admit_waiting(struct scheduler *s, struct prompt_budget budget, uint64_t now_ns);
/* The most that r's admission with so many ids weighs in a plan, on the wire. */
uint64_t admit_bytes(const struct scheduler *s, const struct request *r, uint32_t n_ids);
