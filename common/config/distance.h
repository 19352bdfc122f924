#pragma once
/* Measures the distance of a mistyped name from a known name, for "did you mean". The functions
 * are pure and may run on any thread. */
#include "common/base/str.h"

#define STR_DISTANCE_MAX 64u

/* Returns the number of one-character edits. A swap of two neighbours counts as one (optimal
 * string alignment). Returns SIZE_MAX when either text is longer than STR_DISTANCE_MAX. */
size_t str_distance(struct str a, struct str b);
