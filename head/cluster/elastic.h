#pragma once
/* Replicas of fewer ranks than TP (docs/develop/recovery.md, "Fewer ranks than TP"): when one
 * may be formed, and with how many ranks. These are queries of the registry; elastic_grow.h
 * dissolves such replicas again. Only with --elastic-tp. Loop thread. */
#include "head/cluster/registry.h"

/* Returns the TP with which workers of this kind form a replica now: the largest that enough
 * free workers offer. Returns 0 when there is none, or when more workers may soon be free.
 * `short_since_ns`: time since which there has been no whole replica; 0 = there never was one. */
uint32_t elastic_tp_of(const struct cluster *c, const struct worker *like, uint64_t short_since_ns);
/* Returns true when the worker can be a rank of a replica with this TP. */
bool elastic_may_join(const struct cluster *c, const struct worker *w, uint32_t tp);
/* Returns true when a free worker offers a smaller TP, so that waiting replicas may still form. */
bool elastic_hopes(const struct cluster *c);
/* Returns true when the replica was dissolved a moment ago to become whole again. The free
 * workers that it needs are then reserved for it. */
bool elastic_is_growing(const struct cluster *c, const struct replica *g);
/* The head and every worker need the flag. Returns true and writes a sentence when only some of
 * them have it. Returns false otherwise. */
bool elastic_is_one_sided(const struct cluster *c, char *out, size_t size);
/* Logs that sentence as an event, once in a head's life. */
void elastic_tell_one_sided(struct cluster *c);
