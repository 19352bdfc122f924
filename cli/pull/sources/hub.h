#pragma once
/* The files that a model hub has of a model: Hugging Face's API (GET
 * /api/models/REPO/revision/REV?blobs=true, files at /REPO/resolve/COMMIT/NAME) at any endpoint
 * that speaks it. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/model/info/ref.h"

/* The API's answer into l, the files that serve: config, tokenizer, templates, weights. */
MUST_USE enum status pull_hub_read(struct str json, const struct model_ref *r, const char *endpoint,
                                   struct pull_list *l, struct error *err);
/* Asks for it, and for sizes that it has not said. */
MUST_USE enum status pull_hub_list(const struct pull_source *source, const struct model_ref *r,
                                   const char *endpoint, struct pull_list *l, struct error *err);
/* Is a file of that name part of a model's folder? Of weights, which are either *.safetensors or
 * pytorch_model*.bin, *kind gets which: 0 none, 1, 2. */
bool pull_is_wanted(const char *name, int *kind);
/* The folders in a model's folder that such files may lie in, each with its slash; NULL ends them.
 * They are no deeper. */
extern const char *const pull_folders[];
