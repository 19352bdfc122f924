#pragma once
/* The processes that `cox up` starts: the command lines of head, gateways and workers from its
 * options. Pure: no process, no file. Strings live on the arena. */
#include "cli/up/plan/types.h"
#include "common/base/arena.h"
#include "common/base/status.h"

struct up_options;

/* STATUS_INVALID for combinations that cannot work. */
MUST_USE enum status up_plan_build(const struct up_options *o, const char *model,
                                   const struct up_place *place, struct arena *arena,
                                   struct up_plan *out, struct error *err);

/* Worker i, more than there were at the start; on the arena. */
MUST_USE enum status up_plan_worker(const struct up_options *o, const char *model,
                                    const struct up_place *place, struct arena *arena, uint32_t i,
                                    const struct up_child **out, struct error *err);
