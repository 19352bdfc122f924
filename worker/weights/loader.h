#pragma once
/* Loads the weights that a program names from the model's files into device memory. The files
 * are not trusted: loader_measure checks every tensor's presence, dtype and shape before
 * anything is allocated. `weights` NULL means that there are no files, and the weights are
 * random numbers (worker/weights/dummy.h). */
#include "common/model/weights/weights.h"
#include "worker/model/program.h"
#include "worker/weights/load_progress.h"

/* `loaded` holds the loaded weights, in one allocation. */
struct loaded {
    void *memory;
    /* The caller has set `memory` before loader_load, and frees it after loader_unload. If it is
     * packed, another process has loaded the same weights there, and nobody may write to it. */
    bool is_borrowed, is_packed;
    uint64_t n_bytes;
    void *host;     /* the weights while they are parked (park.h), else NULL */
    uintptr_t from; /* address of the memory before it was parked */
};

/* Returns the unit in which the MLP's width can be cut: a panel, or a block of the largest
 * format among matrices with that many inputs. */
uint32_t loader_inner_unit(const struct model_config *c, const struct weights *w);
/* Returns in *out the bytes that loader_load will take. Errors name the tensor, its properties
 * and the expected ones. */
MUST_USE enum status loader_measure(const struct program *p, const struct weights *w,
                                    const struct device *d, uint64_t *out, struct error *err);
/* Measures again, then loads. Memory that `out` borrows has the measured size, and zeros if it is
 * not packed. `progress` has begun, or is NULL. Files are read in parts, and each part is released
 * after it was copied. Errors: STATUS_NO_MEMORY; STATUS_INVALID when
 * divisors of rotary angles are not positive. */
MUST_USE enum status loader_load(struct program *p, const struct weights *w, struct device *d,
                                 struct loaded *out, struct load_progress *progress,
                                 struct error *err);
void loader_unload(struct device *d, struct loaded *l);
/* Returns the dtype of most weights, for the configuration hash and for display. */
enum dtype loader_main_dtype(const struct program *p, const struct weights *w);
