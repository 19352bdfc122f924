#pragma once
/* LoRA adapters of the cluster: a table of names, and what each worker holds of it. Every worker is
 * told to load what is in the table and to drop what leaves it; an adapter can be named by requests
 * when all workers have it, and a worker that lacks one is not placed.
 *
 *   LOADING → READY → LEAVING (requests still use it) → UNLOADING → gone
 *   LOADING → FAILED    READY → FAILED: no replica can form with it, and one could without
 *
 * An id is drawn for each loading, so that the same name loaded again is another one: to the prefix
 * cache, to ranks, and to requests that began with the old one. It knows nothing of requests: its
 * owner says whether one is in use. Pure, time is an argument. Loop thread. */
#include "common/base/random.h"
#include "head/cluster/registry.h"

/* STATUS_UNSUPPORTED: no LoRA here; STATUS_INVALID: the name; STATUS_EXISTS: it is loaded, and
 * in_place was not said; STATUS_LIMIT: --max-loras. taken: the model's own name. */
struct adapter_order {
    struct str name, path;
    bool in_place;
    struct adapter_asker asker;
    struct str taken;
};
MUST_USE enum status adapters_load(struct cluster *c, const struct adapter_order *o,
                                   struct rng *rng, struct error *err);
/* STATUS_NOT_FOUND: there is none of this name. */
MUST_USE enum status adapters_unload(struct cluster *c, const struct adapter_order *o,
                                     struct error *err);
/* The answer to a request that names it. */
enum adapter_use { ADAPTER_USABLE, ADAPTER_SOON, ADAPTER_UNKNOWN };
enum adapter_use adapters_use(const struct cluster *c, struct str name, uint64_t *id);

void adapters_on_hello(struct cluster *c, struct worker *w, const struct worker_info *i);
void adapters_on_done(struct cluster *c, struct worker *w, const struct msg_adapter_done *m);
/* Why there is no adapter of this name, when a worker said so; or "". */
const char *adapters_why_not(const struct cluster *c, struct str name);
/* Moves entries on and sends what workers are owed. in_use: do live requests have this id? */
typedef bool adapters_in_use_fn(const void *ctx, uint64_t id);
void adapters_tick(struct cluster *c, adapters_in_use_fn *in_use, const void *ctx);
void adapters_turn(struct cluster *c); /* the same after something happened, but for in_use */
const char *adapter_state_name(enum adapter_state s);
