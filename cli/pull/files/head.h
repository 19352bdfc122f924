#pragma once
/* Fetches the parts of a model that a plan needs, without its weights: config.json, or the bytes
 * of a GGUF file in front of its tensors. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"

/* Keeps in the list only the files that a plan needs. */
void pull_heads_choose(struct pull_list *l);
/* Fetches the first bytes of a GGUF file into `folder`. The file gets its full size, with a hole
 * for the rest. The hash of the file is not checked, since that needs all bytes. */
MUST_USE enum status pull_head_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct error *err);
