#pragma once
/* Finds rows of an option table by the names that people type, and the nearest names. The
 * functions are pure and may run on any thread. */
#include "common/config/option.h"

enum { CONFIG_NAME_MAX = 64 }; /* size of a name's buffer in bytes, with the NUL */

/* Returns the row of a name as typed (dashes or underscores, alias or not), or n_specs when
 * there is no such row. */
size_t config_find(const struct option_spec *specs, size_t n_specs, struct str name);
/* Returns the row of the switch that "no-X" turns off, or n_specs when there is no such switch. */
size_t config_find_negated(const struct option_spec *specs, size_t n_specs, struct str name);
/* Returns the known name with the fewest edits, and sets *distance to their number. The result
 * is empty when there is no known name. */
struct str config_nearest_name(const struct option_spec *specs, size_t n_specs, struct str name,
                               size_t *distance);
/* Returns the only known option whose name ends with the words of `name`, as in --sleep-level for
 * "level". The result is empty when there is none, or more than one. */
struct str config_longer_name(const struct option_spec *specs, size_t n_specs, struct str name);
/* Returns true for an option of vLLM that this program ignores or refuses. */
bool config_is_foreign(const struct option_spec *s);
/* Returns the i-th alternative of "a|b|c". Returns an empty str past the end. */
struct str config_choice(const char *choices, size_t i);
/* Removes the next item of "a,b,c" from *rest and returns it in `out`. Returns false when there
 * is no further item. */
bool config_next_item(const char **rest, struct str *out);
