#pragma once
/* Declares the state that the files of scale_peers share. One process simulates every worker and
 * gateway of a large cluster. Each peer has its own connection to the head, with its own
 * handshake and keys, session, sequence numbers and credits. Only the model is missing. wire.c
 * owns the links, and ranks and gateways use them. All of this runs on one thread, apart from
 * ZeroMQ's threads. */
#include "common/base/random.h"
#include "proto/link/link.h"

struct scale_options {
    const char *endpoint;
    const char *keys_dir; /* NULL = no encryption */
    uint32_t n_replicas, tp, n_gateways, n_seqs;
    /* prompt_tokens: tokens of a prompt; its first cached_tokens are shared by many prompts */
    uint32_t prompt_tokens, cached_tokens;
    uint32_t least_tokens, most_tokens; /* bounds of an answer's tokens */
    /* step_ns: time of a step; prompt_token_ns: further time for each prompt token */
    uint64_t step_ns, prompt_token_ns;
};

struct scale_counts {
    uint64_t n_tokens;   /* tokens that the gateways received */
    uint64_t n_requests; /* requests that ended */
    /* steps that were executed; plans, and their bytes, that all ranks received */
    uint64_t n_steps, n_plans, n_plan_bytes;
    /* n_beats: heartbeats of the head; n_frames: all frames from the head */
    uint64_t n_beats, n_frames;
    uint64_t n_aborts;
    /* n_late: steps whose plan arrived after the end of the previous step; late_ns: their delay */
    uint64_t n_late, late_ns;
    uint64_t lag_ns; /* total delay of this process's answers */
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
    struct scale_peer *peers;  /* all peers, [n_peers], workers first */
    uint32_t n_replicas_ready; /* number of ready replicas, as the head reports it to gateways */
    struct arena encode, decode;
    struct strbuf frame;
    struct scale_wire *wire;
    struct scale_ranks *ranks;
    struct scale_gateways *gateways;
};
