#pragma once
/* What core.c, gateways.c, router.c and dispatch.c share; the admin API reads it. Private to head/
 * and to the tests that look inside. */
#include "common/base/metrics.h"
#include "common/collections/slab.h"
#include "head/core/core.h"
#include "head/core/submit.h"
#include "head/core/vocabularies.h"
#include "head/request/ended.h"
#include "head/request/table.h"
#include "head/routing/roles.h"
#include "head/routing/route.h"
#include "head/routing/transfers.h"
#include "head/scheduler/scheduler.h"
#include "head/state/step_time.h"

#define NO_GROUP            UINT32_MAX
#define GATEWAYS_MAX        256u
#define REFUSALS_MAX        4096u
#define TOKENS_ITEMS_MAX    512u
#define THROUGHPUT_SAMPLES  8u
#define ROUTE_ANSWER_TOKENS 64.0 /* of an answer: so many count for routing at most */
#define LANE_STEPS          4u   /* more than can be in flight */

/* An answer to a Submit that never became a request. */
struct refusal {
    struct request_id id;
    uint32_t i_choice, attempt;
    enum status status;
    uint32_t retry_after_s;
    char text[200];
};

/* A gateway instance; it outlives its peer by the grace time. */
struct gateway {
    struct peer *peer;            /* NULL: lost */
    struct vocabulary vocabulary; /* n_tokens 0: it does not say */
    uint64_t instance, session, lost_ns, hello_ns;
    char node[65], model[65]; /* the second: what it serves, as it says */
    uint32_t index, n_open, n_refusals, refusals_cap;
    struct kept_grammar grammar; /* of its session's last Submit with one */
    struct request **outbox; /* [outbox_cap] who has something to deliver: [begin, end), oldest */
    uint32_t outbox_begin, outbox_end, outbox_cap; /* first; NULL: dropped meanwhile */
    struct refusal *refusals;                      /* [refusals_cap] */
    struct msg_cluster told;                       /* last Cluster sent; its model is not kept */
    bool was_told, was_swept;        /* swept: what was not submitted again is cancelled */
    uint64_t told_ns, told_adapters; /* adapters: their n_changes + 1; 0: never */
};

/* The scheduling of one READY group, at the group's index. */
struct lane {
    struct scheduler *scheduler; /* NULL: the group is not ready */
    struct group *group;
    bool plan_pending; /* plan is encoded and some rank has not got it */
    struct strbuf plan;
    uint64_t last_step; /* of the last plan made */
    uint64_t last_result;
    uint64_t activity_ns;
    bool idle; /* nothing is in flight, and there was nothing to plan */
    bool due;  /* something happened since it was last asked for a plan */
    uint64_t step_after_idle;
    uint32_t n_running, n_queued; /* as they count in the core's sums */
    uint32_t n_left;              /* sequences for which the last plan had no place */
    uint32_t most_tokens;         /* of a request: what its KV cache holds */
    struct step_time time;
    uint32_t n_tokens[LANE_STEPS];  /* of the steps in flight, by step % LANE_STEPS */
    struct request_id suspect;      /* the last one that was placed here, and which of its */
    uint32_t suspect_choice;        /* choices: it may have moved on or be gone meanwhile */
    uint64_t placed_seq;            /* order of the last request that was routed here */
    enum group_role role;           /* both where its group's is of no use (roles.h), */
    enum role_trouble role_trouble; /* and why, if people are to change something */
    struct transfer *transfer;      /* whose blocks go from or to here; NULL: nobody's */
    bool look_due;                  /* who is here may be able to move by now */
    uint32_t n_coming;              /* requests on their way here, and their tokens */
    uint64_t n_coming_tokens;
    struct lane_grammars grammars; /* that its rank has, or is making */
};

/* Where the last request went: the other choices of the same prompt follow it. */
struct last_route {
    struct request_id id;
    uint32_t i_prompt;
    uint64_t epoch; /* 0: none */
    uint32_t i_group;
};

/* What the groups that serve have in common: the shortest limit. */
struct served_model {
    char name[sizeof((struct worker_desc *)0)->model];
    uint32_t max_model_len, vocab_size;
};

struct throughput_sample {
    uint64_t at_ns, prompt, generated, n_rank_waits, rank_wait_ns;
};

struct head_core {
    struct head_core_config config;
    struct rng rng;
    uint64_t start_ns, now_ns, tick_ns;
    bool draining;
    struct events events;
    struct peers peers;
    struct cluster cluster;
    struct gateway *gateways[GATEWAYS_MAX];
    uint32_t n_gateways;
    struct refused_gateway refused[REFUSED_GATEWAYS];
    struct slab request_slab;
    struct room room; /* what requests hold before they run */
    struct request_table *requests;
    struct request *held_first, *held_last; /* in no scheduler; by next and prev */
    uint32_t n_held, n_waiting; /* waiting: held and queued in schedulers; refreshed each turn */
    uint64_t arrival_seq, n_placed;
    uint64_t calm_since_ns; /* request_may_be_tried; 0: no group was there yet */
    struct lane *lanes;     /* [max_groups] */
    uint32_t *live;         /* [max_groups] indices of those with a scheduler, ascending */
    uint32_t n_live;
    uint32_t n_running, n_queued; /* sums over live lanes, as of their last plan */
    struct route *routes;         /* [max_groups] scratch of routing */
    struct last_route last_route;
    double mean_generated; /* tokens of a request, of those that ended of late */
    struct transfers transfers;
    struct grammars grammars;
    struct scheduler_stats retired; /* sums over schedulers that are gone */
    uint64_t retired_accepted_at[SCHEDULER_MAX_DRAFT];
    uint64_t n_finished, n_failed, n_cancelled, n_rank_waits, rank_wait_ns;
    struct ended_requests ended; /* of late, for people */
    struct metric *rank_wait;    /* NULL: nobody asks for a histogram; so is */
    struct metric *step_tokens;  /* this one */
    struct served_model served;  /* by the groups that are ready, or that last were */
    struct throughput_sample samples[THROUGHPUT_SAMPLES]; /* ring */
    uint64_t n_samples;
    struct cluster_load load; /* what gateways were told last */
    uint64_t load_ns;         /* when it was; 0: never */
    struct scale_hint scale;
    uint64_t scale_ns; /* of the last look; 0: none */
    struct tokens_item items[TOKENS_ITEMS_MAX];
    struct request *item_requests[TOKENS_ITEMS_MAX];
};

/* gateways.c: what gateways say, and what they are told */
void gateways_on_hello(struct head_core *h, struct peer *peer, const struct msg_hello *m);
void gateways_on_msg(struct head_core *h, struct gateway *g, const struct msg *m);
void gateways_on_lost(struct head_core *h, struct gateway *g, bool is_goodbye);
void gateways_tick(struct head_core *h);
void gateways_flush(struct head_core *h);
void gateways_free(struct head_core *h);
void outbox_add(struct head_core *h, struct request *r);
void outbox_remove(struct head_core *h, struct request *r); /* not in it: fine */

/* router.c: requests that are in no group, and the way into one */
void router_hold(struct head_core *h, struct request *r);
void router_place(struct head_core *h);
/* From its scheduler, where it does not run, to another's, where its blocks are under this salt.
 * False: it is held, or has ended. */
bool router_move(struct head_core *h, struct request *r, struct lane *to, struct request_salt salt);
void router_send_away(struct head_core *h, struct request *r); /* held: to be routed anew */
/* Out of wherever it is and out of the table. */
void router_drop(struct head_core *h, struct request *r);
/* Ends a live request with an answer that its gateway still gets. */
void router_end(struct head_core *h, struct request *r, enum finish_reason why, enum status status,
                const char *text);
void router_tick(struct head_core *h);
/* All zeros and "" before any worker has said what its model can do. */
struct served_model router_model(const struct head_core *h);
/* The list of live lanes has changed; every group in it is whole. */
void router_set_model(struct head_core *h);

/* core_adapters.c: requests and gateways that have to do with adapters */
/* What the request names is bound to what is loaded now. False: not yet, or it has ended, since
 * there is no such adapter. */
bool core_bind_adapter(struct head_core *h, struct request *r);
/* Before it is a request: STATUS_INVALID when there is no such adapter and none is to come. */
MUST_USE enum status core_check_adapter(struct head_core *h, const struct msg_submit *m,
                                        struct error *err);
bool core_adapter_in_use(const void *core, uint64_t id);
void core_order_adapter(struct head_core *h, struct gateway *g, const struct msg_adapter_order *m);
void core_tell_adapters(struct head_core *h, struct gateway *g);
void core_send_answers(struct head_core *h);
/* Ends the requests of adapters that had to go. */
void core_end_lost(struct head_core *h);

/* core_scale.c: how many workers are wanted */
void core_scale_tick(struct head_core *h);
/* When to come again: until a group would serve, at most a minute; 0: one does, or is missing. */
uint32_t core_seconds_to_start(const struct head_core *h);

/* dispatch.c: plans out, results in */
void dispatch_on_ready(void *core, struct group *g);
void dispatch_on_down(void *core, struct group *g);
bool dispatch_may_go_on(void *core, const struct group *g, const struct worker *w,
                        const struct worker_info *said);
bool dispatch_is_idle(void *core, const struct group *g);
void dispatch_on_result(struct head_core *h, struct worker *w, const struct msg_result *m);
void dispatch_turn(struct head_core *h);
void dispatch_tick(struct head_core *h);
void dispatch_free(struct head_core *h);
void dispatch_totals(const struct head_core *h, struct scheduler_stats *out);
/* All groups that serve can. */
bool dispatch_scores_prompts(const struct head_core *h);
void dispatch_accepted(const struct head_core *h, uint64_t *out); /* [SCHEDULER_MAX_DRAFT] */
