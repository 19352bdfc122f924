#pragma once
/* Which free workers form which group: a part of cluster.h, by which everybody includes it. */
#include <stdbool.h>
#include <stdint.h>

struct cluster;
struct group;
struct worker;

/* Forms every group that can be formed. */
void placement_run(struct cluster *c);
/* Free, here, with the configuration in force and all adapters. */
bool placement_may_place(const struct cluster *c, const struct worker *w);
/* May the two be in one group? */
bool placement_same_kind(const struct worker *a, const struct worker *b);
/* What workers that share a group have alike, in the words of whoever starts them. */
#define PLACEMENT_ALIKE                                                                            \
    "model file, device, --max-model-len, --block-size and --kv-cache-dtype have to be the same"
/* A worker that can be in no group with w, or NULL: all could. */
const struct worker *placement_unlike(const struct cluster *c, const struct worker *w);
/* Were g dissolved now, could a group of its size form without its draining members? */
bool placement_could_replace(const struct cluster *c, const struct group *g);
bool placement_could_form(const struct cluster *c, uint64_t without); /* these adapters: a group? */
