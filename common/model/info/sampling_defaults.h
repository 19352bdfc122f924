#pragma once
/* How the makers of a model would have its texts drawn: what generation_config.json says, for
 * requests that do not. Plain values; any thread. */
#include <stdint.h>

#include "common/base/status.h"

struct sampling_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k; /* 0: all */
};

#define SAMPLING_DEFAULTS_OPENAI                                                                   \
    (struct sampling_defaults)                                                                     \
    {                                                                                              \
        .temperature = 1, .top_p = 1, .repetition_penalty = 1                                      \
    }

/* Sets what folder/generation_config.json has; the rest of out stays. NOT_FOUND: there is no such
 * file; INVALID names the file and the key. */
MUST_USE enum status sampling_defaults_read(const char *folder, struct sampling_defaults *out,
                                            struct error *err);
