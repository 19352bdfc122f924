#pragma once
/* Declares what the files of the collectives over NCCL share: nccl_library.c (dlopen),
 * nccl_call.c (one call), nccl_ops.c (the collectives), nccl_oneshot.c (small sums over peer
 * memory), and above these nccl.c (joining, leaving, waiting). */
#include <pthread.h>

#include "kernels/cuda/comm/abi.h"
#include "kernels/cuda/comm/nccl_api.h"
#include "kernels/cuda/comm/oneshot.h"
#include "kernels/cuda/comm/peer_memory.h"

enum abort_state { ABORT_NONE, ABORT_WANTED, ABORT_DONE };

/* `nccl_oneshot` holds the state of small sums over peer memory. All fields except `words`
 * belong to the compute thread. The first group that may use such sums allocates the memory,
 * which is then kept. */
struct nccl_oneshot {
    uint32_t tag; /* mark of the current group */
    struct gpu_peer_memory own;
    /* device memory through which the ranks agree on sums; allocated by the first group of a
     * suitable size */
    void *scratch;
    /* `regions` holds the mapped region of each rank of the group; NULL: not mapped. */
    void *regions[GPU_ONESHOT_MAX_RANKS];
    /* pinned words that the host and kernels share; NULL: not allocated yet */
    _Atomic uint32_t *_Atomic words;
};

struct nccl_comm {
    struct gpu_comm base;
    struct gpu_comm_options o;
    struct nccl_api api;
    uint32_t version; /* version of the library: 22809 means 2.28.9 */
    char text[256];   /* text that `describe` returns */
    /* `all` and `stage` are the group's communicators. They are used inside of calls
     * (nccl_enter), and by the aborting thread when no call is in progress. */
    /* `stage` equals `all` with one stage; it is NULL if tp is 1 */
    struct nccl_native *all, *stage;
    _Atomic bool interrupted, in_call, has_comms;
    pthread_t thread; /* thread that aborts communicators */
    bool has_thread;
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t wake;
    enum abort_state abort_state;
    bool ends, abort_failed;
    char abort_text[256];
    _Atomic uint64_t abort_began_ns; /* start of the abort in ns; 0: no abort has begun */
    _Atomic bool abort_ended, unmapping;
    struct nccl_oneshot oneshot;
};

static inline struct nccl_comm *nccl_of(struct gpu_comm *c)
{
    return (struct nccl_comm *)c;
}

/* Enters a call of NCCL (nccl_call.c); nccl_exit ends it. Returns STATUS_CLOSED after an
 * interrupt, because communicators may then be freed at any moment. */
MUST_USE enum status nccl_enter(struct nccl_comm *c, struct error *err);
void nccl_exit(struct nccl_comm *c);
/* Converts the result of a call to a status. NCCL_SUCCESS becomes STATUS_OK, NCCL_IN_PROGRESS
 * becomes STATUS_AGAIN. */
MUST_USE enum status nccl_check(const struct nccl_comm *c, int result, const char *call,
                                struct error *err);
/* Waits until a call on *comm (&c->all or &c->stage), which returned `result`, is no longer in
 * progress. Call it outside of nccl_enter. */
MUST_USE enum status nccl_settle(struct nccl_comm *c, struct nccl_native *const *comm, int result,
                                 const char *call, uint32_t timeout_ms, struct error *err);
/* Returns STATUS_AGAIN while the communicator is busy with `call`. */
MUST_USE enum status nccl_look(struct nccl_comm *c, struct nccl_native *const *comm,
                               const char *call, struct error *err);
/* Returns STATUS_CLOSED and sets the text of this error. */
MUST_USE enum status nccl_interrupted(struct error *err);
/* Increments the progress counter, by which other threads detect that this rank still works. */
void nccl_bump(const struct nccl_comm *c);
/* Pauses a polling loop after its n-th iteration. The first iterations have no pause, the next
 * ones a short pause, and all later ones 20 us. */
void nccl_relax(uint32_t n);

/* Loads the library (nccl_library.c). Fills in api, version and text. */
MUST_USE enum status nccl_load(struct nccl_comm *c, const char *library, struct error *err);

/* The collectives below are in nccl_ops.c. */
MUST_USE enum status nccl_sum_bf16(struct gpu_comm *base, void *x, size_t n, struct error *err);
MUST_USE enum status nccl_sum_floats(struct gpu_comm *base, float *x, size_t n, struct error *err);
MUST_USE enum status nccl_gather(struct gpu_comm *base, const struct gpu_comm_columns *m,
                                 struct error *err);
MUST_USE enum status nccl_broadcast(struct gpu_comm *base, uint32_t root, void *data,
                                    size_t n_bytes, struct error *err);
MUST_USE enum status nccl_send(struct gpu_comm *base, uint32_t to, const void *data, size_t n_bytes,
                               struct error *err);
MUST_USE enum status nccl_receive(struct gpu_comm *base, uint32_t from, void *data, size_t n_bytes,
                                  struct error *err);

/* The functions below are in nccl_oneshot.c. base.one_shot_bytes is the most bytes that ranks
 * may sum over peer memory. It is 0 before the join and after the leave. */
void nccl_oneshot_close(struct nccl_comm *c);
/* Agrees with the other ranks of the stage whether sums over peer memory work. It is called
 * after the communicators have joined and base.group is set. */
MUST_USE enum status nccl_oneshot_join(struct nccl_comm *c, const struct gpu_comm_group *g,
                                       struct error *err);
/* Ends sums that wait for a rank. It may be called from any thread. */
void nccl_oneshot_interrupt(struct nccl_oneshot *o);
/* Returns STATUS_IO when a sum has ended because a rank did not arrive in time. */
MUST_USE enum status nccl_oneshot_check(const struct nccl_comm *c, struct error *err);
/* Unmaps the regions of the other ranks. The stream must have ended. */
void nccl_oneshot_leave(struct nccl_comm *c);
bool nccl_oneshot_takes(const struct nccl_comm *c, const void *x, size_t n);
MUST_USE enum status nccl_oneshot_sum(struct nccl_comm *c, void *x, size_t n, struct error *err);
