#pragma once
/* The parts of a model that a plan needs, without its weights: config.json, or the bytes of a
 * GGUF in front of its tensors. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"

/* Keeps only these files in the list. */
void pull_heads_choose(struct pull_list *l);
/* Fetches the first bytes of a GGUF into `folder`. The file has its full size, with a hole for
 * the rest. Its hash is not checked, since that needs all bytes. */
MUST_USE enum status pull_head_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct error *err);
