#pragma once
/* Keeps the registry of workers and replicas: connected workers, members of each replica, and
 * the terms and epochs already used. All files of cluster/ read and change the registry. They
 * all need the functions here, and these functions call no other file of cluster/. Time is an
 * argument or c->now_ns, and the code runs on the loop thread. */
#include "head/cluster/replica.h"

#define CLUSTER_MAX_WORLD    1024u
#define CLUSTER_ID_BYTES_MAX 4096u
#define CLUSTER_TERMS        64u

struct cluster_fns {
    void *ctx;
    void (*on_ready)(void *ctx, struct replica *g);
    /* Called when the replica was READY and its epoch is over: the ranks execute no more plans
     * of this epoch. */
    void (*on_down)(void *ctx, struct replica *g);
    /* Called when a rank of a READY replica sent Hello again. Returns true when nothing was lost
     * with the old session. */
    bool (*may_go_on)(void *ctx, const struct replica *g, const struct worker *w,
                      const struct worker_info *said);
    /* Called for a draining replica. Returns true when nothing runs on it. */
    bool (*is_idle)(void *ctx, const struct replica *g);
};

struct cluster_config {
    /* max_replicas: slots for replicas; serving_replicas: most replicas that are formed, 0 = all */
    uint32_t tp, pp, max_replicas, serving_replicas;
    uint64_t formation_timeout_ns, adoption_window_ns, abort_timeout_ns, settle_ns, stuck_ns;
    /* a worker that has been free for this time no longer waits for others */
    uint64_t settle_max_ns;
    uint64_t retry_first_ns, retry_max_ns, drain_timeout_ns, surplus_ns;
    uint64_t load_stuck_ns; /* a rank whose shard makes no progress for this time is lost */
    /* lone_ns: delay before a worker without partners is a spare; config_linger_ns: time that
     * the current model stays current without workers */
    uint64_t lone_ns, config_linger_ns;
    bool elastic_tp;          /* replicas may have fewer ranks than `world` */
    uint64_t elastic_wait_ns; /* delay before a smaller replica is formed */
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
    uint32_t world; /* ranks of a whole replica: tp * pp */
    uint64_t term, n_epochs, highest_term_seen;
    uint64_t own_terms[CLUSTER_TERMS]; /* ring of this head's terms; their epochs are not adopted */
    uint32_t n_own_terms;
    struct worker *workers;
    uint32_t n_workers;
    struct replica **replicas; /* array of max_replicas; NULL = free slot */
    uint32_t n_replicas;
    bool place_dirty;
    bool asleep;       /* the workers sleep, and no replica is formed (core/sleep.c) */
    bool stirred;      /* a worker may need a message; results and tokens do not set this flag */
    bool elastic_told; /* the warning about a one-sided --elastic-tp was logged */
    /* `has_config` and the fields below describe the current model: that of the first replica,
     * for as long as a worker has it. Workers of another model get no requests. A worker that
     * does not report its model is compared by its configuration. */
    bool has_config;
    uint8_t config_hash[32], model_hash[32];
    uint64_t config_seen_ns, n_formations, n_formation_failures, n_adoptions, n_failures;
    /* n_worker_departures: workers that left because the head ordered it */
    uint64_t n_worker_losses, n_worker_departures;
    /* ring of the last failures, by number % CLUSTER_FAILURES */
    struct cluster_failure failures[CLUSTER_FAILURES];
    struct adapters adapters;
};

/* Handles the term in a Hello of any role. When another head took that term, this head takes a
 * higher one. Call it before Welcome is sent. */
void cluster_see_term(struct cluster *c, uint64_t term_seen, uint64_t told_term);
bool cluster_term_is_foreign(const struct cluster *c, uint64_t term_seen, uint64_t told_term);
/* Returns true when this head took the term of this epoch. */
bool cluster_owns_term(const struct cluster *c, uint64_t term_epoch);
void cluster_set_term(struct cluster *c, uint64_t term); /* sets the term of the lease */
uint64_t cluster_need_term(struct cluster *c); /* takes a term now if there is no term yet */
uint64_t cluster_next_epoch(struct cluster *c);
void cluster_epoch_text(uint64_t term_epoch, char out[32]); /* writes "TERM.EPOCH", such as "1.3" */

/* Returns true when the worker has the current model, or when there is no current model. */
bool cluster_config_fits(const struct cluster *c, const struct worker *w);
void cluster_add_failure(struct cluster *c, const char *node, const char *what, const char *reason);
uint32_t cluster_count_replicas(const struct cluster *c, enum replica_state state);
struct worker *cluster_find_worker(const struct cluster *c, uint64_t instance);

/* Returns true when the worker has no replica, ends no epoch and is no adoption candidate. Such
 * a worker may be placed unless it is draining or suspect. */
bool worker_is_free(const struct worker *w);
void worker_set_free(struct cluster *c, struct worker *w);
/* Notes that a join may have woken the worker. The head does not know the worker's level until the
 * worker says it, so a free worker gets the next order in any case. */
void worker_may_wake(struct worker *w);
void worker_abort_alone(struct cluster *c, struct worker *w, uint64_t term_epoch, const char *why);
const char *worker_state_name(const struct worker *w);
/* Returns the worker's KV blocks as a rank of this TP, or NULL when the worker offers no such
 * shape. */
const struct worker_shape *worker_shape_of(const struct worker_desc *d, uint32_t tp);

struct replica *replica_find(const struct cluster *c, uint64_t id);
/* Returns true when the replica has fewer ranks than TP. */
bool replica_is_shrunk(const struct cluster *c, const struct replica *g);
/* Returns true when an old rank of an is_rest replica (replica.h) is still connected. */
bool replica_has_rest(const struct cluster *c, const struct replica *g);
const char *replica_state_name(enum replica_state s);
