#pragma once
/* Computes the memory of jansson's trees, which is many times the size of their text: a `{}` of
 * two bytes takes more than two hundred. Code that keeps a tree of an unknown client charges
 * these bytes to the client. The functions are pure and may run on any thread. */
#include <stdint.h>

#include <jansson.h>

/* Returns the bytes of a tree with the allocator's overhead, as jansson 2.14 lays it out; 0 for
 * NULL. The result is never below the real size, and up to twice as much for lists that grew in
 * powers of two. A value that is referenced twice counts twice. The tree must not be deeper than
 * a request body may be. */
uint64_t json_bytes(const json_t *v);
