#pragma once
/* Declares a table of struct ops (kernels/ops.h) for passes that are enqueued once and replayed. */
#include "common/base/status.h"
#include "kernels/op_params.h"

struct device;

enum record_state {
    RECORD_NONE,   /* the pass is not recorded: enqueue it */
    RECORD_BEGUN,  /* the pass is being recorded: enqueue it, then call `end`, which runs it */
    RECORD_PLAYED, /* the recording of the pass was enqueued: the caller does nothing more */
    /* The device could not record or replay the pass, but still works: enqueue the pass (again)
     * as usual. Passes with its key are not recorded again. */
    RECORD_REFUSED,
};

struct recording_ops {
    /* Passes that differ only in their uploads have one key, and the second of them is recorded.
     * NULL: the device never records. Upload the pass's data before this call. of_rows means
     * that the pass's operators use results of upload_rows and adapters.upload, and not only
     * numbers of this key. *why is set with RECORD_REFUSED. */
    enum record_state (*begin)(struct device *d, uint64_t key, bool of_rows, struct error *why);
    /* Ends a recording that was begun. Returns PLAYED when the pass runs now, or when the device
     * is lost, which sync reports. Returns REFUSED when the device refuses the recording.
     * is_whole false means that the caller has abandoned the recording: the result is NONE, or
     * REFUSED if the device had refused the recording before. */
    enum record_state (*end)(struct device *d, uint64_t key, bool is_whole, struct error *why);
    /* Returns whether the launches of a pass of these rows (host data) follow from their number
     * and not from their sequences; other passes must not be recorded. NULL if begin is NULL. */
    bool (*takes)(const struct device *d, const struct kv_row *rows, uint32_t n_rows);
    /* Drops all recordings, and a recording in progress, because the memory that they refer to
     * will be freed. */
    void (*drop)(struct device *d);
    /* returns the bytes of device memory that all recordings use */
    uint64_t (*bytes)(const struct device *d);
};
