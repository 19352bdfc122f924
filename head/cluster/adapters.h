#pragma once
/* LoRA adapters of the cluster: a table of names, and what each worker holds of it. Every worker is
 * told to load what is in the table and to drop what leaves it; an adapter can be named by requests
 * when all workers have it, and a worker that lacks one is not placed.
 *
 *   LOADING → READY → LEAVING (requests still use it) → UNLOADING → gone
 *   LOADING → FAILED    READY → FAILED: no group can form with it, and one could without
 *
 * An id is drawn for each loading, so that the same name loaded again is another one: to the prefix
 * cache, to ranks, and to requests that began with the old one. It knows nothing of requests: its
 * owner says whether one is in use. Pure, time is an argument. Loop thread. */
#include "common/base/random.h"
#include "proto/limits.h"
#include "proto/messages.h"

#define ADAPTERS_MAX      PROTO_MAX_ADAPTERS
#define ADAPTERS_NAME_MAX 256u
#define ADAPTERS_TEXT_MAX 480u
#define ADAPTERS_ANSWERS  64u
#define ADAPTERS_RETRY_NS 5000000000ull /* a worker that could not load one is asked again */
/* From the first worker on, a new head takes over what workers hold for so long. */
#define ADAPTERS_YOUNG_NS 10000000000ull

enum adapter_state {
    ADAPTER_NONE,
    ADAPTER_LOADING,
    ADAPTER_READY,
    ADAPTER_LEAVING,
    ADAPTER_UNLOADING,
    ADAPTER_FAILED, /* kept until another of the name comes, for who asks why */
    ADAPTER_STATE_COUNT
};

/* Whom to answer when it is loaded or gone; gateway 0: nobody. */
struct adapter_asker {
    uint64_t gateway, ticket;
};

struct adapter {
    enum adapter_state state;
    uint64_t id;
    char name[ADAPTERS_NAME_MAX], path[1024];
    char text[ADAPTERS_TEXT_MAX];     /* FAILED: why; else why some worker lacks it */
    struct adapter_identity identity; /* of what the first worker read: all others have to, too */
    struct adapter_asker asker;
    uint64_t since_ns;
};

/* One that had to go although requests have it: they end with this. */
struct adapter_loss {
    uint64_t id;
    char text[ADAPTERS_TEXT_MAX];
};

struct adapter_answer {
    struct adapter_asker to;
    enum status status;
    char text[ADAPTERS_TEXT_MAX];
};

/* What a worker holds, by the table's index. */
struct worker_adapters {
    uint64_t has, asked, dropping, failed; /* asked, dropping: it has not answered yet */
    uint64_t tried, hopeless;              /* refused it once; and again, so that it never will */
    uint64_t retry_ns;
    uint64_t strays[ADAPTERS_MAX]; /* ids that no entry has: to be dropped */
    uint32_t n_strays;
};

struct adapters {
    uint32_t max_loras; /* 0: there are none */
    uint64_t met_ns;    /* when the first worker said Hello; 0: none has */
    uint64_t n_changes; /* of the names that can be used */
    uint64_t required;  /* by index: what a worker needs to be placed */
    bool stirred;
    struct adapter all[ADAPTERS_MAX];
    struct adapter_answer answers[ADAPTERS_ANSWERS]; /* [n_answers]: oldest first */
    uint32_t n_answers;
    struct adapter_loss losses[ADAPTERS_MAX]; /* [n_losses]: the owner ends their requests */
    uint32_t n_losses;
};

struct cluster;
struct worker;

/* STATUS_UNSUPPORTED: no LoRA here; STATUS_INVALID: the name; STATUS_EXISTS: it is loaded, and
 * in_place was not said; STATUS_LIMIT: --max-loras. taken: the model's own name. */
struct adapter_order {
    struct str name, path;
    bool in_place;
    struct adapter_asker asker;
    struct str taken;
};
MUST_USE enum status adapters_load(struct cluster *c, const struct adapter_order *o,
                                   struct rng *rng, struct error *err);
/* STATUS_NOT_FOUND: there is none of this name. */
MUST_USE enum status adapters_unload(struct cluster *c, const struct adapter_order *o,
                                     struct error *err);
/* What a request that names it gets. */
enum adapter_use { ADAPTER_USABLE, ADAPTER_SOON, ADAPTER_UNKNOWN };
enum adapter_use adapters_use(const struct cluster *c, struct str name, uint64_t *id);
/* May it run in a group: has it all that requests may use? */
bool adapters_may_place(const struct cluster *c, const struct worker *w);
/* The same if those were not in the table, by index. */
bool adapters_may_place_without(const struct cluster *c, const struct worker *w, uint64_t without);

void adapters_on_hello(struct cluster *c, struct worker *w, const struct worker_info *i);
void adapters_on_done(struct cluster *c, struct worker *w, const struct msg_adapter_done *m);
/* Why there is no adapter of this name, when a worker said so; or "". */
const char *adapters_why_not(const struct cluster *c, struct str name);
/* Moves entries on and sends what workers are owed. in_use: do live requests have this id? */
typedef bool adapters_in_use_fn(const void *ctx, uint64_t id);
void adapters_tick(struct cluster *c, adapters_in_use_fn *in_use, const void *ctx);
void adapters_turn(struct cluster *c); /* the same after something happened, but for in_use */
const char *adapter_state_name(enum adapter_state s);
