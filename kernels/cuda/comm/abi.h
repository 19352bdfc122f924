#pragma once
/* Declares collectives between GPUs over NCCL, which is loaded when it is needed. There is one
 * object for each rank. This header has no NCCL or CUDA types (docs/develop/comm.md, "NCCL").
 * All tp x pp ranks of a model are one group; rank r of stage s has the position s * tp + r.
 *
 * Collectives are enqueued on the stream that the object was opened with and return at once.
 * Work that is enqueued later on that stream sees their results. They may be captured into
 * graphs (thread-local or relaxed mode) if the same call has run before outside of a graph,
 * because the first call connects. Every rank must make the same calls in the same order with
 * the same sizes, on memory of the same alignment.
 *
 * Threads: make_id, interrupt and overdue may be called from any thread. All other calls come
 * from one thread at a time, the compute thread. After any error except STATUS_INVALID for
 * arguments, the caller must call `leave`. Errors: STATUS_CLOSED (interrupted), STATUS_IO (a
 * peer or the device is lost), STATUS_TIMEOUT, STATUS_INVALID, STATUS_UNSUPPORTED. */
#include <stdatomic.h>

#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_COMM_ID_BYTES  128u
#define GPU_COMM_MAX_RANKS 64u
/* GPU_COMM_ONE_SHOT_BYTES is the device memory that a rank uses for small sums over peer memory,
 * in pages of 2 MiB. NCCL's own memory is not included. */
#define GPU_COMM_ONE_SHOT_BYTES (4ull << 20)

struct gpu_comm_options {
    const char *library; /* path or name of the library for dlopen; NULL: libnccl.so.2 */
    struct gpu_stream *stream;
    uint32_t join_timeout_ms;  /* limit of a join in ms; 0 = 20 s, less than a formation may take */
    uint32_t wait_timeout_ms;  /* limit of one wait in ms; 0 = 60 s */
    uint32_t leave_timeout_ms; /* limit of leaving a group in ms; 0 = 5 s */
    /* makes no sums over peer memory; if one rank sets this, no rank makes such sums */
    bool no_one_shot;
    /* counter that is incremented while the rank waits for peers; or NULL */
    _Atomic uint64_t *progress;
};

struct gpu_comm_group {
    uint32_t tp, pp, rank, stage;
    const uint8_t *id; /* id of the group, which make_id wrote at position 0 */
    uint32_t n_id;
};

/* `gpu_comm_columns` describes the columns of a float matrix whose rows are divided among a
 * stage's ranks. Rank r has n[r] columns, from first[r] on in a whole row. */
struct gpu_comm_columns {
    /* shape [n_rows][stride]; each rank's own columns begin at column 0. On rank 0, whose rows
     * have all columns, that is also their final place. */
    float *x;
    uint32_t n_rows, stride;
    const uint32_t *first, *n; /* shape [tp]: on the host; read during the call */
};

/* `gpu_comm_end` is the result of leaving a group. */
enum gpu_comm_end {
    GPU_COMM_LEFT,       /* memory and stream are intact; the object can join again */
    GPU_COMM_STUCK,      /* the abort has not ended; the process must exit */
    GPU_COMM_DEVICE_LOST /* the device has a sticky error; the process must exit */
};

struct gpu_comm;
struct gpu_comm_ops {
    /* returns a text such as "NCCL 2.28.9, libnccl.so.2" */
    const char *(*describe)(const struct gpu_comm *c);
    MUST_USE enum status (*make_id)(struct gpu_comm *c, uint8_t out[GPU_COMM_ID_BYTES],
                                    struct error *err);
    /* Joins the group g with all its ranks. Returns STATUS_TIMEOUT when not all ranks have
     * joined in time. */
    MUST_USE enum status (*join)(struct gpu_comm *c, const struct gpu_comm_group *g,
                                 struct error *err);
    /* Makes blocked calls return soon, and ends the group's enqueued work. A thread of the
     * object aborts the communicators; it marks all communicators before it frees the first. The
     * caller must then call `leave`. */
    void (*interrupt)(struct gpu_comm *c);
    /* Returns true when an abort has lasted a second longer than leave would wait. The thread
     * that should call leave is then stuck itself, and the process must exit. `overdue` may be
     * called from any thread. */
    bool (*overdue)(const struct gpu_comm *c);
    /* Interrupts blocked calls, and waits at most leave_timeout_ms for the stream to end. The
     * abort's mark ends work that waits for peers. Graphs may be destroyed afterwards. `err` has
     * the reason when the result is not GPU_COMM_LEFT. */
    enum gpu_comm_end (*drain)(struct gpu_comm *c, struct error *err);
    /* Aborts the communicators, and waits at most leave_timeout_ms for the abort and then for
     * the stream. Destroy graphs with collectives before this call, because NCCL waits for their
     * end. `leave` may be called without a group. *ms is the time since the abort began. `err`
     * has the reason when the result is not GPU_COMM_LEFT. */
    enum gpu_comm_end (*leave)(struct gpu_comm *c, uint32_t *ms, struct error *err);
    /* Frees an object that has left its group. The pointer may be NULL. */
    void (*close)(struct gpu_comm *c);

    /* Adds the other ranks' x to x, over the ranks of the stage. */
    MUST_USE enum status (*sum_bf16)(struct gpu_comm *c, void *x, size_t n, struct error *err);
    MUST_USE enum status (*sum_floats)(struct gpu_comm *c, float *x, size_t n, struct error *err);
    /* Sends the other ranks' columns to rank 0 of the stage, to their places in the rows. */
    MUST_USE enum status (*gather)(struct gpu_comm *c, const struct gpu_comm_columns *m,
                                   struct error *err);
    /* Sends `data` from the rank at position `root` to all ranks. */
    MUST_USE enum status (*broadcast)(struct gpu_comm *c, uint32_t root, void *data, size_t n_bytes,
                                      struct error *err);
    MUST_USE enum status (*send)(struct gpu_comm *c, uint32_t to, const void *data, size_t n_bytes,
                                 struct error *err);
    MUST_USE enum status (*receive)(struct gpu_comm *c, uint32_t from, void *data, size_t n_bytes,
                                    struct error *err);
    /* Waits until `done` returns something other than STATUS_AGAIN, and returns that status. If
     * `done` is NULL, it waits for the stream's end. An interrupt and a lost peer end the wait.
     * `done` is called repeatedly, so it must be cheap. */
    MUST_USE enum status (*wait)(struct gpu_comm *c,
                                 enum status (*done)(void *ctx, struct error *err), void *ctx,
                                 struct error *err);
};

/* `gpu_comm` is opaque, except for the fields below. */
struct gpu_comm {
    const struct gpu_comm_ops *ops;
    struct gpu_comm_group group; /* tp 0: the rank is in no group. `id` is not kept */
    /* In a group, sums of bfloat16 of at most this many bytes use memory that the ranks of the
     * stage map from each other (docs/develop/comm.md, "One-shot sums"). 0 = no sum uses it;
     * one_shot_why gives the reason. */
    uint64_t one_shot_bytes;
    char one_shot_why[160];
};

/* Loads the library. Returns STATUS_UNSUPPORTED when the library is missing, lacks a call or is
 * older than 2.18; the error text names the reason. The stream is borrowed. */
MUST_USE enum status gpu_comm_open(const struct gpu_comm_options *o, struct gpu_comm **out,
                                   struct error *err);
/* Does what gpu_comm_open does, on the stream of a device that cuda_device_open opened
 * (kernels/cuda/cuda.h); o->stream is not read. Also returns STATUS_UNSUPPORTED in a build
 * without the CUDA backend. */
MUST_USE enum status cuda_comm_open(struct device *d, const struct gpu_comm_options *o,
                                    struct gpu_comm **out, struct error *err);

#ifdef __cplusplus
}
#endif
