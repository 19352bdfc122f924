#pragma once
/* The worker registry and the groups: who is there, who is placed where, which epoch lives. The
 * formation state machine of docs/protocol.md ("Groups") is group.c, adoption after a head restart
 * adoption.c, the choice of workers placement.c. It knows nothing of requests: its owner is told
 * when a group becomes ready and when one goes down, and answers whether a rank that came back in a
 * new session may go on. Pure, time is an argument. Loop thread. */
#include "head/cluster/adapters.h"
#include "head/cluster/elastic.h"
#include "head/cluster/formation.h"
#include "head/cluster/placement.h"
#include "head/cluster/readiness.h"
#include "head/cluster/straggler.h"
#include "head/links/peers.h"

#define CLUSTER_MAX_WORLD    1024u
#define CLUSTER_ID_BYTES_MAX 4096u
#define CLUSTER_TERMS        64u

struct group;

/* A worker as its Hello described it, cut to size; its shard is what it was told to take. */
struct worker_desc {
    enum device_kind device;
    uint64_t host_hash; /* of host: compared first */
    char device_name[65], host[65], zone[65], comm_address[257], kv_address[257], http_address[257],
        model[129];
    uint64_t memory_bytes;
    uint32_t isa_level, tp, pp, max_model_len, vocab_size, n_draft, draft_max_seqs, n_kv_groups;
    bool scores_prompts;
    enum group_role role;
    uint8_t config_hash[32], model_hash[32]; /* the second may be zeros */
    int32_t ordinal, shard_rank, shard_stage;
    uint32_t shard_tp; /* never 0 */
    struct kv_group kv_groups[CLUSTER_MAX_KV_GROUPS];
    struct worker_shape elastic[PROTO_MAX_ELASTIC]; /* smaller TPs that it can be a rank of, */
    uint32_t n_elastic;                             /* falling */
};

/* The one message of a formation that a worker is owed; a newer replaces an unsent older one. */
enum worker_todo { TODO_NONE, TODO_FORM, TODO_JOIN, TODO_RESET, TODO_ABORT };

struct worker {
    struct peer *peer; /* never NULL */
    struct worker_desc desc;
    struct group *group; /* NULL: free, an adoption candidate, or being aborted alone */
    uint32_t position;   /* in the group: stage * tp + rank */
    enum worker_todo todo;
    bool formed, aborted; /* answers to what is under way */
    uint64_t abort_epoch; /* not 0: Aborted (or loss) is awaited before it may be placed */
    uint64_t held_epoch, held_group; /* adoption candidate: what its Hello reported; 0: none */
    uint32_t held_position, held_tp;
    uint64_t held_since_ns, rest_group;
    bool is_of_rest; /* free, and of what is left of rest_group: its old group, which waits */
    uint64_t step_received, step_executed, progress, progress_ns;
    bool busy, plan_unsent; /* the dispatcher's: the pending plan has not gone to this rank yet */
    uint32_t load_permille; /* of a shard it reads; 0: none. As its last heartbeat says, and gpu */
    struct gpu_state gpu;
    struct host_state host;
    bool draining, drain_wish, knows_drain; /* the third: as last told in this session */
    bool is_spare, waits_for_predecessor;   /* the seat's process before it may be there yet */
    uint64_t lone_since_ns /* standing.h */, joined_ns, free_since_ns, abort_since_ns,
        load_moved_ns, beat_ns;
    struct own_time own; /* what its steps take */
    struct worker_adapters adapters;
    struct vocabulary vocabulary; /* its model's; n_tokens 0: it has not said */
    struct worker *next;          /* registry, in order of arrival */
};

/* WAITING: no members; ABORTING: members that have not answered yet. */
enum group_state {
    GROUP_WAITING,
    GROUP_FORMING,
    GROUP_JOINING,
    GROUP_READY,
    GROUP_RESETTING,
    GROUP_ABORTING,
    GROUP_STATE_COUNT
};

struct group {
    uint32_t index; /* slot in cluster.groups; stable for the group's life */
    uint64_t id;
    enum group_state state;
    uint64_t epoch, old_epoch; /* old: of a Reset */
    uint32_t tp, world;        /* of this epoch: less than the cluster's when it is shrunk */
    struct worker **members;   /* [world]; a lost one leaves NULL */
    bool grows;                /* dissolved to be whole, and not formed again yet */
    bool is_rest;              /* WAITING, for those alone who are left of it (adoption.c) */
    bool draining;             /* no new work; dissolved when idle or at drain_deadline_ns */
    bool lost_rank;            /* its epoch ended because a rank was gone or in trouble */
    uint64_t drain_deadline_ns, deadline_ns;                   /* the second: of the formation */
    uint64_t retry_at_ns, ready_ns, waiting_since_ns, grew_ns; /* 0: it never did */
    uint64_t short_since_ns; /* when it was whole last, or begun */
    uint32_t n_failures;     /* in a row: back-off */
    uint32_t most_tokens;    /* of a request, when it was whole last; 0: it never was. The core's */
    uint32_t n_recoveries, n_comm_id;
    uint32_t isa_level, max_model_len, vocab_size, n_kv_groups;
    uint32_t n_draft, draft_max_seqs;                 /* what every rank can, */
    bool scores_prompts;                              /* and this */
    enum group_role role;                             /* theirs */
    struct kv_group kv_groups[CLUSTER_MAX_KV_GROUPS]; /* n_blocks = minimum over the ranks */
    uint8_t *comm_id;                                 /* [n_comm_id] */
    uint32_t n_blocks[CLUSTER_MAX_KV_GROUPS];
};

struct cluster_fns {
    void *ctx;
    void (*on_ready)(void *ctx, struct group *g);
    void (*on_down)(void *ctx, struct group *g); /* was READY; its epoch executes no more for us */
    /* A rank of a READY group said Hello again: has nothing been lost with the old session? */
    bool (*may_go_on)(void *ctx, const struct group *g, const struct worker *w,
                      const struct worker_info *said);
    bool (*is_idle)(void *ctx, const struct group *g); /* draining: nothing runs on it any more */
};

struct cluster_config {
    uint32_t tp, pp, max_groups, serving_groups; /* slots; that are formed at most, 0: all */
    uint64_t formation_timeout_ns, adoption_window_ns, abort_timeout_ns, settle_ns, stuck_ns;
    uint64_t settle_max_ns; /* who has been free for so long waits for no others that come */
    uint64_t retry_first_ns, retry_max_ns, drain_timeout_ns, surplus_ns;
    uint64_t load_stuck_ns; /* a rank that reads a shard and gets nowhere for so long is lost */
    uint64_t lone_ns, config_linger_ns; /* to be a spare; for a model that no worker has any more */
    bool elastic_tp;                    /* groups may have fewer ranks than world, */
    uint64_t elastic_wait_ns;           /* after so long without the whole */
};

struct cluster_failure {
    uint64_t wall_ns;
    char node[65], what[24], reason[240];
};
#define CLUSTER_FAILURES 32u

struct cluster {
    struct cluster_config config;
    struct cluster_fns fns;
    struct peers *peers;
    struct events *events;
    uint64_t now_ns;
    uint32_t world; /* tp * pp: of a whole group */
    uint64_t term, n_epochs, highest_term_seen;
    uint64_t own_terms[CLUSTER_TERMS]; /* ring: epochs of these are not for adoption */
    uint32_t n_own_terms;
    struct worker *workers;
    uint32_t n_workers;
    struct group **groups; /* [max_groups], NULL: free slot */
    uint32_t n_groups;
    bool place_dirty;
    bool stirred; /* a worker may be owed something: results and tokens change nothing of that */
    bool elastic_told; /* that --elastic-tp is the head's or the workers' alone */
    /* The model in force: of the first that formed a group, as long as a worker has it; workers of
     * another are given no requests. Of who does not say which it has, it is the configuration. */
    bool has_config;
    uint8_t config_hash[32], model_hash[32];
    uint64_t config_seen_ns, n_formations, n_formation_failures, n_adoptions, n_failures;
    uint64_t n_worker_losses, n_worker_departures;     /* told to leave */
    struct cluster_failure failures[CLUSTER_FAILURES]; /* ring */
    struct adapters adapters;
};

void cluster_init(struct cluster *c, const struct cluster_config *config,
                  const struct cluster_fns *fns, struct peers *peers, struct events *events);
void cluster_fini(struct cluster *c);
/* Term-related part of every Hello, whatever the role. Call before Welcome is sent. */
void cluster_see_term(struct cluster *c, uint64_t term_seen, uint64_t told_term);
bool cluster_term_is_foreign(const struct cluster *c, uint64_t term_seen, uint64_t told_term);
void cluster_set_term(struct cluster *c, uint64_t term); /* with the lease */
uint64_t cluster_need_term(struct cluster *c);           /* taken now if there is none */

/* Has the worker the model in force? True while there is none. */
bool cluster_config_fits(const struct cluster *c, const struct worker *w);
/* Checks any role's Hello before its session is opened. */
MUST_USE enum status cluster_check_hello(const struct cluster *c, const struct msg_hello *h,
                                         struct error *err);
void cluster_on_hello(struct cluster *c, struct peer *peer, const struct msg_hello *h);
void cluster_on_msg(struct cluster *c, struct worker *w, const struct msg *m);
/* It and its peer are forgotten: it is lost (silent, stuck, a fault), or was told to leave. */
void cluster_lose(struct cluster *c, struct worker *w, const char *why);
void cluster_leave(struct cluster *c, struct worker *w, const char *why);
/* Ends the group's epoch: Abort to every rank. is_failure: back off before the next formation. */
void cluster_dissolve(struct cluster *c, struct group *g, const char *why, bool is_failure);
void cluster_drain(struct cluster *c, struct worker *w, bool on, const char *by);
/* Deadlines, stuck ranks, adoption, draining. */
void cluster_tick(struct cluster *c, uint64_t now_ns);
/* Places free workers and sends what is owed. Call at the end of every turn. */
void cluster_turn(struct cluster *c, uint64_t now_ns);

uint32_t cluster_count_groups(const struct cluster *c, enum group_state state);
struct worker *cluster_find_worker(const struct cluster *c, uint64_t instance);
bool worker_is_free(const struct worker *w); /* may be placed, apart from draining or suspicion */
const char *worker_state_name(const struct worker *w);
const char *group_state_name(enum group_state s);
void cluster_epoch_text(uint64_t term_epoch, char out[32]); /* "1.3" */

/* ---- between cluster.c, group.c, adoption.c and placement.c ---- */
uint64_t cluster_next_epoch(struct cluster *c);
void cluster_add_failure(struct cluster *c, const char *node, const char *what, const char *reason);
void worker_abort_alone(struct cluster *c, struct worker *w, uint64_t term_epoch, const char *why);
void worker_set_free(struct cluster *c, struct worker *w);
void adoption_tick(struct cluster *c);
bool adoption_has_rest(const struct cluster *c, const struct group *g); /* of an is_rest group */
