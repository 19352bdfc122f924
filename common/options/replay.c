#include "common/options/replay.h"

#define S replay_options

const struct option_spec replay_specs[] = {
    OPT_BOOL(S, print, "print", NULL, "Print the plans."),
    OPT_BOOL(S, check, "check", NULL,
             "Check every invariant of the scheduler after each step (slow)."),
    OPT_INT(S, from, "from", 0, 1ll << 50, "0", "First step to print."),
    OPT_INT(S, to, "to", 0, 1ll << 50, "0", "Last step to print. 0 = all."),
    OPT_INT(S, replica, "group", -1, 1ll << 50, "-1", "Number of the replica to print. -1 = all."),
};
#undef S

const size_t replay_n_specs = sizeof replay_specs / sizeof replay_specs[0];
