#pragma once
/* `gateway` is the state of the whole process, shared by the files of this folder. gateway.c
 * defines the order in which the parts start and stop. */
#include "gateway/auth/quotas.h"
#include "gateway/routes/state.h"

struct gateway {
    struct api_server api; /* routes and models, used by every request */
    /* `pool` tokenizes long prompts; `opener` reads the files of models that are added */
    struct encode_pool *pool, *opener;
    /* quotas shared through Redis; NULL = this gateway counts limits alone */
    struct quotas *quotas;
    struct loop_timer *engine_timer, *serving_timer, *files_timer;
    /* the following fields are the state of the shutdown (ending.c) */
    struct loop_timer *shutdown_timer;
    bool has_said_last_words; /* true when every open request was ended with an error */
    bool stopped;             /* true when the loop ends with this turn */
    bool closed; /* no new connections are accepted; the loop stops after the last request */
};
