#pragma once
/* A table of struct ops (kernels/ops.h): passes that are enqueued once and replayed. */
#include "common/base/status.h"
#include "kernels/op_params.h"

struct device;

enum record_state {
    RECORD_NONE,   /* enqueue the pass: it is not recorded */
    RECORD_BEGUN,  /* enqueue it, then `end`: it is recorded, and runs there */
    RECORD_PLAYED, /* it was enqueued whole, as recorded */
    /* The device would not record or replay it, and works on: enqueue it, (again) as it is. Passes
     * of its key are not tried again. */
    RECORD_REFUSED,
};

struct recording_ops {
    /* Passes that differ in nothing but what was uploaded have one key, and the second of them is
     * recorded. NULL: never. Uploads of the pass come before. of_rows: its operators take what
     * upload_rows and adapters.upload gave, and not only numbers of this key. *why: of
     * RECORD_REFUSED. */
    enum record_state (*begin)(struct device *d, uint64_t key, bool of_rows, struct error *why);
    /* What was begun: PLAYED when it runs now, or the device is lost, which sync tells; REFUSED.
     * Not whole: given up by the caller, NONE unless the device had refused it before. */
    enum record_state (*end)(struct device *d, uint64_t key, bool is_whole, struct error *why);
    /* Whether what a pass enqueues for such rows, as the host has them, follows from their number
     * and not from whose they are: others may not be recorded. NULL as begin. */
    bool (*takes)(const struct device *d, const struct kv_row *rows, uint32_t n_rows);
    /* Forgets all of them, and one that was begun: what they refer to is not there any more. */
    void (*drop)(struct device *d);
    uint64_t (*bytes)(const struct device *d); /* of the device, that all of them took */
};
