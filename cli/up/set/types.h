#pragma once
/* Describes the models of one `cox up` that serves several: their names, their options and the
 * memory that they need. */
#include "cli/up/plan/options.h"

enum { UP_SET_MAX = 64, UP_SET_TAG_BYTES = 64, SET_NAMES_MAX = 64 };

/* `set_need` holds the memory of one worker of a model, the largest of its ranks. `set_memory_plan`
 * sets the results. */
struct set_need {
    const char *name;
    enum up_start_kind start;
    uint32_t n_workers; /* workers that hold weights; 0 = the model needs no memory */
    uint32_t n_copies;  /* times that the host has the weights; 0 = each worker has its own */
    uint64_t weights_bytes;
    uint64_t other_bytes; /* activations, collectives and adapters */
    /* KV cache that the worker takes by default, and that of one sequence of full length. They
     * are equal when an option sets the size. */
    uint64_t kv_wanted_bytes, kv_least_bytes;
    bool is_placed; /* the model runs: kv_bytes and first_device are given */
    /* results */
    uint64_t kv_bytes;
    uint32_t first_device; /* device of worker 0; worker i is on first_device + i */
};

/* `set_setting` is an option of a model that the gateways need, in the notation of their file. */
struct set_setting {
    const char *key, *json;
};

struct set_model {
    const char *name;             /* name in requests, unique in the set */
    char tag[UP_SET_TAG_BYTES];   /* part of process names, unique in the set */
    const char *source;           /* MODEL as the user gave it */
    const char *made_of;          /* equal texts mean equal processes */
    struct option_list names;     /* the name, then the aliases */
    struct up_options *o;         /* options of the model */
    struct config_result o_owned; /* owns the strings of `o` */
    struct set_setting *settings;
    uint32_t n_settings;
    struct set_need need;
};

struct up_set {
    struct set_model *models;
    uint32_t n;
    const char *routes; /* routes of the file, as JSON; NULL = none */
};
