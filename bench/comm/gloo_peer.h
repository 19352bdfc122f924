#pragma once
/* Gloo's collectives over TCP on loopback, for comparison: gloo_peer.cpp where libgloo-dev is
 * installed, gloo_absent.c elsewhere. One thread per rank; gloo has its own beside it. What fails
 * says so on stderr. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there is anything behind this; open fails otherwise. */
extern const bool gloo_peer_built;

enum gloo_way {
    GLOO_RING,    /* gloo::allreduce, its ring */
    GLOO_BCUBE,   /* gloo::allreduce, its cube */
    GLOO_ORDERED, /* gloo::allgather, then added here in the order of ranks */
    GLOO_SYNC,    /* halving-doubling, one-to-all: sockets polled by the caller without sleeping */
    GLOO_WAY_COUNT
};

struct gloo_peer;
/* Ranks find each other through files in folder. NULL: failed. */
struct gloo_peer *gloo_peer_open(const char *folder, uint32_t rank, uint32_t n_ranks);
void gloo_peer_close(struct gloo_peer *p);

/* Buffers have to stay where they are until close. */
bool gloo_peer_all_reduce(struct gloo_peer *p, enum gloo_way way, float *x, size_t n);
/* own[n] of every rank to out[n_ranks][n] of root. */
bool gloo_peer_gather(struct gloo_peer *p, uint32_t root, float *own, float *out, size_t n);
/* way: GLOO_RING for gloo::broadcast, or GLOO_SYNC. */
bool gloo_peer_broadcast(struct gloo_peer *p, enum gloo_way way, uint32_t root, float *x, size_t n);

#ifdef __cplusplus
}
#endif
