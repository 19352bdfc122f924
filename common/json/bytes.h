#pragma once
/* The memory of jansson's trees, which is many times their text: a `{}` of two bytes takes more
 * than two hundred. Who keeps a tree of a stranger's charges this. Pure; any thread. */
#include <stdint.h>

#include <jansson.h>

/* Bytes of a tree, with what the allocator adds, as jansson 2.14 lays them out; never fewer than it
 * takes, and where lists have grown in powers of two up to twice as many. What hangs in it twice
 * counts twice. A tree is not deeper than a body may be. NULL: 0. */
uint64_t json_bytes(const json_t *v);
