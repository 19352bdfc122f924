#pragma once
/* Checks the conditions for a worker to be placed, and for two workers to be in one replica.
 * These are queries of the registry; they change nothing. The code runs on the loop thread. */
#include "head/cluster/registry.h"

/* Returns true when the worker has all adapters that requests may use. */
bool eligible_has_adapters(const struct cluster *c, const struct worker *w);
/* Returns true when the worker is free, connected, runs the current configuration and has all
 * adapters. */
bool eligible_may_place(const struct cluster *c, const struct worker *w);
/* Returns true when the two workers can be in one replica. */
bool eligible_same_kind(const struct worker *a, const struct worker *b);
/* ELIGIBLE_ALIKE names, in an operator's words, the options that workers of one replica must
 * share. */
#define ELIGIBLE_ALIKE                                                                             \
    "model file, device, --max-model-len, --block-size and --kv-cache-dtype must be the same"
/* Returns a worker that cannot share a replica with `w`, even if both have the same role.
 * Returns NULL when there is none. */
const struct worker *eligible_unlike(const struct cluster *c, const struct worker *w);
/* Writes to `out` how two unlike workers differ, such as ". One of them has --max-model-len
 * 4096, another one 8192". Writes "" when device, --max-model-len and --block-size are equal. */
void eligible_difference(const struct worker *a, const struct worker *b, char *out, size_t size);
/* Returns true when a replica of g's size could form from workers that do not drain, after `g`
 * is dissolved. */
bool eligible_could_replace(const struct cluster *c, const struct replica *g);
/* Returns true when free workers could form a replica. `without` gives the adapters to ignore,
 * as bits. */
bool eligible_could_form(const struct cluster *c, uint64_t without);
