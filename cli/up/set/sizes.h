#pragma once
/* Finds out what memory there is for a set, and what each of its models needs. */
#include "cli/up/plan/types.h"
#include "cli/up/set/memory.h"

/* `set_sized` is one model of the set. All pointers are borrowed. */
struct set_sized {
    const struct set_model *model;
    const struct up_plan *plan;
    const char *source; /* MODEL for the workers */
};

struct set_sizes_ask {
    const struct set_sized *models;
    uint32_t n, n_gpus;
    uint64_t host_bytes; /* memory of the host that the models may use */
    int64_t given_bytes; /* --models-memory; 0 = not given */
    const char *program; /* program with the command `plan`; NULL = that of the workers */
};

/* Sets *memory and needs[0..n). STATUS_INVALID: a model cannot be planned, or the models have
 * different kinds of device; the text names it. */
MUST_USE enum status set_sizes(const struct set_sizes_ask *ask, struct set_memory *memory,
                               struct set_need *needs, struct error *err);
/* The same when it is known whether the models compute on GPUs. Sets needs[0..n) and the memory of
 * a GPU. */
MUST_USE enum status set_sizes_measure(const struct set_sizes_ask *ask, bool on_gpus,
                                       struct set_need *needs, uint64_t *device_bytes,
                                       struct error *err);
