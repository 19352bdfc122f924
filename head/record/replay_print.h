#pragma once
/* Prints plans and results of a replay as text. */
#include <stdio.h>

#include "head/scheduler/scheduler.h"

/* Prints one line for the plan and one line for each run. */
void replay_print_plan(FILE *out, uint64_t replica, uint64_t term_epoch,
                       const struct msg_plan *plan);
void replay_print_result(FILE *out, uint64_t now_ns, const struct msg_result *m,
                         const struct scheduler *s);
