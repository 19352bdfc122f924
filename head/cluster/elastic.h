#pragma once
/* Decides when the head may form a replica of fewer ranks than TP, and with how many ranks
 * (docs/develop/recovery.md, "Fewer ranks than TP"). The functions are queries of the registry;
 * elastic_grow.h dissolves such replicas again. They are used only with --elastic-tp. The code
 * runs on the loop thread. */
#include "head/cluster/registry.h"

/* Returns the TP with which workers of this kind form a replica now: the largest that enough
 * free workers offer. Returns 0 when there is none, or when more workers may soon be free.
 * `short_since_ns` is the time since which there has been no whole replica; 0 = there never was
 * one. */
uint32_t elastic_tp_of(const struct cluster *c, const struct worker *like, uint64_t short_since_ns);
/* Returns true when the worker can be a rank of a replica with this TP. */
bool elastic_may_join(const struct cluster *c, const struct worker *w, uint32_t tp);
/* Returns true when a free worker offers a smaller TP, so that waiting replicas may still form. */
bool elastic_hopes(const struct cluster *c);
/* Returns true when the replica was dissolved a moment ago to become whole again. The free
 * workers that it needs are then reserved for it. */
bool elastic_is_growing(const struct cluster *c, const struct replica *g);
/* Returns true and writes a sentence when --elastic-tp is set only on some of the head and the
 * workers. All of them need the flag. Returns false otherwise. */
bool elastic_is_one_sided(const struct cluster *c, char *out, size_t size);
/* Logs the sentence of elastic_is_one_sided as an event, once per head process. */
void elastic_tell_one_sided(struct cluster *c);
