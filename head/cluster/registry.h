#pragma once
/* The registry of workers and replicas: who is there, who is in which replica, which terms and
 * epochs were given out. Everything else of cluster/ reads it and changes it; the functions here
 * are what all of them need, and they call none of them. Pure: time is an argument or c->now_ns.
 * Loop thread. */
#include "head/cluster/replica.h"

#define CLUSTER_MAX_WORLD    1024u
#define CLUSTER_ID_BYTES_MAX 4096u
#define CLUSTER_TERMS        64u

struct cluster_fns {
    void *ctx;
    void (*on_ready)(void *ctx, struct replica *g);
    void (*on_down)(void *ctx,
                    struct replica *g); /* was READY; its epoch executes no more for us */
    /* A rank of a READY replica said Hello again: has nothing been lost with the old session? */
    bool (*may_go_on)(void *ctx, const struct replica *g, const struct worker *w,
                      const struct worker_info *said);
    bool (*is_idle)(void *ctx, const struct replica *g); /* draining: nothing runs on it any more */
};

struct cluster_config {
    uint32_t tp, pp, max_replicas, serving_replicas; /* slots; that are formed at most, 0: all */
    uint64_t formation_timeout_ns, adoption_window_ns, abort_timeout_ns, settle_ns, stuck_ns;
    uint64_t settle_max_ns; /* who has been free for so long waits for no others that come */
    uint64_t retry_first_ns, retry_max_ns, drain_timeout_ns, surplus_ns;
    uint64_t load_stuck_ns; /* a rank that reads a shard and gets nowhere for so long is lost */
    uint64_t lone_ns, config_linger_ns; /* to be a spare; for a model that no worker has any more */
    bool elastic_tp;                    /* replicas may have fewer ranks than world, */
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
    uint32_t world; /* tp * pp: of a whole replica */
    uint64_t term, n_epochs, highest_term_seen;
    uint64_t own_terms[CLUSTER_TERMS]; /* ring: epochs of these are not for adoption */
    uint32_t n_own_terms;
    struct worker *workers;
    uint32_t n_workers;
    struct replica **replicas; /* [max_replicas], NULL: free slot */
    uint32_t n_replicas;
    bool place_dirty;
    bool stirred; /* a worker may be owed something: results and tokens change nothing of that */
    bool elastic_told; /* that --elastic-tp is the head's or the workers' alone */
    /* The model in force: of the first that formed a replica, as long as a worker has it; workers
     * of another are given no requests. Of who does not say which it has, it is the configuration.
     */
    bool has_config;
    uint8_t config_hash[32], model_hash[32];
    uint64_t config_seen_ns, n_formations, n_formation_failures, n_adoptions, n_failures;
    uint64_t n_worker_losses, n_worker_departures;     /* told to leave */
    struct cluster_failure failures[CLUSTER_FAILURES]; /* ring */
    struct adapters adapters;
};

/* Term-related part of every Hello, whatever the role. Call before Welcome is sent. */
void cluster_see_term(struct cluster *c, uint64_t term_seen, uint64_t told_term);
bool cluster_term_is_foreign(const struct cluster *c, uint64_t term_seen, uint64_t told_term);
bool cluster_owns_term(const struct cluster *c,
                       uint64_t term_epoch);             /* the epoch's term was ours */
void cluster_set_term(struct cluster *c, uint64_t term); /* with the lease */
uint64_t cluster_need_term(struct cluster *c);           /* taken now if there is none */
uint64_t cluster_next_epoch(struct cluster *c);
void cluster_epoch_text(uint64_t term_epoch, char out[32]); /* "1.3" */

/* Has the worker the model in force? True while there is none. */
bool cluster_config_fits(const struct cluster *c, const struct worker *w);
void cluster_add_failure(struct cluster *c, const char *node, const char *what, const char *reason);
uint32_t cluster_count_replicas(const struct cluster *c, enum replica_state state);
struct worker *cluster_find_worker(const struct cluster *c, uint64_t instance);

bool worker_is_free(const struct worker *w); /* may be placed, apart from draining or suspicion */
void worker_set_free(struct cluster *c, struct worker *w);
void worker_abort_alone(struct cluster *c, struct worker *w, uint64_t term_epoch, const char *why);
const char *worker_state_name(const struct worker *w);
/* The worker's blocks as a rank of that TP, by KV group; NULL: it can be none. */
const struct worker_shape *worker_shape_of(const struct worker_desc *d, uint32_t tp);

struct replica *replica_find(const struct cluster *c, uint64_t id);
bool replica_is_shrunk(const struct cluster *c, const struct replica *g); /* fewer ranks than TP */
bool replica_has_rest(const struct cluster *c, const struct replica *g); /* of an is_rest replica */
const char *replica_state_name(enum replica_state s);
