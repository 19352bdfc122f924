#pragma once
/* The tables of LoRA adapters as plain data: what the cluster has loaded or is loading, and what
 * each worker holds of it. adapters.c alone changes them, but for the answers and losses that the
 * core takes out. Loop thread. */
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

/* The adapters that a worker holds, by the table's index. */
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
