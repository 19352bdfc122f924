#pragma once
/* Declares the exchange, which sends and receives the parts of one call for all peers at once. A
 * single loop serves all links in both directions. It spins for some microseconds and then
 * sleeps in poll. The first exchange of a collective puts a header before every part, so ranks
 * that run different steps are detected. All functions run on the compute thread. */
#include <stdatomic.h>

#include "worker/comm/group.h"
#include "worker/comm/links/link.h"
#include "worker/comm/wait.h"

#define EXCHANGE_STAGE_BYTES 4096u /* largest part, with its header, that is sent in one piece */

enum collective_kind {
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_GATHER,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_COUNT
};

struct exchange_peer {
    /* link to the peer; NULL = the peer is this rank itself, or not linked */
    struct comm_link *link;
    bool same_cpus; /* the peer shares this rank's CPUs */
    char name[16];  /* name such as "rank 3", by the number in the whole group */
    char address[COMM_ADDRESS_MAX];
    /* These fields are the state of the running exchange. A header (or all of a short part)
     * moves first, then the part. */
    struct iovec send[2], recv[2]; /* bytes still to move */
    bool header_due;               /* stage_in begins with an unchecked header */
    uint64_t expect_bytes;         /* number of bytes that the peer's header must contain */
    void *unstage; /* destination of a short part that was received with its header; NULL = none */
    size_t n_unstage;
    uint8_t stage_out[EXCHANGE_STAGE_BYTES], stage_in[EXCHANGE_STAGE_BYTES];
};
struct exchange {
    struct waiter *waiter;
    uint32_t rank, n_ranks;
    uint32_t counter; /* number of collectives in this group so far */
    uint8_t part;     /* mark of the part; 0 = the whole group */
    uint64_t spin_ns, timeout_ns;
    /* this rank yields the CPU instead of spinning, because there are more ranks than CPUs */
    bool yields;
    /* time until which this rank does not yield, because a yield took too long */
    uint64_t yield_from_ns;
    struct exchange_peer *peers; /* peers by rank, [n_ranks]; NULL in a group of one */
};

/* `exchange_part` is the data to and from one peer. A direction without `sends` or `receives`
 * does not take place. A direction of 0 bytes moves only a header. `send_bytes` and `recv_bytes`
 * are the sizes in the headers. They are the sizes of the whole collective, so that an error
 * text about a mismatch is meaningful. */
struct exchange_part {
    bool sends, receives;
    const void *send;
    void *recv;
    size_t n_send, n_recv;
    uint64_t send_bytes, recv_bytes;
};
/* `exchange_what` describes the collective, as in the headers. */
struct exchange_what {
    enum collective_kind kind;
    uint32_t root;
    bool goes_on; /* this is a later exchange of the same collective, without headers */
};
/* Adds the peer's name and address before the text of the link's error. Returns STATUS_IO. */
enum status exchange_gone(const struct exchange *x, uint32_t rank, struct error *err);
/* Runs one exchange with parts[n_ranks]; this rank's own part is ignored. Returns STATUS_IO when
 * a peer is gone, STATUS_INVALID when a peer runs another collective, STATUS_TIMEOUT when no
 * byte moves for too long, STATUS_CLOSED after an interrupt. After an error the links are
 * unusable. */
MUST_USE enum status exchange_run(struct exchange *x, struct exchange_what what,
                                  const struct exchange_part *parts, struct error *err);
