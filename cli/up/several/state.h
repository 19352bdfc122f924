#pragma once
/* Defines the state of several models in one `cox up`, for the files of this folder. */
#include "cli/up/prepare/model.h"
#include "cli/up/process/supervisor.h"
#include "cli/up/set/demand.h"
#include "cli/up/set/memory.h"
#include "cli/up/set/read.h"
#include "cli/up/set/watch.h"
#include "common/base/arena.h"

/* SET_SLOTS_MAX leaves room for models that were removed and still end their requests */
enum { SET_WHY_BYTES = 800, SET_NAMES_BYTES = 256, SET_SLOTS_MAX = 2 * UP_SET_MAX };

/* `set_version` is one reading of the set. It lives while it is the newest one, or while a model
 * runs that was made from it. */
struct set_version {
    struct arena arena;
    struct up_set set;
    uint32_t n_users;
};

enum slot_state {
    SLOT_FREE,
    SLOT_PREPARED, /* a change prepares the model */
    SLOT_RUNS,
    SLOT_LEAVES /* the model was removed; its requests and processes end */
};

struct running_model {
    struct set_run *r;
    enum slot_state slot;
    struct set_version *version; /* owns the strings of the model */
    struct set_model *model;     /* the model as it was read when it came */
    struct up_model opened;
    struct up_place place;
    struct up_plan plan; /* head and workers */
    const char *admin, *head;
    int64_t port_step, n_ports, admin_step; /* distance of its ports from the cluster's first */
    struct set_watch *watch;
    struct set_heard heard;
    uint64_t left_ns;  /* time at which the model was removed */
    uint64_t n_rests;  /* answers to rests that were handled */
    uint32_t *n_tries; /* [plan.n_children] ends of each process before the model served */
    bool has_served, has_workers; /* has_workers: the workers were added to the supervisor */
    bool is_slow;                 /* removed, and the user knows that requests are still open */
    char failed[SET_WHY_BYTES];
};

struct set_change;
struct set_run {
    struct set_input in;
    struct arena *arena;
    struct set_version *now;      /* the set that the gateways know */
    uint32_t slot_of[UP_SET_MAX]; /* [now->set.n] */
    struct running_model *models; /* [SET_SLOTS_MAX]; each keeps its address and its number */
    struct set_memory memory;
    struct demand demand; /* [SET_SLOTS_MAX] */
    struct loop *loop;
    struct loop_timer *timer;
    struct supervisor *supervisor;
    struct spares *spares; /* NULL = none */
    loop_fn *on_change;
    void *ctx;
    struct up_place place;     /* place of every model, without a model */
    const char *file;          /* the gateways' file */
    const char *planner;       /* program that measures the models; NULL = that of the workers */
    const char *set_file;      /* the user's file, or the cluster's own */
    struct set_change *change; /* under way; NULL = none */
    struct set_changes *changes;
    char names[SET_NAMES_BYTES];
    bool is_stopping;
};
