#pragma once
/* The conditions for a worker to be placed, and for two to be in one replica. Queries of the
 * registry alone: they change nothing. Loop thread. */
#include "head/cluster/registry.h"

/* Has it all adapters that requests may use? */
bool eligible_has_adapters(const struct cluster *c, const struct worker *w);
/* Free, here, with the configuration in force and all adapters. */
bool eligible_may_place(const struct cluster *c, const struct worker *w);
/* May the two be in one replica? */
bool eligible_same_kind(const struct worker *a, const struct worker *b);
/* Workers that share a replica have these alike, in the words of those who start them. */
#define ELIGIBLE_ALIKE                                                                             \
    "model file, device, --max-model-len, --block-size and --kv-cache-dtype have to be the same"
/* A worker that can be in no replica with w, or NULL: all could. */
const struct worker *eligible_unlike(const struct cluster *c, const struct worker *w);
/* Were g dissolved now, could a replica of its size form without its draining members? */
bool eligible_could_replace(const struct cluster *c, const struct replica *g);
bool eligible_could_form(const struct cluster *c,
                         uint64_t without); /* these adapters: a replica? */
