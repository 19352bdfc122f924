#pragma once
/* Looks up a GGUF's metadata by key and checks the values. The functions may run on any thread. */
#include "common/base/status.h"
#include "common/model/gguf/type.h"

struct gguf;

/* Finds a value by its key. Returns NULL when the key is absent. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
/* These functions read the value of a key. They return STATUS_NOT_FOUND when the key is absent,
 * and STATUS_INVALID (with key and value in err) for another type or a value out of range.
 * gguf_get_u64 accepts any integer type, gguf_get_f64 any number. */
MUST_USE enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                                  uint64_t *out, struct error *err);
MUST_USE enum status gguf_get_f64(const struct gguf *g, const char *key, double *out,
                                  struct error *err);
MUST_USE enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out,
                                   struct error *err);
MUST_USE enum status gguf_get_str(const struct gguf *g, const char *key, struct str *out,
                                  struct error *err);
/* Reads the array of a key. `type` is the required type of the elements. */
MUST_USE enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type,
                                    struct gguf_array *out, struct error *err);
/* Returns element i of an array of integers or bools; 0 when i is not below n, or for an array
 * of strings. Signed values are sign-extended. */
uint64_t gguf_array_u64(const struct gguf_array *a, uint64_t i);
/* Reads the strings of an array in order. *cursor is NULL before the first. Returns false at the
 * end. */
bool gguf_array_next_str(const struct gguf_array *a, const uint8_t **cursor, struct str *out);
/* Compares pointers to values by key, for qsort and bsearch. */
int gguf_values_compare(const void *a, const void *b);
