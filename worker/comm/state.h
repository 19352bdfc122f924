#pragma once
/* Declares the state of a communicator, for the files of this folder. */
#include <pthread.h>

#include "worker/comm/address.h"
#include "worker/comm/exchange.h"
#include "worker/comm/group.h"
#include "worker/comm/wait.h"

struct comm {
    /* rank, n_ranks and peers of the group; n_ranks is 1 outside a group */
    struct exchange exchange;
    struct waiter waiter; /* interrupt and progress, used by every wait */
    /* guards next_fd and the addresses; keeps the interrupt's flag and eventfd consistent */
    pthread_mutex_t mutex;
    int listener_fd; /* listener of the compute thread; -1 = none yet */
    int next_fd;     /* replaces listener_fd at the next join; under the mutex; -1 = none */
    uint16_t port;   /* port to listen on; 0 = any free port */
    bool no_shared_memory;
    uint32_t timeout_ms, n_cpus;
    char address[COMM_ADDRESS_MAX]; /* newest address; loop thread only */
    /* address that listener_fd listens on; written under the mutex */
    char listens_at[COMM_ADDRESS_MAX];
    char next_at[COMM_ADDRESS_MAX]; /* address of next_fd */
    char transport[64];
    enum status failed; /* first error in this group; every call returns it until comm_leave */
    /* whole group of a part, which uses only `exchange` of the fields above; NULL = not a part */
    struct comm *whole;
    struct comm *parts[COMM_MAX_PARTS];
    uint32_t n_parts;
    /* [n_ranks][COMM_BLOCK_FLOATS], the other ranks' values of a sum; NULL = no sums */
    float *scratch;
};

/* number of floats in `scratch` per rank */
#define COMM_BLOCK_FLOATS ((256u << 10) / sizeof(float))

/* Removes the members of the group. Closes the group's links, but not those that a part borrows
 * from its whole group. */
void comm_forget_group(struct comm *c);
/* Allocates peers and scratch for a group of n_ranks. */
MUST_USE enum status comm_make_room(struct comm *c, uint32_t n_ranks, bool sums, struct error *err);
