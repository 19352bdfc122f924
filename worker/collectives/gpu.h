#pragma once
/* The collectives of a rank on a GPU: NCCL on the device's stream (docs/develop/comm.md, "NCCL"),
 * and what becomes of the group, said in the log. Activations are bfloat16.
 *
 * Threads: open, make_id, interrupt, overdue and close on the loop's thread; all else on the
 * compute thread. Life: open; join; collectives; interrupt (the head's Abort); drain; recorded
 * passes are dropped; leave; join ... */
#include "kernels/cuda/comm/abi.h"
#include "worker/collectives/collectives.h"
#include "worker/comm/stages.h"

struct collectives_gpu;
struct collectives_gpu_options {
    struct device *device;      /* of cuda_device_open; borrowed */
    const char *library;        /* --nccl-library; NULL: libnccl.so.2 */
    uint32_t leave_timeout_ms;  /* 0: 5 s */
    uint32_t wait_timeout_ms;   /* of one wait; 0: 60 s */
    bool no_one_shot;           /* NCCL has small sums too */
    _Atomic uint64_t *progress; /* or NULL */
};
/* What NCCL, and small sums beside it, are going to take of a rank's device, at most, in any rank
 * slot of tp x pp ranks: known before it is there, and not asked of it (docs/develop/comm.md,
 * "Memory of NCCL"). 0 for one rank. */
uint64_t collectives_gpu_bytes(uint32_t tp, uint32_t pp);
/* Errors as cuda_comm_open. */
MUST_USE enum status collectives_gpu_open(const struct collectives_gpu_options *o,
                                          struct collectives_gpu **out, struct error *err);
/* Of one that was left well, or was never joined. NULL is fine. */
void collectives_gpu_close(struct collectives_gpu *c);
/* The runner's. */
struct collectives *collectives_gpu_base(struct collectives_gpu *c);
/* GPU_COMM_ID_BYTES; for rank 0 of stage 0. */
MUST_USE enum status collectives_gpu_make_id(struct collectives_gpu *c, uint8_t *out,
                                             struct error *err);
/* Errors as of gpu_comm's join; leave is due after one. */
MUST_USE enum status collectives_gpu_join(struct collectives_gpu *c, const struct comm_place *p,
                                          struct bytes id, struct error *err);
/* Until done, which is called again and again, says something else than STATUS_AGAIN, and that.
 * Whatever it says, a lost peer (STATUS_IO), an interrupt (STATUS_CLOSED) and the deadline of a
 * wait come first: a collective that they ended has left any numbers behind. */
MUST_USE enum status collectives_gpu_wait(struct collectives_gpu *c,
                                          enum status (*done)(void *ctx, struct error *err),
                                          void *ctx, struct error *err);
/* Are all ranks still here, as far as this one knows? Errors as of the wait; it does not wait. */
MUST_USE enum status collectives_gpu_look(struct collectives_gpu *c, struct error *err);
/* What blocks returns STATUS_CLOSED soon, and the abort begins. leave follows. */
void collectives_gpu_interrupt(struct collectives_gpu *c);
/* Who is to call leave is stuck itself: the process has to end. Logged once as
 * collective_abort_failed. */
bool collectives_gpu_overdue(struct collectives_gpu *c);
/* Interrupts, and waits for what is under way on the device: recorded passes must not be destroyed
 * while they run, and NCCL's abort waits until they are destroyed.
 * False: the device has not come to an end, leave says so, and nothing of it may be waited for. */
bool collectives_gpu_drain(struct collectives_gpu *c);
/* After drain and the end of recorded passes. STATUS_OK: memory is as it was, join again. Anything
 * else: the process has to end, and the text says why; logged as collective_abort_failed or
 * device_lost, a clean end as collective_aborted ms=N. */
MUST_USE enum status collectives_gpu_leave(struct collectives_gpu *c, struct error *err);
