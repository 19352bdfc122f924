#pragma once
/* State of the whole process, shared by the files of this folder. gateway.c defines the order in
 * which the parts start and stop. */
#include "gateway/auth/quotas.h"
#include "gateway/link.h"
#include "gateway/model.h"
#include "gateway/routes/state.h"

struct gateway {
    struct api_server api; /* routes and serving, used by every request */
    struct gateway_model model;
    struct gateway_link link; /* link to the head */
    struct encode_pool *pool;
    struct quotas *quotas; /* NULL = this gateway counts limits alone */
    bool has_serving;
    struct loop_timer *engine_timer, *serving_timer, *auth_timer;
    /* state of the shutdown (ending.c) */
    struct loop_timer *shutdown_timer;
    bool has_said_last_words; /* every open request ended with an error */
    bool stopped;             /* the loop ends with this turn */
    bool closed;              /* no new connections; stops after the last request */
};
