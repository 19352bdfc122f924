#pragma once
/* Describes a gateway as the head knows it, and the data that must still be sent to it. The data
 * is part of the head core and belongs to the loop thread. */
#include "head/links/peers.h"
#include "head/request/shared_text.h"
#include "head/request/state.h"

#define GATEWAYS_MAX     256u
#define REFUSALS_MAX     4096u
#define REFUSED_GATEWAYS 4u /* most refused gateways that are shown */

/* Describes a gateway that was refused recently, shown to operators. */
struct refused_gateway {
    uint64_t instance, at_ns; /* time of the refusal; at_ns 0 = free place */
    char text[320];
};

/* Keeps the grammar of a session's last Submit with a grammar. It is used for Submits with
 * same_grammar. */
struct kept_grammar {
    /* text of the grammar; NULL = none, or the limit of stored texts was reached */
    struct shared_text *text;
    enum grammar_kind kind;
};

/* Holds an answer to a Submit that never became a request. */
struct refusal {
    struct request_id id;
    uint32_t i_choice, attempt;
    enum status status;
    uint32_t retry_after_s, predicted_ttft_ms;
    char text[200];
};

/* Describes a gateway instance, which outlives its peer by the grace time. */
struct gateway_peer {
    struct peer *peer;            /* peer of the gateway; NULL = lost */
    struct vocabulary vocabulary; /* vocabulary of the gateway; n_tokens 0 = not reported */
    uint64_t instance, session, lost_ns, hello_ns;
    char node[65], model[65]; /* model: the served name that the gateway reports */
    uint32_t index, n_open, n_refusals, refusals_cap;
    struct kept_grammar grammar; /* grammar of the session's last Submit with a grammar */
    /* `outbox` has outbox_cap places. Requests with data to deliver are in [outbox_begin,
     * outbox_end), the oldest first. */
    struct request **outbox;
    /* places in outbox; a place is NULL after its request was removed */
    uint32_t outbox_begin, outbox_end, outbox_cap;
    struct refusal *refusals; /* array of refusals_cap; the first n_refusals are not sent yet */
    struct msg_cluster told;  /* last Cluster message sent, without its model */
    /* was_swept: the requests that the gateway did not submit again were cancelled */
    bool was_told, was_swept;
    /* told_adapters: 1 + n_changes of the adapters sent; 0 = never */
    uint64_t told_ns, told_adapters;
};
