#pragma once
/* The golden models that there are. */
#include <limits.h>
#include <stdint.h>

struct golden_model {
    char path[PATH_MAX];
    /* LongRoPE has factors of its own for texts of at most so many tokens: those are run by a model
     * that takes no longer ones, the others by one that does. 0: all alike. */
    uint32_t short_len;
};
/* COX_GOLDENS, or build/goldens/reference, which scripts/make-goldens makes. */
const char *golden_models_folder(void);
/* set: "own" (all that scripts/make-goldens made), "reference" (those of golden_models_folder, but
 * what is not there), or a folder. The caller frees with free; prints why when there are none. */
struct golden_model *golden_models_find(const char *set, uint32_t *n);
