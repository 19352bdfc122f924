#pragma once
/* Finds the golden models that exist. */
#include <limits.h>
#include <stdint.h>

struct golden_model {
    char path[PATH_MAX];
    /* Most tokens of a short text; 0 = no difference. LongRoPE uses other factors for short
     * texts. Such texts run in a model limited to this length, longer texts in a model without
     * the limit. */
    uint32_t short_len;
};
/* Returns the folder COX_GOLDENS or build/goldens/reference, which scripts/make-goldens makes. */
const char *golden_models_folder(void);
/* Finds the models of a set: "own" (all that scripts/make-goldens made), "reference" (those in
 * golden_models_folder that exist), or a folder. The caller frees the result with free. When
 * there are no models, the function prints the reason. */
struct golden_model *golden_models_find(const char *set, uint32_t *n);
