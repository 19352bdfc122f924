#pragma once
/* `model_set` holds all models of a gateway and finds the model of a request by its name. Without
 * --models the set has one model, from the gateway's own options. With --models the set follows
 * the file: models come and go while the gateway runs, and open requests end where they began.
 * docs/develop/many-models.md has the rules. Only the loop thread calls these functions. */
#include "common/keys/file_watch.h"
#include "gateway/models/mirror.h"
#include "gateway/models/names.h"
#include "gateway/models/route.h"
#include "gateway/models/store.h"

struct model_set {
    struct served_world world;
    /* source of the set, for error texts: the file of --models, or the key in Redis; NULL = one
     * model from the options */
    const char *path;
    struct models_store *store;  /* the set in Redis; NULL = it is a file */
    bool awaits_set;             /* the set has not been read from Redis yet */
    struct key_file_watch watch; /* state of the file */
    struct models_file file;     /* its content, as last accepted */
    struct model_route *routes;  /* [n_routes]: routes of `file` */
    uint32_t n_routes;
    struct rng rng; /* chooses the targets of routes */
    struct mirror mirror;
    struct served_model **listed; /* [n_listed]: models with names, in the order of the file */
    uint32_t n_listed;
    struct served_model *first; /* all models: listed, pending and leaving */
    struct due_list due;        /* models with work at the end of the turn */
    struct model_names names;
    bool draining; /* the gateway is stopping */
};

/* Opens the models. A set in Redis is read later. `s->world` must be set and all else be zero. Call
 * `model_set_fini` also after a failure. */
MUST_USE enum status model_set_open(struct model_set *s, struct error *err);
/* Reads the file again now. An error changes nothing. */
MUST_USE enum status model_set_reload(struct model_set *s, struct error *err);
/* Reads the file again if it changed. An error changes nothing and is logged once. */
void model_set_look(struct model_set *s);
void model_set_tick(struct model_set *s);        /* checks deadlines; called every 250 ms */
void model_set_engine_tick(struct model_set *s); /* keeps the links alive; every 125 ms */
void model_set_turn_end(struct model_set *s);    /* called at the end of a loop turn */

/* ---- finding a model ---- */

/* Returns the model of a name, or NULL. An adapter's name leads to its base model, and a route's
 * name to its first target. */
struct served_model *model_set_find(const struct model_set *s, struct str name);
/* Returns the only model of a gateway without --models. */
struct served_model *model_set_only(const struct model_set *s);
/* Finds the serving of a request by the name in its body, and sets q->is_ours and the fallback.
 * Sends a copy to the mirror of a route. Returns NULL and the error when the body names no model,
 * or one that does not exist or that the key may not use. */
struct serving *model_set_serving(struct model_set *s, struct serving_request *q,
                                  struct api_error *e);
/* Writes the 404 for a name, with the nearest names that the key may use. */
void model_set_unknown(const struct model_set *s, const struct api_key *key, struct str name,
                       struct api_error *e);

/* ---- all models together ---- */

/* Forgets a call about adapters, or a change of the set, whose client has disconnected. */
void model_set_on_abort(struct model_set *s, const void *reply);

/* Returns true when a model can take requests. `why` is the reason for the text of a 503. */
bool model_set_healthy(const struct model_set *s, const char **why);
/* Returns true when a head refuses this gateway because its model is another one. */
bool model_set_is_refused(const struct model_set *s);
uint32_t model_set_n_requests(const struct model_set *s);
/* Returns the length of the longest context of all models, in tokens. */
uint32_t model_set_max_len(const struct model_set *s);
bool model_set_has_one_class(const struct model_set *s);
void model_set_drain(struct model_set *s);
void model_set_end_all(struct model_set *s); /* ends every request with an error */
void model_set_goodbye(struct model_set *s);
void model_set_stop_compilers(struct model_set *s);
/* Frees all models, after the servers and the pools. */
void model_set_fini(struct model_set *s);
