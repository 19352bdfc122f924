#pragma once
/* Lists the files of a model in huggingface_hub's cache, for a fetch without a network. */
#include "cli/pull/sources/hf_cache.h"

/* Finds the commit that refs/REVISION names (or REVISION itself). Lists the files that a model
 * needs from that commit's snapshot, as pull_hub_list does. STATUS_NOT_FOUND: the snapshot is
 * missing or incomplete. The text says what is missing. */
MUST_USE enum status hf_cache_list(const struct hf_cache *c, const struct model_ref *r,
                                   struct pull_list *l, struct error *err);
