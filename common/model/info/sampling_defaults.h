#pragma once
/* Reads the sampling parameters that the makers of a model recommend, from
 * generation_config.json. The parameters are used for requests that do not set them. The structs
 * are plain data, and the functions may run on any thread. */
#include <stdint.h>

#include "common/base/status.h"

struct sampling_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k; /* number of tokens to sample from; 0 = all tokens */
};

#define SAMPLING_DEFAULTS_OPENAI                                                                   \
    (struct sampling_defaults)                                                                     \
    {                                                                                              \
        .temperature = 1, .top_p = 1, .repetition_penalty = 1                                      \
    }

/* Sets the values that folder/generation_config.json has. The other fields stay unchanged.
 * Returns STATUS_NOT_FOUND when there is no such file, STATUS_INVALID with the file and the key
 * for a wrong value. */
MUST_USE enum status sampling_defaults_read(const char *folder, struct sampling_defaults *out,
                                            struct error *err);
