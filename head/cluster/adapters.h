#pragma once
/* Manages the cluster's LoRA adapters: a table of names, and the adapters that each worker
 * holds. The head orders every worker to load the adapters in the table, and to drop those that
 * leave it. Requests can name an adapter when all workers have it. A worker that lacks an
 * adapter is not placed.
 *
 *   LOADING → READY → LEAVING (requests still use it) → UNLOADING → gone
 *   LOADING → FAILED
 *   READY → FAILED: no replica can form with it, and one could without it
 *
 * Each loading gets a random id. The same name loaded again is therefore a different adapter for
 * the prefix cache, for ranks and for requests that began with the old one. This module does not
 * see requests: its owner's callback reports whether an adapter is in use. Time is an argument,
 * and the code runs on the loop thread. */
#include "common/base/random.h"
#include "head/cluster/registry.h"

/* Describes an order to load or unload an adapter. `taken` is the model's own name, which no
 * adapter may have. The functions return STATUS_UNSUPPORTED when LoRA is off and STATUS_INVALID
 * for a bad name. They return STATUS_EXISTS when the name is loaded and in_place is false, and
 * STATUS_LIMIT when --max-loras is reached. */
struct adapter_order {
    struct str name, path;
    bool in_place;
    struct adapter_asker asker;
    struct str taken;
};
MUST_USE enum status adapters_load(struct cluster *c, const struct adapter_order *o,
                                   struct rng *rng, struct error *err);
/* Begins to unload an adapter. Returns STATUS_NOT_FOUND when no adapter has this name. */
MUST_USE enum status adapters_unload(struct cluster *c, const struct adapter_order *o,
                                     struct error *err);
/* Names whether a request may use an adapter: now, soon, or never. */
enum adapter_use { ADAPTER_USABLE, ADAPTER_SOON, ADAPTER_UNKNOWN };
enum adapter_use adapters_use(const struct cluster *c, struct str name, uint64_t *id);

void adapters_on_hello(struct cluster *c, struct worker *w, const struct worker_info *i);
void adapters_on_done(struct cluster *c, struct worker *w, const struct msg_adapter_done *m);
/* Returns the error text of a FAILED adapter of this name, or "". */
const char *adapters_why_not(const struct cluster *c, struct str name);
/* Advances the states of adapters and sends workers their orders. `in_use` returns true when
 * live requests use the adapter with this id. */
typedef bool adapters_in_use_fn(const void *ctx, uint64_t id);
void adapters_tick(struct cluster *c, adapters_in_use_fn *in_use, const void *ctx);
/* Advances the states and sends orders like adapters_tick, but without `in_use`. Call the
 * function after any event. */
void adapters_turn(struct cluster *c);
const char *adapter_state_name(enum adapter_state s);
