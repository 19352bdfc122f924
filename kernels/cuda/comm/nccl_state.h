#pragma once
/* The files of the collectives over NCCL share this: nccl_library.c (dlopen), nccl_call.c (one
 * call), nccl_ops.c (the collectives), nccl_oneshot.c (small sums over peer memory), and above them
 * nccl.c (joining, leaving, waiting). */
#include <pthread.h>

#include "kernels/cuda/comm/abi.h"
#include "kernels/cuda/comm/nccl_api.h"
#include "kernels/cuda/comm/oneshot.h"
#include "kernels/cuda/comm/peer_memory.h"

enum abort_state { ABORT_NONE, ABORT_WANTED, ABORT_DONE };

/* Small sums over peer memory: the compute thread's, but for words. Memory is allocated by the
 * first group that may use it, and stays. */
struct nccl_oneshot {
    uint32_t tag; /* the group's */
    struct gpu_peer_memory own;
    void *scratch;                        /* for agreeing; of any group whose size allows it */
    void *regions[GPU_ONESHOT_MAX_RANKS]; /* of the group's ranks; NULL: not mapped */
    _Atomic uint32_t *_Atomic words;      /* pinned, between host and kernels; NULL: not yet */
};

struct nccl_comm {
    struct gpu_comm base;
    struct gpu_comm_options o;
    struct nccl_api api;
    uint32_t version; /* 22809 for 2.28.9 */
    char text[256];   /* of describe */
    /* Of a group; touched inside of calls (nccl_enter), and by the aborting thread when none runs.
     */
    struct nccl_native *all, *stage; /* stage: all, with one stage; NULL where tp is 1 */
    _Atomic bool interrupted, in_call, has_comms;
    pthread_t thread; /* that aborts */
    bool has_thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t wake;
    enum abort_state abort_state;
    bool ends, abort_failed;
    char abort_text[256];
    _Atomic uint64_t abort_began_ns; /* 0: none has */
    _Atomic bool abort_ended, unmapping;
    struct nccl_oneshot oneshot;
};

static inline struct nccl_comm *nccl_of(struct gpu_comm *c)
{
    return (struct nccl_comm *)c;
}

/* nccl_call.c. A call of NCCL is to be made. STATUS_CLOSED: interrupted, and communicators may be
 * freed any moment. */
MUST_USE enum status nccl_enter(struct nccl_comm *c, struct error *err);
void nccl_exit(struct nccl_comm *c);
/* What a call returned, as ours: NCCL_SUCCESS is STATUS_OK, NCCL_IN_PROGRESS STATUS_AGAIN. */
MUST_USE enum status nccl_check(const struct nccl_comm *c, int result, const char *call,
                                struct error *err);
/* After a call on *comm (&c->all or &c->stage) whose result that was, outside of nccl_enter: until
 * it is no longer in progress. */
MUST_USE enum status nccl_settle(struct nccl_comm *c, struct nccl_native *const *comm, int result,
                                 const char *call, uint32_t timeout_ms, struct error *err);
/* STATUS_AGAIN: the communicator is busy with what it was told by `call`. */
MUST_USE enum status nccl_look(struct nccl_comm *c, struct nccl_native *const *comm,
                               const char *call, struct error *err);
/* STATUS_CLOSED. */
MUST_USE enum status nccl_interrupted(struct error *err);
/* Counts one more sign of life, for the code that watches this rank. */
void nccl_bump(const struct nccl_comm *c);
/* A moment's rest of a loop that has turned n times: first none, then short, then 20 us. */
void nccl_relax(uint32_t n);

/* nccl_library.c: fills api, version, text. */
MUST_USE enum status nccl_load(struct nccl_comm *c, const char *library, struct error *err);

/* nccl_ops.c */
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

/* nccl_oneshot.c. What its ranks may sum so is in base.one_shot_bytes, 0 before and after. */
void nccl_oneshot_close(struct nccl_comm *c);
/* Behind the communicators, with base.group set: finds out with the other ranks of the stage. */
MUST_USE enum status nccl_oneshot_join(struct nccl_comm *c, const struct gpu_comm_group *g,
                                       struct error *err);
/* Any thread. Kernels that wait for a rank end soon. */
void nccl_oneshot_interrupt(struct nccl_oneshot *o);
/* STATUS_IO: a sum has ended because a rank did not come in time. */
MUST_USE enum status nccl_oneshot_check(const struct nccl_comm *c, struct error *err);
/* When the stream has come to its end. */
void nccl_oneshot_leave(struct nccl_comm *c);
bool nccl_oneshot_takes(const struct nccl_comm *c, const void *x, size_t n);
MUST_USE enum status nccl_oneshot_sum(struct nccl_comm *c, void *x, size_t n, struct error *err);
