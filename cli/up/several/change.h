#pragma once
/* Changes the set of a running `cox up`: models come, get other names and leave. The set's file
 * is the source; a change is planned before it stops or starts anything. Only the loop thread
 * calls these functions. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct set_run;

enum change_state { CHANGE_UNKNOWN, CHANGE_RUNS, CHANGE_DONE, CHANGE_REFUSED };

/* Begins to follow the file. */
void set_changes_start(struct set_run *r);
/* Looks at the file, and begins a change when it is another one. */
void set_changes_look(struct set_run *r);
/* Begins a change to the set of `yaml`, which is stored in the file when it is accepted.
 * STATUS_EXISTS: another change is under way. STATUS_INVALID: the set has an error. */
MUST_USE enum status set_change_begin(struct set_run *r, struct str yaml, uint64_t *number,
                                      struct error *err);
/* Returns how a change has ended. *why: the reason of a refusal, valid until the next call. */
enum change_state set_change_look(const struct set_run *r, uint64_t number, const char **why);
void set_changes_free(struct set_run *r);
