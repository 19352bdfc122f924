#pragma once
/* Rows of an option table by the names that people type, and the names that are near them. Pure. */
#include "common/config/option.h"

enum { CONFIG_NAME_MAX = 64 }; /* with its zero */

/* Row of a name as typed (dashes or underscores, alias or not); n_specs when there is none. */
size_t config_find(const struct option_spec *specs, size_t n_specs, struct str name);
/* Row of the switch that "no-X" turns off; n_specs when it is none. */
size_t config_find_negated(const struct option_spec *specs, size_t n_specs, struct str name);
/* The known name that is fewest edits away, and how many; empty when there is none. */
struct str config_nearest_name(const struct option_spec *specs, size_t n_specs, struct str name,
                               size_t *distance);
/* vLLM's option, not ours: ignored or refused. */
bool config_is_foreign(const struct option_spec *s);
/* i-th alternative of "a|b|c"; an empty str past the end. */
struct str config_choice(const char *choices, size_t i);
/* The next of "a,b,c", which it takes off *rest; false: there is none. */
bool config_next_item(const char **rest, struct str *out);
