#pragma once
/* Shared by world.c (actions), world_peers.c (the simulated processes) and fingerprint.c. */
#include "tests/model/world.h"

#include "common/base/arena.h"

#define FRAMES_MAX 64u
#define PLANS_MAX  32u /* ranks of the null device run apart: only rank 0 holds the head back */
#define LEDGER_MAX 512u

struct frame_copy {
    char *ptr;
    uint32_t len;
    uint64_t done; /* results the head had when it sent this: what a plan may rely on */
};
struct frame_queue {
    struct frame_copy at[FRAMES_MAX];
    uint32_t n;
};

enum proc_link { PROC_DOWN, PROC_HELLO, PROC_OPEN };

struct proc {
    bool alive;
    bool cut; /* frames vanish, nobody has noticed yet */
    enum proc_link state;
    uint64_t instance, heard_ns, beat_ns, term_seen;
    uint32_t conn, stale_conn;
    struct link link;
    struct frame_queue to_head, to_peer, stale;
};

struct rank {
    struct rank_state state;
    struct sim_rank *sim;
    bool joining, aborting;
    uint64_t join_epoch;
    uint8_t join_id[32];
    uint32_t n_join_id;
    struct frame_copy plans[PLANS_MAX];
    uint32_t n_plans;
    uint64_t exec_epoch, exec_step;
    uint64_t progress;
};

struct client_request {
    struct stream_state stream;
    uint32_t n_ends;
    uint32_t prompt[3];
    uint32_t want[WORLD_TOKENS];
};

struct ledger_entry {
    uint64_t epoch, step, hash;
};

struct world {
    struct world_config config;
    uint64_t now_ns;
    uint64_t n_instances;
    uint32_t n_conns, n_head_starts;
    struct head_core *core; /* NULL: dead */
    struct proc procs[WORLD_PEERS];
    struct rank ranks[WORLD_RANKS];
    struct client_request requests[WORLD_REQUESTS];
    struct ledger_entry ledger[LEDGER_MAX];
    uint32_t n_ledger;
    uint64_t max_exec_epoch;
    uint32_t n_faults;
    uint64_t fault_ns, unserved_ns; /* of the last fault; when something was missing last */
    bool stable;
    char violation[400];
    uint64_t arriving_done; /* of the frame being received */
    struct arena decode, encode;
    struct strbuf frame;
};

bool violate(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
void queue_push(struct frame_queue *q, struct str frame, uint64_t done);
void queue_drop_first(struct frame_queue *q);
void queue_clear(struct frame_queue *q);

/* world_peers.c */
void proc_start(struct world *w, uint32_t who);
void proc_kill(struct world *w, uint32_t who);
void proc_hello(struct world *w, uint32_t who, bool new_connection);
void proc_send(struct world *w, uint32_t who, const struct msg *m);
void proc_receive(struct world *w, uint32_t who, struct str frame);
void proc_beat(struct world *w, uint32_t who);
void rank_on_msg(struct world *w, uint32_t who, const struct msg *m, struct str frame);
void rank_joined(struct world *w, uint32_t who, bool ok);
void rank_aborted(struct world *w, uint32_t who);
void rank_execute(struct world *w, uint32_t who);
bool rank_can_join(const struct world *w, uint32_t who);
void client_on_open(struct world *w);
