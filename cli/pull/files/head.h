#pragma once
/* The part of a model that a plan needs, without its weights: config.json, or the bytes of a GGUF
 * up to its tensors. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"

/* Keeps of a listing what is such. */
void pull_heads_choose(struct pull_list *l);
/* A GGUF's first bytes into folder, as a file of its whole size with a hole for the rest. Nobody
 * has checked their hash: it is of all bytes. */
MUST_USE enum status pull_head_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct error *err);
