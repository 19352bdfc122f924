#pragma once
/* Changes the aliases of a model's entry in a set of models, for the gateways' admin API and for
 * the supervisor of `cox up`. Pure. */
#include <jansson.h>

#include "common/base/status.h"

/* Removes the names of the list `rm` from the entry's member "aliases", then appends those of
 * `add`. Both lists may be NULL. `name` is the model's name, for error texts. STATUS_NOT_FOUND: the
 * model has no such alias. STATUS_INVALID: a name is not a text. After an error the entry is partly
 * changed. */
MUST_USE enum status json_aliases_change(json_t *entry, const char *name, const json_t *add,
                                         const json_t *rm, struct error *err);
