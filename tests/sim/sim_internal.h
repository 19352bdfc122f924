#pragma once
/* A world: one replica of a simulated cluster and its clients.
 *   sim_draw.c   what it is like
 *   sim_world.c  what happens in it, and what must hold when it does
 *   sim_move.c   requests that leave for another replica, and come from one
 *   sim.c        turns of it, drawn from a seed (tests/fuzz/head_scheduler_fuzz.c: from bytes) */
#include "common/base/random.h"
#include "head/scheduler/scheduler.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_rank.h"
#include "worker/sequences/sequences.h"

enum {
    MAX_LIVE = 48, /* requests; in a large world: */
    MAX_LIVE_LARGE = 600,
    MAX_SEQS_LARGE = 256,
    CHECK_EVERY_LARGE = 64, /* turns */
    IDLE_TURNS_PER_STEP = 200,
    N_PREFIXES = 6,
    MAX_MODEL_LEN = 512,
    VOCAB_SIZE = 259, /* letters: 26 tokens, so that stop ids come up */
    FIRST_LETTER = 97,
    N_LETTERS = 26,
    STEP_TARGET_NS = 250000000,
};

/* What the test knows of a request: who it is and what its stream must be. */
struct client {
    bool live, came_back; /* came_back: as it was when the scheduler got the request */
    uint64_t i_request;   /* all choices of a request share it */
    uint64_t tenant;
    bool outside;           /* in another replica, on its way here: n_move has its blocks */
    uint64_t out_id, in_id; /* moves; 0: none */
    uint32_t n_move;        /* tokens of it */
    struct request *r;
    struct null_hash oracle;                                /* of prompt and the n_seen tokens */
    uint32_t n_seen, n_prompt, max_tokens, stop_id, eos_id; /* ids 0: none */
    uint32_t n_prompt_logprobs;                             /* rows of its prompt it has got */
    uint32_t ids[MAX_MODEL_LEN];
    struct sampling_params sampling;
};

struct flight {
    struct msg_result result; /* to come */
    bool follows;             /* some run of it stands at a place that the head does not know */
};

struct world {
    uint64_t now_ns, arrivals, n_requests, n_steps, n_moves;
    struct rng rng;
    bool from_bytes; /* what is drawn, but for letters, comes from here: */
    const uint8_t *at, *end;
    struct scheduler_config c;
    uint32_t arrival_percent, burst, cancel_permille, reset_permille, deliver_percent, lie_percent;
    uint32_t move_permille;
    uint32_t n_tenants, choices_percent; /* requests that want several answers to one prompt */
    uint32_t longest_prompt, longest_answer, stop_percent;
    struct scheduler *scheduler;
    struct sim_rank *rank;
    struct sequences *worker; /* the real worker's bookkeeping reads every plan too */
    struct request_table *table;
    uint64_t term_epoch;
    struct flight in_flight[2];
    uint32_t n_in_flight;
    struct client *clients; /* [n_clients] */
    uint32_t n_clients, n_unchecked;
    bool large;
    uint32_t prefixes[N_PREFIXES][MAX_MODEL_LEN];
    struct sim_report *report;
    struct error *err;
};

/* From bytes: one, or two when n wants them; after the last the largest, so that nothing rare
 * happens any more. */
uint32_t below(struct world *w, uint32_t n);

static inline uint32_t between(struct world *w, uint32_t low, uint32_t high)
{
    return low + below(w, high - low + 1);
}

static inline bool percent(struct world *w, uint32_t p)
{
    return below(w, 100) < p;
}

static inline uint32_t letter(struct world *w)
{
    return FIRST_LETTER + (uint32_t)rng_below(&w->rng, N_LETTERS);
}

/* The shape of the world: budgets, pools, KV groups, arrivals, what goes wrong. */
void draw_world(struct world *w);
/* A request that is not live yet: prompt, lengths, ends, sampling. */
void draw_client(struct world *w, struct client *c);

/* Seed, bytes, report and err have been set; the rest is drawn. Functions return false when a
 * property is violated: err says which. */
bool world_open(struct world *w);
void world_close(struct world *w);
/* A request: a prompt and some answers to it. */
bool world_arrive(struct world *w);
void world_cancel(struct world *w, struct client *c);
/* The client goes away, or its gateway comes back with what it has: to a head that forgot it, or to
 * one that goes on with it. */
bool world_disturb(struct world *w, struct client *c);
/* One more plan, which the rank and a worker read at once; *made false: there is none to make. */
bool world_step(struct world *w, bool *made);
/* The result of the oldest plan in flight. */
bool world_deliver(struct world *w);
/* An answer that nobody asked for: refused, and the scheduler is as it was. */
bool world_lie(struct world *w);
/* A rank was lost: new epoch, results in flight never come. */
bool world_lose_rank(struct world *w);
/* Something of a move: its blocks are held, it leaves, it comes, its blocks are there or lost. */
bool world_move(struct world *w, struct client *c);
bool world_end_moves(struct world *w, struct client *c); /* at once */
bool world_has_moves(const struct world *w);
bool world_to_scheduler(struct world *w, struct client *c);
bool world_check(struct world *w);
/* Nobody is left: nor is anything of them. */
bool world_is_empty(struct world *w);
