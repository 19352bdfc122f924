#pragma once
/* Finds the model or the route of a name in constant time, whatever the number of models. The table
 * borrows the names and is made anew when they change. Only the loop thread calls these functions.
 */
#include <stdint.h>

#include "common/base/str.h"

struct served_model;
struct model_route;
struct model_name {
    const char *text;                /* borrowed */
    struct served_model *model;      /* NULL = the name of a route */
    const struct model_route *route; /* NULL = the name of a model */
};
struct model_names {
    struct model_name *slots; /* [n_slots]: open addressing; text NULL = a free slot */
    uint32_t n_slots, n;
};

/* Makes an empty table for `n` names. The earlier table is freed. */
void model_names_reset(struct model_names *t, uint32_t n);
/* Adds a name, unless the table has it. Returns false when it has it. */
bool model_names_add(struct model_names *t, const struct model_name *name);
/* Returns the entry of the name, or NULL. */
const struct model_name *model_names_find(const struct model_names *t, struct str name);
void model_names_fini(struct model_names *t);

enum { MODEL_NEAREST_MAX = 3 };
/* Finds the names that are most like `name`, the nearest first, at most MODEL_NEAREST_MAX. A name
 * is like another one when at most a third of its characters differ, or when one begins with the
 * other. `may_know` decides whether the caller may learn of a name. Returns their number. */
uint32_t model_names_nearest(const struct model_names *t, struct str name,
                             bool (*may_know)(void *ctx, const char *text), void *ctx,
                             const char *out[MODEL_NEAREST_MAX]);
