#pragma once
/* Moves this call's parts to and from every peer at once: one loop over all links, both ways, that
 * spins for some microseconds and then sleeps in poll. The first exchange of a collective puts a
 * header in front of every part, so ranks that run different steps find out. Compute thread only.
 */
#include <stdatomic.h>

#include "worker/comm/group.h"
#include "worker/comm/links/link.h"
#include "worker/comm/wait.h"

#define EXCHANGE_STAGE_BYTES 4096u /* a part up to here goes in one piece with its header */

enum collective_kind {
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_GATHER,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_COUNT
};

struct exchange_peer {
    struct comm_link *link; /* NULL: this rank, or nobody yet */
    bool same_cpus;         /* it and this rank share the CPUs */
    char name[16];          /* "rank 3": its number in the whole group */
    char address[COMM_ADDRESS_MAX];
    /* the exchange under way: a header (or all of a short part), then the part */
    struct iovec send[2], recv[2]; /* what is left of them */
    bool header_due;               /* stage_in begins with a header not checked yet */
    uint64_t expect_bytes;         /* that it should say */
    void *unstage;                 /* where what came with the header goes in the end, or NULL */
    size_t n_unstage;
    uint8_t stage_out[EXCHANGE_STAGE_BYTES], stage_in[EXCHANGE_STAGE_BYTES];
};
struct exchange {
    struct waiter *waiter;
    uint32_t rank, n_ranks;
    uint32_t counter; /* of collectives in this group */
    uint8_t part;     /* 0: the whole */
    uint64_t spin_ns, timeout_ns;
    bool yields;            /* the CPU to others while it spins: there are more ranks than CPUs */
    uint64_t yield_from_ns; /* not before: it took too long */
    struct exchange_peer *peers; /* [n_ranks], NULL in a group of one */
};

/* To and from one peer; a direction without `sends` or `receives` does not take place at all, one
 * of 0 bytes is a header. `_bytes` is what the header says of it: the collective's, not the
 * exchange's, so that the texts of a mismatch mean something. */
struct exchange_part {
    bool sends, receives;
    const void *send;
    void *recv;
    size_t n_send, n_recv;
    uint64_t send_bytes, recv_bytes;
};
/* What the headers say. */
struct exchange_what {
    enum collective_kind kind;
    uint32_t root;
    bool goes_on; /* a later exchange of the same collective: no headers */
};
/* Puts who it was in front of what a link said: STATUS_IO. */
enum status exchange_gone(const struct exchange *x, uint32_t rank, struct error *err);
/* parts[n_ranks], that of this rank ignored. STATUS_IO: a peer is gone, STATUS_INVALID: one does
 * something else, STATUS_TIMEOUT, STATUS_CLOSED: interrupted. After an error the links are of no
 * more use. */
MUST_USE enum status exchange_run(struct exchange *x, struct exchange_what what,
                                  const struct exchange_part *parts, struct error *err);
