#pragma once
/* A whole cluster in one struct: the real head core (one, or two with the real lease and a model of
 * their store), the real rank states of one or two replicas, the gateway's real stream states, and
 * between them links that keep their order but are interleaved at will. Nothing
 * moves by itself: what could happen next is a list of actions, and one is chosen by whoever
 * explores. Time passes only when nothing else can happen, or as part of a fault. Every action is
 * checked: the properties are listed in world.c. One world is one path; it is rebuilt by replaying.
 */
#include "gateway/generation/stream_state.h"
#include "head/core/core.h"
#include "tests/sim/sim_rank.h"
#include "worker/link/rank_state.h"

#define WORLD_RANKS    4u /* at most; as "who" of an action: 0 .. */
#define WORLD_GATEWAY  4u /* the peer after the ranks */
#define WORLD_PEERS    5u
#define WORLD_HEADS    2u
#define WORLD_HEAD     5u /* the first one; the second is the next number */
#define WORLD_STORE    7u
#define WORLD_REQUESTS 2u
#define WORLD_TOKENS   10u /* most generated tokens of a request */

enum action_kind {
    /* the cluster goes on */
    ACT_TO_HEAD, /* the oldest frame of peer `who` arrives */
    ACT_STALE,   /* the same, from the connection it had before */
    ACT_TO_PEER,
    ACT_JOINED,  /* rank `who` has its communicator */
    ACT_ABORTED, /* rank `who` has none any more */
    ACT_EXECUTE, /* rank `who` runs its oldest plan */
    ACT_NOTICE,  /* peer `who` sees that its connection is gone */
    ACT_STORE,   /* the store reads what head `who` asked */
    ACT_ANSWER,  /* and the head hears of it */
    ACT_RESTART, /* a dead process is started again */
    ACT_TIME,    /* nothing else can happen: the clock goes on to the next thing that does */
    ACT_FAULTS,  /* the kinds after this one are faults */
    ACT_KILL = ACT_FAULTS,
    ACT_LINK_LOST, /* both directions, seen by the peer at once */
    ACT_SILENCE,   /* both directions, seen by nobody: only time-outs tell */
    ACT_HELLO_AGAIN,
    ACT_DROP_TO_HEAD,
    ACT_DROP_TO_PEER,   /* one frame */
    ACT_REPEAT_TO_HEAD, /* one frame arrives twice */
    ACT_JOIN_FAILED,
    ACT_COMM_ERROR,
    ACT_GAP,   /* rank `who` refuses what it was sent */
    ACT_PAUSE, /* the head stands still for 3 s */
    /* with two heads */
    ACT_STOP,         /* process `who` stands still for 3 s */
    ACT_STORE_CUT,    /* head `who` and the store do not hear each other for 5 s */
    ACT_STORE_EMPTY,  /* it comes back without anything */
    ACT_STORE_FREEZE, /* it stands still for longer than a lease, then reads what it was asked */
    ACT_KIND_COUNT
};
struct action {
    uint8_t kind, who;
};
#define WORLD_ACTIONS_MAX 128u

struct world_config {
    uint32_t n_requests, n_tokens;
    uint32_t n_faults;          /* budget */
    uint32_t fault_mask;        /* bit per kind; 0: all */
    uint64_t recovery_limit_ns; /* most from the last fault until all is well; 0: any */
    uint32_t n_heads;           /* 0: one, without a store */
    uint32_t n_ranks, tp;       /* 0: two */
    uint64_t step_ns;           /* what a step takes: time passes while ranks compute */
    bool elastic; /* a rank that is alone serves alone, until it is joined by the others */
};

struct world;
struct world *world_new(const struct world_config *c);
void world_free(struct world *w);
/* What can happen now; faults only while the budget lasts. Returns how many. */
uint32_t world_enabled(const struct world *w, struct action out[WORLD_ACTIONS_MAX]);
/* False: a property is violated; world_violation says which. */
bool world_apply(struct world *w, struct action a);
const char *world_violation(const struct world *w);
/* Nothing but faults can ever happen again. */
bool world_is_stable(const struct world *w);
/* From the last fault until all was well. */
uint64_t world_recovery_ns(const struct world *w);
/* Equal for states that behave alike from now on. */
uint64_t world_fingerprint(const struct world *w);
/* What the cluster looks like, for a person. */
void world_print(const struct world *w);
void action_text(struct action a, char out[48]);
