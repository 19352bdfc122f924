#pragma once
/* Declares collectives between the ranks of a group on CPUs (docs/develop/comm.md). A rank opens
 * one `struct comm` for its life. It listens on an address that the other ranks can reach,
 * either from the start or from comm_listen on. The rank joins anew at each formation. Leaving
 * closes every link and keeps the listener.
 *
 * Every element of a sum is added in the order of ranks 0, 1, ..., for every size. Therefore
 * every rank gets the same bits, and a rank's row does not depend on its batch.
 *
 * Threads: open, listen, address, make_id, interrupt and close run on the loop thread (close
 * when nothing else runs), everything else on the compute thread, one call at a time. Every rank
 * calls the same collectives in the same order with the same sizes. A rank that breaks this rule
 * is detected (STATUS_INVALID), and no rank gets wrong numbers. After any error except wrong
 * arguments the caller must call comm_leave. */
#include <stdatomic.h>
#include <stddef.h>

#include "worker/comm/group.h"

struct comm;

struct comm_options {
    const char *host; /* numeric address or name of this host; NULL = do not listen yet */
    uint16_t port;    /* port to listen on; 0 = any free port */
    /* incremented while waiting for a peer, to show that this rank is not stuck; may be NULL */
    _Atomic uint64_t *progress;
    uint32_t timeout_ms; /* a collective fails when no peer moves a byte for this time; 0 = 60 s */
    bool no_shared_memory; /* use sockets even between ranks of one host */
};

/* Opens a communicator. Returns STATUS_INVALID or STATUS_IO, with the address in the text, when
 * the rank cannot listen there. */
MUST_USE enum status comm_open(const struct comm_options *o, struct comm **out, struct error *err);
void comm_close(struct comm *c); /* `c` may be NULL */
/* Returns the bytes that a comm uses in a group of n_ranks with links to all: scratch and the
 * memory of the links (docs/develop/comm.md, "Memory"). Returns 0 for one rank. */
uint64_t comm_memory_bytes(uint32_t n_ranks);
/* Changes the listening address from the next comm_join on, since a host's address may become
 * known late or change. The present group continues. After an error (those of comm_open) nothing
 * has changed. */
MUST_USE enum status comm_listen(struct comm *c, const char *host, struct error *err);
/* Returns the numeric HOST:PORT that peers connect to; "" without a host. The string is valid
 * until comm_listen or comm_close. */
const char *comm_address(const struct comm *c);

/* Makes the secret id of a communicator. Rank 0 calls it. */
void comm_make_id(uint8_t out[COMM_ID_BYTES]);

/* Links this rank with every other rank of `g`, or only with those in g->links. The text of an
 * error names the rank and the address that failed. */
MUST_USE enum status comm_join(struct comm *c, const struct comm_group *g, struct error *err);
/* Closes the links and clears an interrupt. Outside a group it only clears the interrupt. */
void comm_leave(struct comm *c);

/* comm_group_bytes returns the bytes that a group or a part of n_ranks uses beside its links.
 * comm_link_bytes returns those of one link. */
uint64_t comm_group_bytes(uint32_t n_ranks, bool sums);
uint64_t comm_link_bytes(void);
/* Checks the links between collectives. Returns STATUS_IO when a peer cannot be reached any
 * more, even if no data shows it. */
MUST_USE enum status comm_check(struct comm *c, struct error *err);
/* Makes a blocking call return STATUS_CLOSED soon. Every later call returns it too, until
 * comm_leave. Any thread may call it, at any time between open and close. */
void comm_interrupt(struct comm *c);

uint32_t comm_rank(const struct comm *c); /* returns the rank in the group; 0 outside a group */
uint32_t comm_n_ranks(const struct comm *c);
/* `comm_here` counts the ranks that share this rank's CPUs and have links with it, this rank
 * included. It holds their number, and how many of them have a lower rank. Ranks of one host
 * that are bound to other NUMA nodes do not count. */
struct comm_here {
    uint32_t i, n;
};
struct comm_here comm_here(const struct comm *c);
/* Returns "shared memory", "TCP" or "shared memory to 3 of 7 ranks, TCP", for the log; "" for a
 * rank alone. */
const char *comm_transport(const struct comm *c);

/* Adds the other ranks' `x` to this rank's `x`, in rank order. */
MUST_USE enum status comm_all_reduce(struct comm *c, float *x, size_t n, struct error *err);

/* `comm_part` is the data of one rank. Callers pass [n_ranks] of them, with the same sizes on
 * all ranks. */
struct comm_part {
    void *data;
    size_t n_bytes;
};
/* Sends this rank's own part to the other ranks, and receives theirs. */
MUST_USE enum status comm_all_gather(struct comm *c, const struct comm_part *parts,
                                     struct error *err);
/* Like comm_all_gather, but only rank `root` gets the parts. The other ranks need data only for
 * their own part. */
MUST_USE enum status comm_gather(struct comm *c, uint32_t root, const struct comm_part *parts,
                                 struct error *err);
MUST_USE enum status comm_broadcast(struct comm *c, uint32_t root, void *data, size_t n_bytes,
                                    struct error *err);
