#pragma once
/* Lists the files of a model at a hub with Hugging Face's API. It calls GET
 * /api/models/REPO/revision/REV?blobs=true; the files are at /REPO/resolve/COMMIT/NAME. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/model/info/ref.h"

/* Reads the API's answer and adds the files that a model needs to list `l`: config, tokenizer,
 * templates, weights. */
MUST_USE enum status pull_hub_read(struct str json, const struct model_ref *r, const char *endpoint,
                                   struct pull_list *l, struct error *err);
/* Requests the list of files from the API, and the sizes that are missing in the list. */
MUST_USE enum status pull_hub_list(const struct pull_source *source, const struct model_ref *r,
                                   const char *endpoint, struct pull_list *l, struct error *err);
/* Returns true when a model's folder needs a file of that name. *kind is 1 for *.safetensors, 2
 * for pytorch_model*.bin, 0 for other files. */
bool pull_is_wanted(const char *name, int *kind);
/* `pull_folders` lists the folders within a model's folder that may contain files a model needs.
 * Each name ends with a slash; NULL ends the list. Folders below them are not read. */
extern const char *const pull_folders[];
