#pragma once
/* A gateway as the head knows it, and what it is still to be sent. Plain data of the head core.
 * Loop thread. */
#include "head/links/peers.h"
#include "head/request/shared_text.h"
#include "head/request/state.h"

#define GATEWAYS_MAX     256u
#define REFUSALS_MAX     4096u
#define REFUSED_GATEWAYS 4u /* are told of at once */

/* For people: a gateway that was turned away of late. */
struct refused_gateway {
    uint64_t instance, at_ns; /* at_ns 0: a free place */
    char text[320];
};

/* The grammar of a session's last Submit with one: those that say same_grammar have it too. */
struct kept_grammar {
    struct shared_text *text; /* NULL: none, or there was no room for it */
    enum grammar_kind kind;
};

/* An answer to a Submit that never became a request. */
struct refusal {
    struct request_id id;
    uint32_t i_choice, attempt;
    enum status status;
    uint32_t retry_after_s;
    char text[200];
};

/* A gateway instance; it outlives its peer by the grace time. */
struct gateway_peer {
    struct peer *peer;            /* NULL: lost */
    struct vocabulary vocabulary; /* n_tokens 0: it does not say */
    uint64_t instance, session, lost_ns, hello_ns;
    char node[65], model[65]; /* the second: what it serves, as it says */
    uint32_t index, n_open, n_refusals, refusals_cap;
    struct kept_grammar grammar; /* of its session's last Submit with one */
    struct request **outbox; /* [outbox_cap] who has something to deliver: [begin, end), oldest */
    uint32_t outbox_begin, outbox_end, outbox_cap; /* first; NULL: dropped meanwhile */
    struct refusal *refusals;                      /* [refusals_cap] */
    struct msg_cluster told;                       /* last Cluster sent; its model is not kept */
    bool was_told, was_swept;        /* swept: what was not submitted again is cancelled */
    uint64_t told_ns, told_adapters; /* adapters: their n_changes + 1; 0: never */
};
