#pragma once
/* Holds a whole cluster in one struct: the real head core (one, or two with the real lease and a
 * model of their store), the real rank states of one or two replicas, and the gateway's real
 * stream states. Links between them keep the order of their frames, and the explorer may
 * interleave the links in any way. The possible actions are a list from which the explorer
 * chooses one. Time passes only when no other action is possible, or as part of a fault. Every
 * action is checked; world.c lists the properties. A world follows one path; it is rebuilt by
 * replaying. */
#include "gateway/generation/stream_state.h"
#include "head/core/core.h"
#include "tests/sim/sim_rank.h"
#include "worker/link/rank_state.h"

#define WORLD_RANKS    4u /* most ranks; ranks are "who" 0 to 3 of an action */
#define WORLD_GATEWAY  4u /* number of the peer after the ranks */
#define WORLD_PEERS    5u
#define WORLD_HEADS    2u
#define WORLD_HEAD     5u /* number of the first head; the second head follows */
#define WORLD_STORE    7u
#define WORLD_REQUESTS 2u
#define WORLD_TOKENS   10u /* most generated tokens of a request */

enum action_kind {
    /* The actions up to ACT_TIME are normal operation. */
    ACT_TO_HEAD, /* the oldest frame of peer `who` arrives */
    ACT_STALE,   /* the oldest frame from the peer's previous connection arrives */
    ACT_TO_PEER,
    ACT_JOINED,  /* rank `who` has its communicator */
    ACT_ABORTED, /* rank `who` no longer has a communicator */
    ACT_EXECUTE, /* rank `who` runs its oldest plan */
    ACT_NOTICE,  /* peer `who` detects that its connection is gone */
    ACT_STORE,   /* the store reads the question of head `who` */
    ACT_ANSWER,  /* the head gets the answer */
    ACT_RESTART, /* a dead process is started again */
    ACT_TIME,    /* no other action is possible: the clock advances to the next event */
    ACT_FAULTS,  /* all kinds after this one are faults */
    ACT_KILL = ACT_FAULTS,
    ACT_LINK_LOST, /* a link is lost in both directions; the peer detects the loss at once */
    ACT_SILENCE,   /* a link is silent in both directions until a time-out */
    ACT_HELLO_AGAIN,
    ACT_DROP_TO_HEAD,
    ACT_DROP_TO_PEER,   /* one frame to the peer is lost */
    ACT_REPEAT_TO_HEAD, /* one frame arrives twice */
    ACT_JOIN_FAILED,
    ACT_COMM_ERROR,
    ACT_GAP,   /* rank `who` refuses a plan */
    ACT_PAUSE, /* the head does not run for 3 s */
    /* The actions below occur only with two heads. */
    ACT_STOP,        /* process `who` does not run for 3 s */
    ACT_STORE_CUT,   /* head `who` and the store cannot reach each other for 5 s */
    ACT_STORE_EMPTY, /* the store loses its data */
    /* the store does not run for longer than a lease, then answers its questions */
    ACT_STORE_FREEZE,
    ACT_KIND_COUNT
};
struct action {
    uint8_t kind, who;
};
#define WORLD_ACTIONS_MAX 128u

struct world_config {
    uint32_t n_requests, n_tokens;
    uint32_t n_faults;          /* most faults of a path */
    uint32_t fault_mask;        /* allowed kinds of faults, one bit each; 0 = all */
    uint64_t recovery_limit_ns; /* longest time from the last fault to recovery; 0 = any */
    uint32_t n_heads;           /* number of heads; 0 = one, without a store */
    uint32_t n_ranks, tp;       /* number of ranks and TP; 0 = two */
    uint64_t step_ns;           /* time of a step, which passes while ranks compute */
    bool elastic;               /* a rank without partners serves alone, until others join it */
};

struct world;
struct world *world_new(const struct world_config *c);
void world_free(struct world *w);
/* Lists the possible actions, faults only within the budget. Returns their number. */
uint32_t world_enabled(const struct world *w, struct action out[WORLD_ACTIONS_MAX]);
/* Performs an action. Returns false when a property is violated; world_violation describes the
 * violation. */
bool world_apply(struct world *w, struct action a);
const char *world_violation(const struct world *w);
/* Returns true when no action except faults can ever happen again. */
bool world_is_stable(const struct world *w);
/* Returns the time from the last fault to recovery. */
uint64_t world_recovery_ns(const struct world *w);
/* Returns a hash that is equal for states that behave alike from now on. */
uint64_t world_fingerprint(const struct world *w);
/* Prints the cluster's state in readable form. */
void world_print(const struct world *w);
void action_text(struct action a, char out[48]);
