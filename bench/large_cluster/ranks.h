#pragma once
/* Simulates the workers. */
#include "bench/large_cluster/peers.h"

void scale_ranks_open(struct scale *s);
void scale_ranks_close(struct scale *s);
void scale_ranks_hello(struct scale *s, uint32_t i_worker, struct msg_hello *h);
void scale_ranks_beat(const struct scale *s, uint32_t i_worker, struct msg_heartbeat *h);
/* Handles an encoded plan for a worker. In each replica, only the first rank decodes the plan. */
void scale_ranks_on_plan(struct scale *s, uint32_t i_worker, struct str frame,
                         const struct frame_header *h);
void scale_ranks_on_msg(struct scale *s, uint32_t i_worker, const struct msg *m);
/* Ends the steps whose end time has passed. Returns the time of the next end, or UINT64_MAX when
 * no step runs. */
uint64_t scale_ranks_run(struct scale *s);
