#pragma once
/* Lists the groups in which --help and docs/reference/flags.md show options. A flag has the same
 * meaning in every program, so one list serves `cox up`, cox-head, cox-worker and cox-gateway. */
#include "common/config/help.h"

extern const struct option_group option_groups[];
/* `cox plan` also has the options of a model's shape */
extern const struct option_group plan_option_groups[];
