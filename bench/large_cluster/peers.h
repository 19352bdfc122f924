#pragma once
/* The state that the files of scale_peers share: one process that plays every worker and gateway of
 * a large cluster. Each peer has a connection of its own to the head, with its own handshake and
 * keys, its own session, sequence numbers and credits; what is left out is the model. Links belong
 * to wire.c, ranks and gateways hang behind it. One thread beside ZeroMQ's. */
#include "common/base/random.h"
#include "proto/link/link.h"

struct scale_options {
    const char *endpoint;
    const char *keys_dir; /* NULL: no encryption */
    uint32_t n_replicas, tp, n_gateways, n_seqs;
    uint32_t prompt_tokens, cached_tokens; /* of a request; the first of them shared by many */
    uint32_t least_tokens, most_tokens;    /* of an answer */
    uint64_t step_ns, prompt_token_ns;     /* a step takes this, and this more a prompt token */
};

struct scale_counts {
    uint64_t n_tokens;                       /* that gateways got */
    uint64_t n_requests;                     /* that ended */
    uint64_t n_steps, n_plans, n_plan_bytes; /* executed; received by all ranks */
    uint64_t n_beats, n_frames;              /* the head's heartbeats; all it sent */
    uint64_t n_aborts;
    uint64_t n_late, late_ns; /* steps whose plan came after the one before was done */
    uint64_t lag_ns;          /* by how much this process answered too late, in all */
};

struct scale_peer {
    struct link link;
    uint64_t instance;
};

struct scale {
    struct scale_options o;
    struct scale_counts counts;
    struct rng rng;
    uint64_t now_ns;
    uint32_t n_workers, n_peers, n_connected, n_welcomed;
    struct scale_peer *peers;  /* [n_peers], workers first */
    uint32_t n_replicas_ready; /* as the head tells gateways */
    struct arena encode, decode;
    struct strbuf frame;
    struct scale_wire *wire;
    struct scale_ranks *ranks;
    struct scale_gateways *gateways;
};
