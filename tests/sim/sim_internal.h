#pragma once
/* Describes a world: one replica of a simulated cluster and its clients.
 *   sim_draw.c   the shape of the world
 *   sim_world.c  the events in it, and the properties that must hold then
 *   sim_move.c   requests that move to another replica, and from one
 *   sim.c        turns of it, from a seed (tests/fuzz/head_scheduler_fuzz.c: from bytes) */
#include "common/base/random.h"
#include "head/scheduler/scheduler.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_rank.h"
#include "worker/sequences/sequences.h"

enum {
    MAX_LIVE = 48, /* most live requests; constants for a large world follow */
    MAX_LIVE_LARGE = 600,
    MAX_SEQS_LARGE = 256,
    CHECK_EVERY_LARGE = 64, /* turns between two checks */
    IDLE_TURNS_PER_STEP = 200,
    N_PREFIXES = 6,
    MAX_MODEL_LEN = 512,
    /* so few ids that the null rule samples only 26 letters, and stop ids occur */
    VOCAB_SIZE = 259,
    FIRST_LETTER = 97,
    N_LETTERS = 26,
    STEP_TARGET_NS = 250000000,
};

/* Holds the test's knowledge of a request: its identity and its expected stream. */
struct client {
    bool live, came_back; /* came_back: `resubmitted` of the request when the scheduler got it */
    uint64_t i_request;   /* number of the request, shared by all its choices */
    uint64_t tenant;
    /* the request is in another replica and moves here; n_move tokens have blocks */
    bool outside;
    uint64_t out_id, in_id; /* ids of the request's moves; 0 = none */
    uint32_t n_move;        /* tokens of the move */
    struct request *r;
    struct null_hash oracle; /* hash of the prompt and the n_seen tokens */
    uint32_t n_seen, n_prompt, max_tokens, stop_id, eos_id; /* stop_id and eos_id: 0 = none */
    uint32_t n_prompt_logprobs;                             /* received rows of the prompt */
    uint32_t ids[MAX_MODEL_LEN];
    struct sampling_params sampling;
};

struct flight {
    struct msg_result result; /* result to be delivered */
    bool follows;             /* some run has a position that the head does not know yet */
};

struct world {
    uint64_t now_ns, arrivals, n_requests, n_steps, n_moves;
    struct rng rng;
    bool from_bytes; /* random numbers, except letters, come from the bytes below */
    const uint8_t *at, *end;
    struct scheduler_config c;
    uint32_t arrival_percent, burst, cancel_permille, reset_permille, deliver_percent, lie_percent;
    uint32_t move_permille;
    uint32_t n_tenants, choices_percent; /* chance of a request with several choices */
    uint32_t longest_prompt, longest_answer, stop_percent;
    struct scheduler *scheduler;
    struct sim_rank *rank;
    struct sequences *worker; /* the real worker's bookkeeping reads every plan too */
    struct request_table *table;
    uint64_t term_epoch;
    struct flight in_flight[2];
    uint32_t n_in_flight;
    struct client *clients; /* array of n_clients */
    uint32_t n_clients, n_unchecked;
    bool large;
    uint32_t prefixes[N_PREFIXES][MAX_MODEL_LEN];
    struct sim_report *report;
    struct error *err;
};

/* Returns a random number below n. From bytes it uses one byte, or two when n needs them. After
 * the last byte it returns the largest number, so that rare events no longer happen. */
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

/* Chooses the shape of the world: budgets, pools, KV groups, arrivals, faults. */
void draw_world(struct world *w);
/* Chooses a request that is not live yet: prompt, lengths, ends, sampling. */
void draw_client(struct world *w, struct client *c);

/* Opens a world. Seed, bytes, report and err must be set; the rest is chosen at random. The
 * functions return false when a property is violated; err names the property. */
bool world_open(struct world *w);
void world_close(struct world *w);
/* Adds a request: a prompt with one or several choices. */
bool world_arrive(struct world *w);
void world_cancel(struct world *w, struct client *c);
/* Disconnects the client, or lets its gateway submit the request again with its tokens. The head
 * then has the request or has forgotten it. */
bool world_disturb(struct world *w, struct client *c);
/* Makes one more plan, which the rank and a worker read at once. *made is false when there is no
 * plan. */
bool world_step(struct world *w, bool *made);
/* Delivers the result of the oldest plan in flight. */
bool world_deliver(struct world *w);
/* Delivers an answer to no plan. It must be refused and change nothing. */
bool world_lie(struct world *w);
/* Loses a rank: a new epoch begins, and results in flight never arrive. */
bool world_lose_rank(struct world *w);
/* Does one part of a move: holds its blocks, lets it leave or arrive, delivers its blocks or
 * loses them. */
bool world_move(struct world *w, struct client *c);
bool world_end_moves(struct world *w, struct client *c); /* ends all moves at once */
bool world_has_moves(const struct world *w);
bool world_to_scheduler(struct world *w, struct client *c);
bool world_check(struct world *w);
/* Returns whether no request is left, and no block of any request. */
bool world_is_empty(struct world *w);
