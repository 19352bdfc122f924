#pragma once
/* Chooses the model of a request: by the weights of a route, by a header or a key that asks for one
 * of its targets, and by the fallback of a model that cannot serve now. The functions keep no state
 * but the random numbers. Only the loop thread calls these functions. */
#include "common/base/random.h"
#include "gateway/models/served.h"

struct model_route {
    const struct models_file_route *file;            /* borrowed from the set's file */
    struct served_model *targets[ROUTE_TARGETS_MAX]; /* models of file->targets */
    struct served_model *mirror;                     /* NULL = none */
};

/* Returns the target for a request. `asked` is the model that a header asks for, or "". A key whose
 * models= names targets of the route gets only those. A target gets no share while another one can
 * serve if its last requests failed before their first token, or if it has failed or its head or
 * its workers are away and no fallback answers for it. Returns NULL when `asked` is no target. */
struct served_model *model_route_choose(const struct model_route *r, struct str asked,
                                        const struct api_key *key, struct rng *rng);
/* Returns true when the model has max_requests requests of clients. */
bool served_model_is_full(const struct served_model *m);
/* Returns true when the model cannot take a request now: it has failed, its head or its workers
 * have been away for longer than a restart takes, or it is full. */
bool served_model_is_out(const struct served_model *m);
/* Returns the serving of the model's fallback if it can take a request now, else NULL. `model` is a
 * struct served_model. */
struct serving *served_model_fallback(void *model);
