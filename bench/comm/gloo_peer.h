#pragma once
/* Calls gloo's collectives over TCP on loopback, for comparison. gloo_peer.cpp implements the
 * calls where libgloo-dev is installed, gloo_absent.c elsewhere. Each rank uses one thread, and
 * gloo starts additional threads. Failures are reported on stderr. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gloo_peer_built is false when gloo is absent; gloo_peer_open then fails. */
extern const bool gloo_peer_built;

enum gloo_way {
    GLOO_RING,    /* gloo::allreduce with its ring algorithm */
    GLOO_BCUBE,   /* gloo::allreduce with its cube algorithm */
    GLOO_ORDERED, /* gloo::allgather, then a local sum in the order of ranks */
    GLOO_SYNC,    /* halving-doubling, one-to-all: the caller polls the sockets without sleeping */
    GLOO_WAY_COUNT
};

struct gloo_peer;
/* Opens one rank. Ranks find each other through files in `folder`. Returns NULL on failure. */
struct gloo_peer *gloo_peer_open(const char *folder, uint32_t rank, uint32_t n_ranks);
void gloo_peer_close(struct gloo_peer *p);

/* Sums x[n] of all ranks in place. Buffers must stay at their addresses until close. */
bool gloo_peer_all_reduce(struct gloo_peer *p, enum gloo_way way, float *x, size_t n);
/* Collects own[n] of every rank in out[n_ranks][n] of the root. */
bool gloo_peer_gather(struct gloo_peer *p, uint32_t root, float *own, float *out, size_t n);
/* Copies the root's x[n] to all ranks. way: GLOO_RING for gloo::broadcast, or GLOO_SYNC for
 * one-to-all. */
bool gloo_peer_broadcast(struct gloo_peer *p, enum gloo_way way, uint32_t root, float *x, size_t n);

#ifdef __cplusplus
}
#endif
