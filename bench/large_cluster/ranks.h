#pragma once
/* The workers. */
#include "bench/large_cluster/peers.h"

void scale_ranks_open(struct scale *s);
void scale_ranks_close(struct scale *s);
void scale_ranks_hello(struct scale *s, uint32_t i_worker, struct msg_hello *h);
void scale_ranks_beat(const struct scale *s, uint32_t i_worker, struct msg_heartbeat *h);
/* A plan, not decoded: of a replica's ranks only the first looks into it. */
void scale_ranks_on_plan(struct scale *s, uint32_t i_worker, struct str frame,
                         const struct frame_header *h);
void scale_ranks_on_msg(struct scale *s, uint32_t i_worker, const struct msg *m);
/* Ends the steps whose time has come; when the next one ends, UINT64_MAX: none runs. */
uint64_t scale_ranks_run(struct scale *s);
