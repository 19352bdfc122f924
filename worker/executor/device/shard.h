#pragma once
/* Chooses the shard that an executor has loaded, and its sleep. The functions run on the compute
 * thread while the executor is in no communicator. */
#include "worker/executor/state.h"

/* Loads the shard of the rank slot unless it is loaded already, and wakes a sleeping one. Loading
 * is not interrupted. A slow disk may need longer than a formation allows. The load must then
 * finish once, and the next formation uses the loaded shard. */
MUST_USE enum status executor_take_shard(struct executor_model *x, const struct comm_place *at,
                                         struct error *err);
/* Implements executor_ops.sleep. */
MUST_USE enum status executor_sleep(struct executor *e, enum sleep_level level, struct error *err);
