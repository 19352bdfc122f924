#pragma once
/* Values of a GGUF's metadata by key, checked. Any thread. */
#include "common/base/status.h"
#include "common/model/gguf/type.h"

struct gguf;

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */
/* NOT_FOUND when absent, INVALID (with key and value in err) for another type or out of range.
 * Any integer type will do for gguf_get_u64, any number for gguf_get_f64. */
MUST_USE enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                                  uint64_t *out, struct error *err);
MUST_USE enum status gguf_get_f64(const struct gguf *g, const char *key, double *out,
                                  struct error *err);
MUST_USE enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out,
                                   struct error *err);
MUST_USE enum status gguf_get_str(const struct gguf *g, const char *key, struct str *out,
                                  struct error *err);
/* type: what the elements must be. */
MUST_USE enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type,
                                    struct gguf_array *out, struct error *err);
/* Element i < n of an array of numbers (or bools), converted; F32/F64 only through _f64. */
uint64_t gguf_array_u64(const struct gguf_array *a, uint64_t i); /* signed: sign-extended */
/* Strings come in order: start with *cursor NULL; false at the end. */
bool gguf_array_next_str(const struct gguf_array *a, const uint8_t **cursor, struct str *out);
/* For qsort and bsearch over pointers to values, by key. */
int gguf_values_compare(const void *a, const void *b);
