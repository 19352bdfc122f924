#pragma once
/* The golden models that exist. */
#include <limits.h>
#include <stdint.h>

struct golden_model {
    char path[PATH_MAX];
    /* LongRoPE uses other factors for texts of at most this many tokens. Such texts run in a
     * model limited to that length, longer ones in a model without the limit. 0 = no difference. */
    uint32_t short_len;
};
/* Returns COX_GOLDENS or build/goldens/reference, which scripts/make-goldens makes. */
const char *golden_models_folder(void);
/* Finds the models of a set: "own" (all that scripts/make-goldens made), "reference" (those in
 * golden_models_folder that exist), or a folder. The caller frees the result with free. When
 * there are none, it prints why. */
struct golden_model *golden_models_find(const char *set, uint32_t *n);
