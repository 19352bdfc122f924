#pragma once
/* How far a mistyped name is from a known one, for "did you mean". Pure. */
#include "common/base/str.h"

#define STR_DISTANCE_MAX 64u

/* Edits of one character, with neighbours swapped as one (optimal string alignment). SIZE_MAX when
 * either is longer than STR_DISTANCE_MAX. */
size_t str_distance(struct str a, struct str b);
