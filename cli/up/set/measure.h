#pragma once
/* Measures the memory that the workers of each model will need, by `cox plan` of each model in a
 * process of its own. No weights are read. */
#include "cli/up/plan/types.h"
#include "cli/up/set/types.h"
#include "common/base/status.h"

/* `set_measure_ask` is one model to measure. */
struct set_measure_ask {
    const struct up_child *worker; /* command line of the model's worker 0, borrowed */
    const char *program;           /* program with the command `plan`; NULL = that of the worker */
    const char *model;             /* MODEL for the workers */
    uint32_t n_workers;
    bool has_weights; /* false = the model null, or the null device: it needs no memory */
};

/* Measures n models at the same time. With on_gpus, *device_bytes is the memory that a worker may
 * use on the first GPU. `needs[i].name` must be set. STATUS_INVALID: a model cannot be planned; the
 * text names it. */
MUST_USE enum status set_measure(const struct set_measure_ask *asks, uint32_t n, bool on_gpus,
                                 struct set_need *needs, uint64_t *device_bytes, struct error *err);
/* Reads the JSON of `cox plan`. The function is pure. */
MUST_USE enum status set_measure_read(const char *json, struct set_need *need,
                                      uint64_t *device_bytes, struct error *err);
