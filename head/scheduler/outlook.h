#pragma once
/* Gathers what is between a new request and its first token, for head/promise. */
#include "head/promise/first_token.h"

struct request;
struct scheduler;

/* Returns how many of r's tokens must still be planned before its first token. Returns 0 when
 * the last chunk is planned, or `r` is in no scheduler. */
uint32_t scheduler_prompt_left(const struct request *r);
/* Fills everything of *out but mean_answer and the later arrivals. `r` is not in the scheduler
 * yet, and r->n_hit is set. The cost is linear in the running sequences and the tenants. The
 * result borrows from the scheduler, until its next call. */
void scheduler_outlook(const struct scheduler *s, const struct request *r,
                       struct first_token_work *out);
