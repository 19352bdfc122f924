#pragma once
/* Lists and edits the models of a running `cox up`, for its control socket. Only the loop thread
 * calls these functions. */
#include <jansson.h>
#include <stdint.h>

#include "common/base/status.h"

struct set_run;

/* Returns {"models": [{"name", "aliases", "model", "start", "state", "reason", "admin", "bytes"}],
 * "file"}, and with `change` above 0 also "change": "running", "done" or "refused", and "why". */
json_t *set_run_list(const struct set_run *r, uint64_t change);
/* Begins an edit of the set's file. `order` is of an unknown client:
 *   {"do": "add", "entry": {…}}  adds an entry, as in the file of --models
 *   {"do": "rm", "name": NAME}   removes a model
 *   {"do": "alias", "name": NAME, "add": [ALIAS], "rm": [ALIAS]}   changes names only
 * STATUS_INVALID: the order or the set that it leads to. STATUS_NOT_FOUND: there is no such model.
 * STATUS_EXISTS: another change is under way. */
MUST_USE enum status set_run_edit(struct set_run *r, const json_t *order, uint64_t *change,
                                  struct error *err);
