#pragma once
/* Collectives between GPUs, over NCCL, which is loaded when it is needed: one object for each rank,
 * no NCCL or CUDA type (docs/develop/comm.md, "NCCL"). All tp x pp ranks of a model are one group;
 * rank r of stage s is its position s * tp + r.
 *
 * Collectives are enqueued on the stream that the object was opened with and return at once; their
 * results are there for what is enqueued behind them. They may be captured into graphs
 * (thread-local or relaxed mode) when the same call has run before outside of one: a first call
 * connects. Every rank calls the same ones in the same order with the same sizes, of memory that
 * is aligned alike.
 *
 * Threads: make_id, interrupt and overdue from any thread; all else by one thread at a time, the
 * compute thread. After any error but of arguments `leave` is due. Errors: STATUS_CLOSED
 * interrupted, STATUS_IO a peer or the device is lost, STATUS_TIMEOUT, STATUS_INVALID,
 * STATUS_UNSUPPORTED. */
#include <stdatomic.h>

#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_COMM_ID_BYTES  128u
#define GPU_COMM_MAX_RANKS 64u
/* What small sums over peer memory take of a rank's device beside the library, in pages of 2 MiB.
 */
#define GPU_COMM_ONE_SHOT_BYTES (4ull << 20)

struct gpu_comm_options {
    const char *library; /* a path or a name for dlopen; NULL: libnccl.so.2 */
    struct gpu_stream *stream;
    uint32_t join_timeout_ms;   /* 0: 20 s, less than a formation may take */
    uint32_t wait_timeout_ms;   /* of one wait; 0: 60 s */
    uint32_t leave_timeout_ms;  /* 0: 5 s */
    bool no_one_shot;           /* no sums over peer memory; one rank's wish is all ranks' */
    _Atomic uint64_t *progress; /* bumped while peers are waited for; or NULL */
};

struct gpu_comm_group {
    uint32_t tp, pp, rank, stage;
    const uint8_t *id; /* as make_id wrote it at position 0 */
    uint32_t n_id;
};

/* Columns of a float matrix whose rows a stage's ranks share; rank r has n[r], from first[r] on in
 * a whole row. */
struct gpu_comm_columns {
    float *x; /* [n_rows][stride]; a rank's own lie at 0, as rank 0's do in the whole row */
    uint32_t n_rows, stride;
    const uint32_t *first, *n; /* [tp], of the host; read during the call */
};

/* How a group was left. */
enum gpu_comm_end {
    GPU_COMM_LEFT,       /* memory and stream are as they were: join again */
    GPU_COMM_STUCK,      /* the abort has not come to an end: the process has to */
    GPU_COMM_DEVICE_LOST /* a sticky error of the device: the process has to end */
};

struct gpu_comm;
struct gpu_comm_ops {
    const char *(*describe)(const struct gpu_comm *c); /* "NCCL 2.28.9, libnccl.so.2" */
    MUST_USE enum status (*make_id)(struct gpu_comm *c, uint8_t out[GPU_COMM_ID_BYTES],
                                    struct error *err);
    /* Meets all ranks of g. STATUS_TIMEOUT: not all of them came. */
    MUST_USE enum status (*join)(struct gpu_comm *c, const struct gpu_comm_group *g,
                                 struct error *err);
    /* What blocks in here returns soon, and what is enqueued of the group ends: communicators are
     * aborted by a thread of the object, all marked before one is freed. leave follows. */
    void (*interrupt)(struct gpu_comm *c);
    /* An abort has been under way for a second longer than leave would wait: whoever is to call
     * leave is stuck itself, and the process has to end. Any thread. */
    bool (*overdue)(const struct gpu_comm *c);
    /* Interrupts, and waits for the stream's end, for leave_timeout_ms at most: what waits for
     * peers ends by the abort's mark. Behind it graphs may be destroyed. err: why it is not
     * GPU_COMM_LEFT.
     */
    enum gpu_comm_end (*drain)(struct gpu_comm *c, struct error *err);
    /* Aborts and waits, for leave_timeout_ms at most; then for the stream. Graphs with collectives
     * in them are to be destroyed before: NCCL waits for their end. Fine when there is no group.
     * *ms: since the abort began. err: why it is not GPU_COMM_LEFT. */
    enum gpu_comm_end (*leave)(struct gpu_comm *c, uint32_t *ms, struct error *err);
    /* Of an object that is left. NULL is fine. */
    void (*close)(struct gpu_comm *c);

    /* x += the other ranks' x, over the stage. */
    MUST_USE enum status (*sum_bf16)(struct gpu_comm *c, void *x, size_t n, struct error *err);
    MUST_USE enum status (*sum_floats)(struct gpu_comm *c, float *x, size_t n, struct error *err);
    /* The others' columns to rank 0 of the stage, at their places. */
    MUST_USE enum status (*gather)(struct gpu_comm *c, const struct gpu_comm_columns *m,
                                   struct error *err);
    /* From the rank at that position to all. */
    MUST_USE enum status (*broadcast)(struct gpu_comm *c, uint32_t root, void *data, size_t n_bytes,
                                      struct error *err);
    MUST_USE enum status (*send)(struct gpu_comm *c, uint32_t to, const void *data, size_t n_bytes,
                                 struct error *err);
    MUST_USE enum status (*receive)(struct gpu_comm *c, uint32_t from, void *data, size_t n_bytes,
                                    struct error *err);
    /* Until done says something else than STATUS_AGAIN, and that; or the stream's end when done is
     * NULL. An interrupt and a lost peer end it. done is called again and again: cheap. */
    MUST_USE enum status (*wait)(struct gpu_comm *c,
                                 enum status (*done)(void *ctx, struct error *err), void *ctx,
                                 struct error *err);
};

/* Opaque but for its table. */
struct gpu_comm {
    const struct gpu_comm_ops *ops;
    struct gpu_comm_group group; /* tp 0: none. id is not kept */
    /* Of a group: sums of bfloat16 of at most so many bytes go over memory that the ranks of the
     * stage map from each other (docs/develop/comm.md, "One-shot sums"); 0: none, for the reason
     * given. */
    uint64_t one_shot_bytes;
    char one_shot_why[160];
};

/* Loads the library. STATUS_UNSUPPORTED: it is not here, lacks a call, or is older than 2.18; the
 * text names it. The stream is borrowed. */
MUST_USE enum status gpu_comm_open(const struct gpu_comm_options *o, struct gpu_comm **out,
                                   struct error *err);
/* The same on the stream of a device that cuda_device_open opened (kernels/cuda/cuda.h); o->stream
 * is not read. STATUS_UNSUPPORTED too in a build without the CUDA backend. */
MUST_USE enum status cuda_comm_open(struct device *d, const struct gpu_comm_options *o,
                                    struct gpu_comm **out, struct error *err);

#ifdef __cplusplus
}
#endif
