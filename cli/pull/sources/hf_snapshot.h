#pragma once
/* A model of huggingface_hub's cache as a listing, for a fetch without a network. */
#include "cli/pull/sources/hf_cache.h"

/* Lists a model of the cache without a network: the commit that refs/REVISION names (or
 * REVISION itself), and the files of its snapshot that serve, as pull_hub_list would list them.
 * NOT_FOUND: no such snapshot, or not all of it; the text says what is missing. */
MUST_USE enum status hf_cache_list(const struct hf_cache *c, const struct model_ref *r,
                                   struct pull_list *l, struct error *err);
