#include "common/options/replay.h"

#define S replay_options

const struct option_spec replay_specs[] = {
    OPT_BOOL(S, print, "print", NULL, "print the plans"),
    OPT_BOOL(S, check, "check", NULL,
             "after every step, check every invariant of the scheduler (slow)"),
    OPT_INT(S, from, "from", 0, 1ll << 50, "0", "first step to print"),
    OPT_INT(S, to, "to", 0, 1ll << 50, "0", "last step to print; 0: all"),
    OPT_INT(S, replica, "group", -1, 1ll << 50, "-1", "print this group only; -1: all"),
};
#undef S

const size_t replay_n_specs = sizeof replay_specs / sizeof replay_specs[0];
