#pragma once
/* Reads the options of the simulators' programs: pairs of a name and a number. */
#include <stdbool.h>
#include <string.h>

#include "common/base/str.h"

struct sim_option {
    const char *name;
    uint64_t *value;
};

/* Reads the options into their numbers. Returns false when an argument is not an option, or not
 * a number. */
static inline bool sim_options_read(int argc, char **argv, const struct sim_option *options,
                                    size_t n_options)
{
    for (int i = 1; i < argc; i += 2) {
        bool known = false;
        for (size_t k = 0; k < n_options; k++)
            if (strcmp(argv[i], options[k].name) == 0 && i + 1 < argc &&
                str_to_u64(str_from(argv[i + 1]), options[k].value) == STATUS_OK)
                known = true;
        if (!known)
            return false;
    }
    return true;
}
