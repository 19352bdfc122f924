#pragma once
/* Checks what the models of a --models file say about each other, and its routes, before anything
 * starts: `fallback`, `max_requests` and `routes`. The function is pure. */
#include "cli/up/set/types.h"
#include "common/base/status.h"
#include "common/config/yaml_tree.h"

/* `models` is the file's list of models, in the order of the set. `routes` may be NULL. `file` is
 * for the error's text; NULL = the models are in no file. STATUS_INVALID: the text has the file's
 * name and the line. */
MUST_USE enum status set_links_check(const struct up_set *set, const struct yaml_node *models,
                                     const struct yaml_node *routes, const char *file,
                                     struct error *err);
/* Returns true for the keys of an entry that only the gateways need. */
bool set_links_is_key(const char *key);
