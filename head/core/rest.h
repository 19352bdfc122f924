#pragma once
/* Lets the workers of a model sleep until the program that starts them orders otherwise
 * (docs/develop/many-models.md, "Sleep levels"). The code runs on the loop thread. */
#include "common/base/status.h"
#include "head/cluster/registry.h"

struct head_core;

/* Orders a held sleep: head_core_rest, and then sleep that only head_core_end_rest ends. Requests
 * wait meanwhile, and head_core_desired_workers asks for workers. A held cluster may go to a
 * deeper level while requests wait. Returns the errors of head_core_rest. */
MUST_USE enum status head_core_rest_asleep(struct head_core *h, enum sleep_level level,
                                           uint64_t now_ns, struct error *err);
/* Wakes the cluster, also from a held sleep. Does nothing while it is awake. */
void head_core_end_rest(struct head_core *h, uint64_t now_ns);
/* Returns the number of connected workers that have reached the ordered level; 0 while the cluster
 * is not asleep. */
uint32_t head_core_count_asleep(const struct head_core *h);
