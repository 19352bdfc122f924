#pragma once
/* Makes the plan of `cox up` from the options: the command lines of head, gateways and workers.
 * The functions are pure: they start no process and read no file. The strings are on the arena. */
#include "cli/up/plan/types.h"
#include "common/base/arena.h"
#include "common/base/status.h"

struct up_options;

/* Makes the plan. STATUS_INVALID: the options cannot work together. */
MUST_USE enum status up_plan_build(const struct up_options *o, const char *model,
                                   const struct up_place *place, struct arena *arena,
                                   struct up_plan *out, struct error *err);

/* Makes the plans of the gateways of a cluster of several models; `out` has room for
 * o->gateways zeroed children. */
void up_plan_gateways(const struct up_options *o, const struct up_place *place, struct arena *arena,
                      struct up_child *out);
/* Checks that no two listeners of the plan have the same port, since the second listener could
 * not start. */
MUST_USE enum status up_plan_check_ports(const struct up_plan *plan, struct error *err);

/* Makes the plan of worker i, which is added after the start. The plan is on the arena. */
MUST_USE enum status up_plan_worker(const struct up_options *o, const char *model,
                                    const struct up_place *place, struct arena *arena, uint32_t i,
                                    const struct up_child **out, struct error *err);
