#pragma once
/* What a comm is, for the files of this folder. */
#include <pthread.h>

#include "worker/comm/address.h"
#include "worker/comm/exchange.h"
#include "worker/comm/group.h"
#include "worker/comm/wait.h"

struct comm {
    struct exchange exchange; /* rank, n_ranks, peers; n_ranks 1 outside a group */
    struct waiter waiter;     /* interrupt and progress, for every wait */
    pthread_mutex_t mutex;    /* the flag and the eventfd of an interrupt change together */
    int listener_fd;          /* the compute thread's; -1: none yet */
    int next_fd;              /* under the mutex: takes its place at the next join; -1: none */
    uint16_t port;            /* 0: any */
    bool no_shared_memory;
    uint32_t timeout_ms, n_cpus;
    char address[COMM_ADDRESS_MAX];    /* the loop thread's */
    char listens_at[COMM_ADDRESS_MAX]; /* of listener_fd; written under the mutex */
    char next_at[COMM_ADDRESS_MAX];    /* of next_fd */
    char transport[64];
    enum status failed; /* of this group: whoever goes on reads this until comm_leave */
    struct comm *whole; /* of a part, which has nothing of the above but exchange; or NULL */
    struct comm *parts[COMM_MAX_PARTS];
    uint32_t n_parts;
    float *scratch; /* [n_ranks][a block], what the others put into a sum; NULL: no sums */
};

#define COMM_BLOCK_FLOATS ((256u << 10) / sizeof(float)) /* of scratch for each rank */

/* Its members are gone; links of a whole are closed. */
void comm_forget_group(struct comm *c);
/* Peers and scratch of a group of n_ranks. */
MUST_USE enum status comm_make_room(struct comm *c, uint32_t n_ranks, bool sums, struct error *err);
