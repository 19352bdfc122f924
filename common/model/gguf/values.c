#include "common/model/gguf/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/gguf/state.h"

int gguf_values_compare(const void *a, const void *b)
{
    return str_compare((*(struct gguf_value *const *)a)->key,
                       (*(struct gguf_value *const *)b)->key);
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    struct gguf_value wanted = {.key = str_from(key)}, *p = &wanted;
    const struct gguf_value **hit =
        bsearch(&p, g->values_by_key, g->n_values, sizeof *g->values_by_key, gguf_values_compare);
    return hit ? *hit : NULL;
}

static enum status find_typed(const struct gguf *g, const char *key, const char *want,
                              bool (*ok)(enum gguf_type), const struct gguf_value **out,
                              struct error *err)
{
    *out = gguf_find(g, key);
    if (!*out)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s has no key %s. Convert or fetch the model again", g->path, key);
    if (!ok((*out)->type))
        return error_set(err, STATUS_INVALID,
                         "%s: %s is %s, but must be %s. Convert or fetch the model again", g->path,
                         key, gguf_types[(*out)->type].name, want);
    return STATUS_OK;
}

static bool is_integer(enum gguf_type t)
{
    return gguf_type_is_signed(t) || gguf_type_is_unsigned(t);
}

static bool is_number(enum gguf_type t)
{
    return is_integer(t) || t == GGUF_F32 || t == GGUF_F64;
}

static bool is_bool(enum gguf_type t)
{
    return t == GGUF_BOOL;
}

static bool is_string(enum gguf_type t)
{
    return t == GGUF_STRING;
}

static bool is_array(enum gguf_type t)
{
    return t == GGUF_ARRAY;
}

enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                         uint64_t *out, struct error *err)
{
    const struct gguf_value *v;
    TRY(find_typed(g, key, "an integer", is_integer, &v, err));
    if (gguf_type_is_signed(v->type) && v->i64 < 0)
        return error_set(
            err, STATUS_INVALID,
            "%s: %s is %lld; it must not be negative. Convert or fetch the model again", g->path,
            key, (long long)v->i64);
    uint64_t x = gguf_type_is_signed(v->type) ? (uint64_t)v->i64 : v->u64;
    if (x < min || x > max)
        return error_set(
            err, STATUS_INVALID,
            "%s: %s is %llu; it must be from %llu to %llu. Convert or fetch the model again",
            g->path, key, (unsigned long long)x, (unsigned long long)min, (unsigned long long)max);
    *out = x;
    return STATUS_OK;
}

enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *err)
{
    const struct gguf_value *v;
    TRY(find_typed(g, key, "a number", is_number, &v, err));
    double x = gguf_type_is_signed(v->type)     ? (double)v->i64
               : gguf_type_is_unsigned(v->type) ? (double)v->u64
                                                : v->f64;
    if (!isfinite(x))
        return error_set(err, STATUS_INVALID,
                         "%s: %s is not a finite number. Convert or fetch the model again", g->path,
                         key);
    *out = x;
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err)
{
    const struct gguf_value *v;
    TRY(find_typed(g, key, "a bool", is_bool, &v, err));
    *out = v->boolean;
    return STATUS_OK;
}

enum status gguf_get_str(const struct gguf *g, const char *key, struct str *out, struct error *err)
{
    const struct gguf_value *v;
    TRY(find_typed(g, key, "a string", is_string, &v, err));
    *out = v->string;
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type,
                           struct gguf_array *out, struct error *err)
{
    const struct gguf_value *v;
    TRY(find_typed(g, key, "an array", is_array, &v, err));
    if (v->array.type != type)
        return error_set(err, STATUS_INVALID,
                         "%s: %s is an array of %s, but must be an array of %s. Convert or fetch "
                         "the model again",
                         g->path, key, gguf_types[v->array.type].name, gguf_types[type].name);
    *out = v->array;
    return STATUS_OK;
}

uint64_t gguf_array_u64(const struct gguf_array *a, uint64_t i)
{
    if (i >= a->n || a->type == GGUF_STRING)
        return 0;
    const uint8_t *p = a->ptr + i * gguf_types[a->type].size;
    return gguf_type_is_signed(a->type) ? (uint64_t)gguf_type_load_signed(a->type, p)
                                        : gguf_type_load_bits(a->type, p);
}

bool gguf_array_next_str(const struct gguf_array *a, const uint8_t **cursor, struct str *out)
{
    const uint8_t *p = *cursor ? *cursor : a->ptr;
    uint64_t n;
    if (a->type != GGUF_STRING || p == a->end)
        return false;
    memcpy(&n, p, sizeof n); /* the lengths were checked when the file was opened */
    *out = (struct str){(const char *)p + sizeof n, n};
    *cursor = p + sizeof n + n;
    return true;
}
