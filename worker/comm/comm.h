#pragma once
/* Collectives between the ranks of a group on CPUs (docs/develop/comm.md). A rank opens one
 * comm for its life: it listens where the others will reach it, from the start or from comm_listen
 * on. Each formation joins anew; leaving closes every link and keeps the listener.
 *
 * Sums are added in the order of ranks 0, 1, ... for every element, whatever the size and whatever
 * the way it goes, so every rank has the same bits and a rank's row does not depend on its batch.
 *
 * Threads: open, listen, address, make_id, interrupt and close on the loop's thread (close when
 * nothing else runs); all else on the compute thread, one call at a time. Every rank calls the same
 * collectives in the same order with the same sizes; one that does not is told apart
 * (STATUS_INVALID), not answered with other numbers. After any error but one of arguments,
 * comm_leave is due. */
#include <stdatomic.h>
#include <stddef.h>

#include "worker/comm/group.h"

struct comm;

struct comm_options {
    const char *host; /* a numeric address of this host, or a name of one; NULL: nowhere yet */
    uint16_t port;    /* to listen on; 0: any that is free */
    _Atomic uint64_t
        *progress;         /* bumped while a peer is waited for: this rank is not stuck. Or NULL */
    uint32_t timeout_ms;   /* a collective in which no peer moves a byte for so long has failed; 0:
                              60 s */
    bool no_shared_memory; /* sockets also between ranks of one host */
};

/* STATUS_INVALID, STATUS_IO: no such address here; the text names it. */
MUST_USE enum status comm_open(const struct comm_options *o, struct comm **out, struct error *err);
void comm_close(struct comm *c); /* NULL is fine */
/* What a comm holds in a group of n_ranks, linked with all: scratch, and what its links map
 * (docs/develop/comm.md, "Memory"). 0 for one rank. */
uint64_t comm_memory_bytes(uint32_t n_ranks);
/* Listens there instead, from the next comm_join on: a host's address is known late, or changes.
 * The group there is goes on as it was. Errors as of comm_open, and everything is as before. */
MUST_USE enum status comm_listen(struct comm *c, const char *host, struct error *err);
/* Numeric HOST:PORT that peers connect to; "" without a host. Valid until comm_listen, comm_close.
 */
const char *comm_address(const struct comm *c);

/* A communicator's secret id, for rank 0 to make. */
void comm_make_id(uint8_t out[COMM_ID_BYTES]);

/* Links this rank with every other one of g. The error names the rank and the address that failed.
 */
MUST_USE enum status comm_join(struct comm *c, const struct comm_group *g, struct error *err);
/* Closes the links and clears an interrupt. Fine when there is no group. */
void comm_leave(struct comm *c);

/* What a group or a part of n_ranks holds beside its links; and one link. */
uint64_t comm_group_bytes(uint32_t n_ranks, bool sums);
uint64_t comm_link_bytes(void);
/* Between collectives: STATUS_IO when a peer cannot be reached any more, though no byte says so. */
MUST_USE enum status comm_check(struct comm *c, struct error *err);
/* Whatever blocks returns STATUS_CLOSED soon, and so does every later call until comm_leave. Any
 * thread, any time between open and close. */
void comm_interrupt(struct comm *c);

uint32_t comm_rank(const struct comm *c); /* 0 of 1 outside a group */
uint32_t comm_n_ranks(const struct comm *c);
/* Of the ranks that share this rank's CPUs, itself among them, and that it has links with: how
 * many, and how many of them come before it. Ranks of one host that keep to other nodes are none.
 */
struct comm_here {
    uint32_t i, n;
};
struct comm_here comm_here(const struct comm *c);
/* "shared memory", "TCP" or "shared memory to 3 of 7 ranks, TCP", for the log; "" when alone. */
const char *comm_transport(const struct comm *c);

/* x += the other ranks' x, in rank order. */
MUST_USE enum status comm_all_reduce(struct comm *c, float *x, size_t n, struct error *err);

/* What each rank has, [n_ranks], sizes alike on all ranks. */
struct comm_part {
    void *data;
    size_t n_bytes;
};
/* Writes every part but this rank's own, which is read. */
MUST_USE enum status comm_all_gather(struct comm *c, const struct comm_part *parts,
                                     struct error *err);
/* The same to rank root alone; the others' parts may have no data but their own. */
MUST_USE enum status comm_gather(struct comm *c, uint32_t root, const struct comm_part *parts,
                                 struct error *err);
MUST_USE enum status comm_broadcast(struct comm *c, uint32_t root, void *data, size_t n_bytes,
                                    struct error *err);
