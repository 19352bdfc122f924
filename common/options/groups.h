#pragma once
/* The groups in which --help and docs/reference/flags.md list options. A flag means the same in
 * every program, so one list serves `cox up`, cox-head, cox-worker and cox-gateway. */
#include "common/config/help.h"

extern const struct option_group option_groups[];
extern const struct option_group plan_option_groups[]; /* `cox plan` has a shape's options, too */
