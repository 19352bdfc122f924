#pragma once
/* Defines the state of several models in one `cox up`, for the files of this folder. */
#include "cli/up/prepare/model.h"
#include "cli/up/process/supervisor.h"
#include "cli/up/set/demand.h"
#include "cli/up/set/memory.h"
#include "cli/up/set/read.h"
#include "cli/up/set/watch.h"

enum { SET_WHY_BYTES = 800, SET_NAMES_BYTES = 256 };

struct running_model {
    struct set_run *r;
    struct up_model opened;
    struct up_place place;
    struct up_plan plan; /* head and workers */
    const char *admin, *head;
    struct set_watch *watch;
    struct set_heard heard;
    uint64_t n_rests;  /* answers to rests that were handled */
    uint32_t *n_tries; /* [plan.n_children] ends of each process before the model served */
    bool has_served, has_workers; /* has_workers: the workers were added to the supervisor */
    char failed[SET_WHY_BYTES];
};

struct set_run {
    struct set_input in;
    struct arena *arena;
    struct up_set set;
    struct running_model *models;
    struct set_memory memory;
    struct demand demand;
    struct loop_timer *timer;
    struct supervisor *supervisor;
    loop_fn *on_change;
    void *ctx;
    const char *file; /* the gateways' file */
    char names[SET_NAMES_BYTES];
    bool is_stopping;
};
