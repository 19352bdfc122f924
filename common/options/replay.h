#pragma once
/* `replay_options` holds the options of `cox replay FILE`. cox-head runs it, and cox prints the
 * help. */
#include "common/config/config.h"

struct replay_options {
    bool print, check;
    int64_t from, to, replica;
};

extern const struct option_spec replay_specs[];
extern const size_t replay_n_specs;
