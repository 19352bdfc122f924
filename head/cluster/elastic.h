#pragma once
/* Replicas of fewer ranks than TP (docs/develop/recovery.md, "Fewer ranks than TP"): when one may
 * be formed, and of how many ranks. Queries of the registry; elastic_grow.h gives such replicas up
 * again. With --elastic-tp alone. Loop thread. */
#include "head/cluster/registry.h"

/* The TP of which workers like this one form a replica now: the largest that enough of those who
 * are free offer. 0: none, or they may soon be more. short_since_ns: since when there has been no
 * whole replica; 0: there never was one. */
uint32_t elastic_tp_of(const struct cluster *c, const struct worker *like, uint64_t short_since_ns);
/* Can it be one of that many? */
bool elastic_may_join(const struct cluster *c, const struct worker *w, uint32_t tp);
/* Is there anybody of whom replicas that wait could be formed, be it with others that come? */
bool elastic_hopes(const struct cluster *c);
/* It was dissolved a moment ago to be whole again, for free workers that are there: they are its.
 */
bool elastic_is_growing(const struct cluster *c, const struct replica *g);
/* The flag belongs to the head and to every worker: a sentence when some have it and others not;
 * false, and nothing written: all or nobody. */
bool elastic_is_one_sided(const struct cluster *c, char *out, size_t size);
/* The same as an event, once in a head's life. */
void elastic_tell_one_sided(struct cluster *c);
