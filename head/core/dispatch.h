#pragma once
/* Sends plans to ranks and handles their results. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* The functions below are the handlers of cluster_fns. */
void dispatch_on_ready(void *core, struct replica *g);
void dispatch_on_down(void *core, struct replica *g);
bool dispatch_may_go_on(void *core, const struct replica *g, const struct worker *w,
                        const struct worker_info *said);
bool dispatch_is_idle(void *core, const struct replica *g);

void dispatch_on_result(struct head_core *h, struct worker *w, const struct msg_result *m);
void dispatch_turn(struct head_core *h);
void dispatch_tick(struct head_core *h);
void dispatch_free(struct head_core *h);
