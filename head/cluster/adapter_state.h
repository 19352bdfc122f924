#pragma once
/* Holds the tables of LoRA adapters: the adapters that the cluster has loaded or is loading, and
 * those that each worker holds. Only adapters.c changes the tables, except that the core removes
 * answers and losses. The data belongs to the loop thread. */
#include "proto/limits.h"
#include "proto/messages.h"

#define ADAPTERS_MAX      PROTO_MAX_ADAPTERS
#define ADAPTERS_NAME_MAX 256u
#define ADAPTERS_TEXT_MAX 480u
#define ADAPTERS_ANSWERS  64u
/* ADAPTERS_RETRY_NS is the delay before a worker that failed to load an adapter is asked again. */
#define ADAPTERS_RETRY_NS 5000000000ull
/* ADAPTERS_YOUNG_NS is the time after the first worker's Hello in which a new head adds the
 * adapters that workers already hold to its table. */
#define ADAPTERS_YOUNG_NS 10000000000ull

enum adapter_state {
    ADAPTER_NONE,
    ADAPTER_LOADING,
    ADAPTER_READY,
    ADAPTER_LEAVING,
    ADAPTER_UNLOADING,
    /* a failed adapter is kept for its error text until another adapter takes its name */
    ADAPTER_FAILED,
    ADAPTER_STATE_COUNT
};

/* `adapter_asker` is the gateway to answer when the adapter is loaded or gone; gateway 0 = no
 * gateway. */
struct adapter_asker {
    uint64_t gateway, ticket;
};

struct adapter {
    enum adapter_state state;
    uint64_t id;
    char name[ADAPTERS_NAME_MAX], path[1024];
    /* state FAILED: the reason; other states: why some worker lacks the adapter */
    char text[ADAPTERS_TEXT_MAX];
    /* `identity` names the files that the first worker read. The files of all other workers must
     * match it. */
    struct adapter_identity identity;
    struct adapter_asker asker;
    uint64_t since_ns;
};

/* `adapter_loss` describes an adapter that was dropped while requests use it. The core ends
 * these requests with this text. */
struct adapter_loss {
    uint64_t id;
    char text[ADAPTERS_TEXT_MAX];
};

struct adapter_answer {
    struct adapter_asker to;
    enum status status;
    char text[ADAPTERS_TEXT_MAX];
};

/* `worker_adapters` holds the adapters of one worker, as bit masks over the index in
 * `adapters.all`. */
struct worker_adapters {
    uint64_t has, asked, dropping, failed; /* asked, dropping: the worker has not answered yet */
    /* tried: the worker refused once; hopeless: it refused again, so it cannot load the adapter */
    uint64_t tried, hopeless;
    uint64_t retry_ns;
    /* ids without an entry in the table; the worker must drop them */
    uint64_t strays[ADAPTERS_MAX];
    uint32_t n_strays;
};

struct adapters {
    uint32_t max_loras; /* most adapters at once; 0 = LoRA is off */
    uint64_t met_ns;    /* time of the first worker's Hello; 0 = none yet */
    uint64_t n_changes; /* changes of the set of usable names */
    uint64_t required;  /* by index: adapters that a worker needs to be placed */
    bool stirred;
    struct adapter all[ADAPTERS_MAX];
    struct adapter_answer answers[ADAPTERS_ANSWERS]; /* array of n_answers, the oldest first */
    uint32_t n_answers;
    struct adapter_loss losses[ADAPTERS_MAX]; /* array of n_losses; the owner ends their requests */
    uint32_t n_losses;
};
