#pragma once
/* Parses whole numbers on the command lines of the programs in bench/. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/str.h"

/* Parses argv[i] as a whole number from `least` to `most`. Any other text ends the program with
 * exit status 2. */
static inline uint32_t count_argument(char **argv, int i, const char *name, uint32_t least,
                                      uint32_t most)
{
    uint64_t n = 0;
    if (str_to_u64(str_from(argv[i]), &n) == STATUS_OK && n >= least && n <= most)
        return (uint32_t)n;
    fprintf(stderr, "%s: %s: '%s' is no whole number from %" PRIu32 " to %" PRIu32 "\n", argv[0],
            name, argv[i], least, most);
    exit(2);
}
