#pragma once
/* This file is shared by world.c (actions), world_time.c, world_heads.c, world_peers.c (links),
 * world_gateway.c, world_ranks.c and fingerprint.c. */
#include "tests/model/world.h"

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "gateway/head_link/engine_client.h"
#include "tests/model/store_model.h"

#define FRAMES_MAX 64u
/* PLANS_MAX bounds the waiting plans. The null device's ranks do not wait for each other, so
 * only rank 0 limits the head's plans. */
#define PLANS_MAX  32u
#define LEDGER_MAX 512u

#define WORLD_SILENT_NS (1500 * NS_PER_MS)
#define WORLD_TICK_NS   (HEAD_TICK_MS * NS_PER_MS)
#define WORLD_STOP_NS   (3 * NS_PER_S)
#define WORLD_CUT_NS    (5 * NS_PER_S)
#define WORLD_TTL_NS    NS_PER_S
/* WORLD_TO_NEXT_NS is the delay after which a peer that lost its head connects to the next head. */
#define WORLD_TO_NEXT_NS (50 * NS_PER_MS)
#define WORLD_REFUSED_NS (500 * NS_PER_MS) /* delay after a refusal */
#define WORLD_MODEL_LEN  64u
#define WORLD_VOCAB_SIZE 259u
#define WORLD_CONN_BYTES (1u << 20)

struct frame_copy {
    char *ptr;
    uint32_t len;
    uint32_t serial; /* serial number of the head that sent the frame */
    uint64_t done;   /* results that the head had when it sent the frame; a plan may rely on them */
    uint64_t due_ns; /* time at which a plan is executed */
};
struct frame_queue {
    struct frame_copy at[FRAMES_MAX];
    uint32_t n;
};

enum proc_link { PROC_DOWN, PROC_HELLO, PROC_OPEN };

struct proc {
    bool alive;
    bool cut;    /* frames on the link are lost, and neither end has detected it yet */
    bool broken; /* the head's process is gone; the peer detects this sooner or later */
    enum proc_link state;
    uint64_t instance, heard_ns, beat_ns;
    uint64_t retry_ns, stopped_until_ns;
    uint32_t at, stale_at; /* indexes into `heads`: the current and the previous head */
    uint32_t conn, stale_conn;
    uint32_t serial; /* serial number of the head that welcomed the peer */
    struct link link;
    struct frame_queue to_head, to_peer, stale;
};

struct rank {
    struct rank_state state;
    struct sim_rank *sim;
    bool joining, aborting;
    uint32_t serial; /* serial number of the head that sent the rank a Join or Reset */
    /* the rank was stopped in this epoch: it may finish two steps after the epoch's end */
    bool was_stopped;
    uint32_t n_late;
    uint64_t join_epoch;
    uint8_t join_id[32];
    uint32_t n_join_id;
    struct frame_copy plans[PLANS_MAX];
    uint32_t n_plans;
    uint64_t exec_epoch, exec_step;
    uint64_t n_collectives; /* steps since the rank joined; a Reset keeps the count */
    uint64_t progress;
};

struct client_request {
    struct stream_state stream;
    uint32_t n_ends;
    uint32_t prompt[3];
    uint32_t want[WORLD_TOKENS];
};

struct ledger_entry {
    uint32_t serial; /* serial number of the head that sent the plan */
    uint64_t epoch, step, hash, replica;
    /* instance that executed the step, by rank of the replica; 0 = not yet */
    uint64_t by[WORLD_RANKS];
};

enum question_stage { QUESTION_NONE, QUESTION_ASKED, QUESTION_ANSWERED };

struct world_head {
    struct world *world; /* world of the head, for head_io */
    uint32_t index, serial;
    struct head_core *core; /* core of the head; NULL = dead */
    bool serves;            /* the head's port is bound */
    uint64_t stopped_until_ns, cut_until_ns;
    struct lease lease;
    enum question_stage stage;
    struct store_question question;
    struct lease_answer answer;
    uint64_t n_asked;
};

struct world {
    struct world_config config;
    uint64_t now_ns;
    uint64_t n_instances;
    uint32_t n_conns, n_head_starts;
    struct world_head heads[WORLD_HEADS];
    struct store_model store;
    struct proc procs[WORLD_PEERS]; /* ranks from config.n_ranks on never live */
    struct rank ranks[WORLD_RANKS];
    struct client_request requests[WORLD_REQUESTS];
    struct ledger_entry ledger[LEDGER_MAX];
    uint32_t n_ledger;
    struct engine_client engine;          /* the gateway's engine client */
    bool is_connecting, reconnect_wanted; /* state of the gateway's socket */
    uint64_t gateway_term;                /* term of the head whose tokens the gateway accepts */
    uint64_t given;                       /* terms that heads served with, one bit each */
    bool was_emptied;                     /* the store was emptied */
    bool was_harmed;                      /* a head was killed, stopped or cut off from the store */
    uint32_t n_faults;
    /* `fault_ns` is the time of the last fault; `unserved_ns` is the last time at which the
     * cluster had not recovered. */
    uint64_t fault_ns, unserved_ns;
    bool stable;
    char violation[400];
    struct frame_copy arriving; /* frame that is being received; its ptr is not kept */
    struct arena decode, encode;
    struct strbuf frame;
};

bool violate(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
void queue_push(struct frame_queue *q, struct frame_copy about, struct str frame);
struct frame_copy queue_pop(struct frame_queue *q);
void queue_drop_first(struct frame_queue *q);
void queue_clear(struct frame_queue *q);
static inline bool has_two_heads(const struct world *w)
{
    return w->config.n_heads > 1;
}
static inline bool is_peer(const struct world *w, uint32_t i)
{
    return i < w->config.n_ranks || i == WORLD_GATEWAY;
}
static inline bool is_stopped(const struct world *w, uint64_t until_ns)
{
    return w->now_ns < until_ns;
}

/* world_heads.c defines the functions below. */
void head_start(struct world *w, uint32_t i);
void head_kill(struct world *w, uint32_t i);
bool head_hears(const struct world *w, uint32_t i); /* the head lives, serves and is not stopped */
void head_receive(struct world *w, uint32_t i, uint32_t conn, struct frame_copy c);
void head_execute_question(struct world *w, uint32_t i);
void head_hear_answer(struct world *w, uint32_t i);
void heads_tick(struct world *w);
void store_cut(struct world *w, uint32_t i);
void store_freeze(struct world *w);
bool heads_are_well(const struct world *w);
void heads_check(struct world *w);
bool heads_know_term(const struct world *w, uint64_t term);

/* world_time.c defines the functions below. */
void pass_time(struct world *w);
/* world.c defines the function below. */
void add_progress_to(const struct world *w, struct action *at, uint32_t *n);
void deliver_to_peer(struct world *w, uint32_t who);

/* world_peers.c defines the functions below. */
void proc_start(struct world *w, uint32_t who);
void proc_kill(struct world *w, uint32_t who);
void proc_hello(struct world *w, uint32_t who); /* sends Hello on the current connection */
void proc_lost(struct world *w, uint32_t who);  /* drops the connection; another one follows */
void proc_tick(struct world *w, uint32_t who);
void proc_send(struct world *w, uint32_t who, const struct msg *m);
void proc_receive(struct world *w, uint32_t who, struct str frame);
bool proc_is_linked(const struct world *w, const struct proc *p);
void proc_leave(struct world *w, uint32_t who); /* drops the connection for good */
void check_refused(struct world *w, const struct msg_refused *m);
void proc_beat(struct world *w, uint32_t who);

/* world_gateway.c defines the functions below. */
void gateway_start(struct world *w);
void gateway_tick(struct world *w);
void gateway_on_broken(struct world *w);
void gateway_receive(struct world *w, struct str frame);

/* world_ranks.c defines the functions below. */
void rank_start(struct world *w, uint32_t who);
void rank_kill(struct world *w, uint32_t who);
void rank_fill_hello(const struct world *w, uint32_t who, struct msg_hello *h);
void rank_on_msg(struct world *w, uint32_t who, const struct msg *m, struct str frame);
void rank_joined(struct world *w, uint32_t who, bool ok);
void rank_aborted(struct world *w, uint32_t who);
void rank_execute(struct world *w, uint32_t who);
bool rank_can_join(const struct world *w, uint32_t who);
bool rank_can_execute(const struct world *w, uint32_t who);
