#pragma once
/* What the files of scale_peers share: one process that plays every worker and gateway of a large
 * cluster. Each peer has a connection of its own to the head, with its own handshake and keys, its
 * own session, sequence numbers and credits; what is left out is the model. Links belong to
 * scale_wire.c, ranks and gateways hang behind it. One thread beside ZeroMQ's. */
#include "common/base/random.h"
#include "proto/link/link.h"

struct scale_options {
    const char *endpoint;
    const char *keys_dir; /* NULL: no encryption */
    uint32_t n_groups, tp, n_gateways, n_seqs;
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
    struct scale_peer *peers; /* [n_peers], workers first */
    uint32_t n_groups_ready;  /* as the head tells gateways */
    struct arena encode, decode;
    struct strbuf frame;
    struct scale_wire *wire;
    struct scale_ranks *ranks;
    struct scale_gateways *gateways;
};

/* ---- scale_wire.c ---- */
struct scale_wire *scale_wire_open(void);
void scale_wire_connect(struct scale_wire *w, const struct scale_options *o, uint32_t i_peer,
                        enum peer_role role);
void scale_wire_close(struct scale_wire *w);
int scale_wire_fd(const struct scale_wire *w);
bool scale_wire_has_input(const struct scale_wire *w);
/* STATUS_AGAIN: nothing is there. The frame is valid until the next call. */
enum status scale_wire_receive(struct scale_wire *w, uint32_t *i_peer, struct str *frame);
void scale_wire_send(struct scale_wire *w, uint32_t i_peer, struct str frame);

/* ---- scale_main.c ---- */
void scale_send(struct scale *s, uint32_t i_peer, const struct msg *m);
_Noreturn void scale_die(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* ---- scale_ranks.c ---- */
void scale_ranks_open(struct scale *s);
void scale_ranks_close(struct scale *s);
void scale_ranks_hello(struct scale *s, uint32_t i_worker, struct msg_hello *h);
void scale_ranks_beat(const struct scale *s, uint32_t i_worker, struct msg_heartbeat *h);
/* A plan, not decoded: of a group's ranks only the first looks into it. */
void scale_ranks_on_plan(struct scale *s, uint32_t i_worker, struct str frame,
                         const struct frame_header *h);
void scale_ranks_on_msg(struct scale *s, uint32_t i_worker, const struct msg *m);
/* Ends the steps whose time has come; when the next one ends, UINT64_MAX: none runs. */
uint64_t scale_ranks_run(struct scale *s);

/* ---- scale_gateways.c ---- */
void scale_gateways_open(struct scale *s);
void scale_gateways_close(struct scale *s);
void scale_gateways_on_msg(struct scale *s, uint32_t i_gateway, const struct msg *m);
void scale_gateways_start(struct scale *s); /* submits what is to be kept running */
