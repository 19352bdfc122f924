#pragma once
/* The whole process, for the files of this folder. gateway.c says in which order its parts start
 * and stop. */
#include "gateway/auth/quotas.h"
#include "gateway/link.h"
#include "gateway/model.h"
#include "gateway/routes/state.h"

struct gateway {
    struct api_server api; /* what requests are served from */
    struct gateway_model model;
    struct gateway_link link; /* to the head */
    struct encode_pool *pool;
    struct quotas *quotas; /* NULL: this gateway counts for itself */
    bool has_serving;
    struct loop_timer *engine_timer, *serving_timer, *auth_timer;
    /* of its end (ending.c) */
    struct loop_timer *shutdown_timer;
    bool has_said_last_words; /* every open request was ended, and told so */
    bool stopped;             /* the loop ends with this turn */
    bool closed;              /* takes no new connection, and ends with its last request */
};
