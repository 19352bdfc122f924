#pragma once
/* Declares the collectives of a rank on a GPU, which use NCCL on the device's stream
 * (docs/develop/comm.md, "NCCL"). The code logs when a rank joins a group and when the group
 * ends. Activations are bfloat16.
 *
 * Threads: open, make_id, interrupt, overdue and close run on the loop thread, everything else
 * on the compute thread. Life cycle: open; join; collectives; interrupt (the head's Abort);
 * drain; the executor drops recorded passes; leave; join again. */
#include "kernels/cuda/comm/abi.h"
#include "worker/collectives/collectives.h"
#include "worker/comm/stages.h"

struct collectives_gpu;
struct collectives_gpu_options {
    struct device *device;      /* device from cuda_device_open; borrowed */
    const char *library;        /* path from --nccl-library; NULL = libnccl.so.2 */
    uint32_t leave_timeout_ms;  /* limit of collectives_gpu_leave; 0 = 5 s */
    uint32_t wait_timeout_ms;   /* limit of one wait; 0 = 60 s */
    bool no_one_shot;           /* also use NCCL for small sums */
    _Atomic uint64_t *progress; /* incremented while a wait continues; may be NULL */
};
/* Returns an upper bound of the device memory that NCCL and the one-shot sums take from a rank,
 * for any rank slot of tp x pp ranks. It is an estimate made before NCCL is loaded
 * (docs/develop/comm.md, "Memory of NCCL"). Returns 0 for one rank. */
uint64_t collectives_gpu_bytes(uint32_t tp, uint32_t pp);
/* Opens the library and the communicator. Errors are those of cuda_comm_open. */
MUST_USE enum status collectives_gpu_open(const struct collectives_gpu_options *o,
                                          struct collectives_gpu **out, struct error *err);
/* Frees `c`, which must have left its group cleanly or never joined one. Does nothing when `c`
 * is NULL. */
void collectives_gpu_close(struct collectives_gpu *c);
/* Returns the vtable object for the runner; NULL when `c` is NULL. */
struct collectives *collectives_gpu_base(struct collectives_gpu *c);
/* Writes a fresh communicator id of GPU_COMM_ID_BYTES to `out`. Rank 0 of stage 0 calls it. */
MUST_USE enum status collectives_gpu_make_id(struct collectives_gpu *c, uint8_t *out,
                                             struct error *err);
/* Joins the group. Errors are those of gpu_comm's join. After an error the caller must call
 * collectives_gpu_leave. */
MUST_USE enum status collectives_gpu_join(struct collectives_gpu *c, const struct comm_place *p,
                                          struct bytes id, struct error *err);
/* Calls `done` repeatedly until it returns a status other than STATUS_AGAIN, and returns that
 * status. A lost peer (STATUS_IO), an interrupt (STATUS_CLOSED) and the deadline of a wait take
 * precedence over `done`, because a collective that they ended has written wrong numbers. */
MUST_USE enum status collectives_gpu_wait(struct collectives_gpu *c,
                                          enum status (*done)(void *ctx, struct error *err),
                                          void *ctx, struct error *err);
/* Returns STATUS_OK when this rank knows of no lost rank. Errors are those of
 * collectives_gpu_wait. This call does not wait. */
MUST_USE enum status collectives_gpu_look(struct collectives_gpu *c, struct error *err);
/* Makes blocking calls return STATUS_CLOSED soon and begins to abort the collectives.
 * collectives_gpu_leave must follow. */
void collectives_gpu_interrupt(struct collectives_gpu *c);
/* Returns true when the compute thread should call collectives_gpu_leave but is blocked itself.
 * The process must then end. The first such call logs collective_abort_failed. */
bool collectives_gpu_overdue(struct collectives_gpu *c);
/* Interrupts the collectives and waits for the work on the device. Recorded passes must not be
 * destroyed while they run, and NCCL's abort waits until they are destroyed. Returns false when
 * the device has not finished. In that case collectives_gpu_leave returns the error, and no
 * later call may wait for the device. */
bool collectives_gpu_drain(struct collectives_gpu *c);
/* Leaves the group. Call it after collectives_gpu_drain and after the recorded passes were
 * destroyed. STATUS_OK: the memory is free again and the rank can join again. A clean end is
 * logged as collective_aborted ms=N. Any other status: the process must end, and `err` says why.
 * This end is logged as collective_abort_failed or device_lost. */
MUST_USE enum status collectives_gpu_leave(struct collectives_gpu *c, struct error *err);
