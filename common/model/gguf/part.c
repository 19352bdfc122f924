/* Opens one GGUF file. One pass over the header fills two tables (values, tensors). Two arrays
 * of pointers sorted by name find duplicates and serve look-ups. split.c then joins the parts of
 * a model.
 * The header is read only through a cursor, which moves forward and never leaves the file.
 * Counts are bounded by the file's size before memory is allocated. The object owns its map and
 * tables. Strings and data point into the map. The object is immutable after the open. */
#include "common/model/gguf/part.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/gguf/state.h"
#include "common/model/gguf/values.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read as it lies");

enum {
    MAX_VALUES = 1 << 16,
    MAX_NAME_BYTES = 1 << 12,    /* most bytes of a key or of a tensor's name */
    MAX_STRING_BYTES = 16 << 20, /* most bytes of a string; chat templates and grammars are long */
    /* most elements of an array; enough for the merges and scores of the largest vocabularies */
    MAX_ARRAY = 1 << 26,
    MAX_ALIGNMENT = 1 << 20,
    DEFAULT_ALIGNMENT = 32,
    /* fewest bytes of an encoded value; with this number the file's size bounds a count */
    MIN_VALUE_BYTES = 8 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8,
};

struct cursor {
    const struct gguf *g;
    const uint8_t *at, *end;
    struct error *err;
};

/* ---- reading ---- */

static enum status take(struct cursor *c, uint64_t n, const uint8_t **out)
{
    *out = c->at;
    if (n > (uint64_t)(c->end - c->at))
        return error_set(
            c->err, STATUS_INVALID,
            "%s ends in the middle of its header, at byte %zu. Check that the download is complete",
            c->g->path, (size_t)(c->at - c->g->bytes));
    c->at += n;
    return STATUS_OK;
}

static enum status take_u32(struct cursor *c, uint32_t *out)
{
    const uint8_t *p;
    TRY(take(c, sizeof *out, &p));
    memcpy(out, p, sizeof *out);
    return STATUS_OK;
}

static enum status take_u64(struct cursor *c, uint64_t *out)
{
    const uint8_t *p;
    TRY(take(c, sizeof *out, &p));
    memcpy(out, p, sizeof *out);
    return STATUS_OK;
}

static enum status take_str(struct cursor *c, uint64_t max, struct str *out)
{
    uint64_t n;
    const uint8_t *p;
    TRY(take_u64(c, &n));
    if (n > max)
        return error_set(c->err, STATUS_INVALID,
                         "%s has a string of %llu bytes at byte %zu; Coxswain reads at most %llu. "
                         "Fetch the file again",
                         c->g->path, (unsigned long long)n, (size_t)(c->at - c->g->bytes),
                         (unsigned long long)max);
    TRY(take(c, n, &p));
    *out = (struct str){(const char *)p, n};
    return STATUS_OK;
}

static enum status take_type(struct cursor *c, struct str key, enum gguf_type *out)
{
    uint32_t type;
    TRY(take_u32(c, &type));
    if (type >= GGUF_TYPE_COUNT)
        return error_set(
            c->err, STATUS_INVALID,
            "%s: " STR_FMT
            " has the unknown type %u. Fetch the file again, or use a newer release of cox",
            c->g->path, STR_ARG(key), type);
    *out = (enum gguf_type)type;
    return STATUS_OK;
}

static enum status take_array(struct cursor *c, struct str key, struct gguf_array *out)
{
    TRY(take_type(c, key, &out->type));
    TRY(take_u64(c, &out->n));
    if (out->type == GGUF_ARRAY)
        return error_set(
            c->err, STATUS_UNSUPPORTED,
            "%s: " STR_FMT
            " is an array of arrays, which Coxswain does not support. Use another model",
            c->g->path, STR_ARG(key));
    if (out->n > MAX_ARRAY)
        return error_set(c->err, STATUS_INVALID,
                         "%s: " STR_FMT " has %llu elements; Coxswain reads at most %d. Fetch the "
                         "file again, or use another model",
                         c->g->path, STR_ARG(key), (unsigned long long)out->n, MAX_ARRAY);
    out->ptr = c->at;
    if (out->type == GGUF_STRING) {
        struct str s;
        for (uint64_t i = 0; i < out->n; i++)
            TRY(take_str(c, MAX_STRING_BYTES, &s));
    } else {
        const uint8_t *p;
        TRY(take(c, out->n * gguf_types[out->type].size, &p));
    }
    out->end = c->at;
    return STATUS_OK;
}

static enum status take_value(struct cursor *c, struct gguf_value *v)
{
    const uint8_t *p;
    TRY(take_str(c, MAX_NAME_BYTES, &v->key));
    TRY(take_type(c, v->key, &v->type));
    if (v->type == GGUF_ARRAY)
        return take_array(c, v->key, &v->array);
    if (v->type == GGUF_STRING)
        return take_str(c, MAX_STRING_BYTES, &v->string);
    TRY(take(c, gguf_types[v->type].size, &p));
    if (v->type == GGUF_BOOL) {
        if (*p > 1)
            return error_set(
                c->err, STATUS_INVALID,
                "%s: " STR_FMT
                " is a bool with the value %u; it must be 0 or 1. Fetch the file again",
                c->g->path, STR_ARG(v->key), *p);
        v->boolean = *p == 1;
    } else if (gguf_type_is_signed(v->type)) {
        v->i64 = gguf_type_load_signed(v->type, p);
    } else if (gguf_type_is_unsigned(v->type)) {
        v->u64 = gguf_type_load_bits(v->type, p);
    } else {
        v->f64 = gguf_type_load_real(v->type, p);
    }
    return STATUS_OK;
}

/* Reads a tensor's name, shape, type and offset within the data. The start of the data is not
 * known yet. */
static enum status take_tensor(struct cursor *c, struct gguf_tensor *t)
{
    uint32_t id;
    TRY(take_str(c, MAX_NAME_BYTES, &t->name));
    TRY(take_u32(c, &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return error_set(c->err, STATUS_INVALID,
                         "%s: tensor " STR_FMT
                         " has %u dimensions; Coxswain supports 1 to %d. Use another model",
                         c->g->path, STR_ARG(t->name), t->n_dims, GGUF_MAX_DIMS);
    uint64_t n_rows = 1;
    bool fits = true;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->shape[i] = 1;
        if (i < t->n_dims)
            TRY(take_u64(c, &t->shape[i]));
        if (t->shape[i] == 0 || t->shape[i] > INT64_MAX)
            fits = false;
        if (i > 0 && __builtin_mul_overflow(n_rows, t->shape[i], &n_rows))
            fits = false;
    }
    TRY(take_u32(c, &id));
    TRY(take_u64(c, &t->offset));
    struct dtype_traits traits = dtype_traits(id < DTYPE_GGML_END ? id : UINT32_MAX);
    if (traits.block_elems == 0)
        return error_set(c->err, STATUS_UNSUPPORTED,
                         "%s: tensor " STR_FMT " has the type %s (%u), which Coxswain does not "
                         "support. Use a file with another quantisation",
                         c->g->path, STR_ARG(t->name), traits.name, id);
    t->dtype = (enum dtype)id;
    if (!fits || !dtype_bytes(id, t->shape[0], n_rows, &t->n_bytes))
        return error_set(c->err, STATUS_INVALID,
                         "%s: tensor " STR_FMT ": the shape [%llu, %llu, %llu, %llu] is not "
                         "possible for the type %s. Fetch the file again",
                         c->g->path, STR_ARG(t->name), (unsigned long long)t->shape[0],
                         (unsigned long long)t->shape[1], (unsigned long long)t->shape[2],
                         (unsigned long long)t->shape[3], traits.name);
    return STATUS_OK;
}

/* ---- tables ---- */

static int compare_tensors(const void *a, const void *b)
{
    return str_compare((*(struct gguf_tensor *const *)a)->name,
                       (*(struct gguf_tensor *const *)b)->name);
}

const struct gguf_tensor *gguf_index_tensors(struct gguf *g)
{
    for (uint64_t i = 0; i < g->n_tensors; i++)
        g->tensors_by_name[i] = &g->tensors[i];
    qsort(g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_tensors);
    for (uint64_t i = 1; i < g->n_tensors; i++)
        if (str_eq(g->tensors_by_name[i - 1]->name, g->tensors_by_name[i]->name))
            return g->tensors_by_name[i];
    return NULL;
}

static enum status check_count(struct cursor *c, const char *what, uint64_t n, uint64_t max,
                               uint64_t min_bytes)
{
    uint64_t room = (uint64_t)(c->end - c->at) / min_bytes;
    if (n > max || n > room)
        return error_set(
            c->err, STATUS_INVALID,
            "%s states %llu %s, but the file has room for only %llu. Fetch the file again",
            c->g->path, (unsigned long long)n, what, (unsigned long long)(room < max ? room : max));
    return STATUS_OK;
}

static enum status read_values(struct gguf *g, struct cursor *c)
{
    TRY(check_count(c, "metadata entries", g->n_values, MAX_VALUES, MIN_VALUE_BYTES));
    g->values = mem_try_array(g->n_values + 1, sizeof *g->values);
    g->values_by_key = mem_try_array(g->n_values + 1, sizeof *g->values_by_key);
    if (!g->values || !g->values_by_key)
        return error_set(c->err, STATUS_NO_MEMORY,
                         "not enough memory for the metadata of %s. Free memory on this machine",
                         g->path);
    for (uint64_t i = 0; i < g->n_values; i++) {
        TRY(take_value(c, &g->values[i]));
        g->values_by_key[i] = &g->values[i];
    }
    qsort(g->values_by_key, g->n_values, sizeof *g->values_by_key, gguf_values_compare);
    for (uint64_t i = 1; i < g->n_values; i++)
        if (str_eq(g->values_by_key[i - 1]->key, g->values_by_key[i]->key))
            return error_set(c->err, STATUS_INVALID,
                             "%s contains the key " STR_FMT " twice. Fetch the file again", g->path,
                             STR_ARG(g->values_by_key[i]->key));
    return STATUS_OK;
}

static enum status read_tensors(struct gguf *g, struct cursor *c)
{
    TRY(check_count(c, "tensors", g->n_tensors, GGUF_MAX_TENSORS, MIN_TENSOR_BYTES));
    g->tensors = mem_try_array(g->n_tensors + 1, sizeof *g->tensors);
    g->tensors_by_name = mem_try_array(g->n_tensors + 1, sizeof *g->tensors_by_name);
    if (!g->tensors || !g->tensors_by_name)
        return error_set(c->err, STATUS_NO_MEMORY,
                         "not enough memory for the tensor list of %s. Free memory on this machine",
                         g->path);
    for (uint64_t i = 0; i < g->n_tensors; i++)
        TRY(take_tensor(c, &g->tensors[i]));
    const struct gguf_tensor *twice = gguf_index_tensors(g);
    if (twice)
        return error_set(c->err, STATUS_INVALID,
                         "%s contains the tensor " STR_FMT " twice. Fetch the file again", g->path,
                         STR_ARG(twice->name));
    return STATUS_OK;
}

static enum status place_data(struct gguf *g, struct error *err)
{
    uint64_t start = ((uint64_t)g->n_header_bytes + g->alignment - 1) / g->alignment * g->alignment;
    uint64_t room = start < g->n_bytes ? g->n_bytes - start : 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->offset % g->alignment != 0)
            return error_set(err, STATUS_INVALID,
                             "%s: tensor " STR_FMT " is at offset %llu, which is not a multiple of "
                             "the alignment %u. Fetch the file again",
                             g->path, STR_ARG(t->name), (unsigned long long)t->offset,
                             g->alignment);
        if (t->offset > room || t->n_bytes > room - t->offset)
            return error_set(err, STATUS_INVALID,
                             "%s: tensor " STR_FMT
                             " ends after the end of the file (%llu bytes from byte %llu, of %llu "
                             "bytes of data). Check that the download is complete",
                             g->path, STR_ARG(t->name), (unsigned long long)t->n_bytes,
                             (unsigned long long)t->offset, (unsigned long long)room);
        t->offset += start;
        t->data = g->bytes + t->offset;
    }
    return STATUS_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(struct gguf_tensor *const *)a,
                             *y = *(struct gguf_tensor *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Refuses a file in which bytes belong to two tensors. Holes are allowed. */
static enum status check_overlaps(const struct gguf *g, struct error *err)
{
    const struct gguf_tensor **by_offset = mem_try_array(g->n_tensors + 1, sizeof *by_offset);
    enum status s = STATUS_OK;
    if (!by_offset)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the tensor list of %s. Free memory on this machine",
                         g->path);
    for (uint64_t i = 0; i < g->n_tensors; i++)
        by_offset[i] = &g->tensors[i];
    qsort(by_offset, g->n_tensors, sizeof *by_offset, compare_offsets);
    for (uint64_t i = 1; i < g->n_tensors && s == STATUS_OK; i++)
        if (by_offset[i]->offset < by_offset[i - 1]->offset + by_offset[i - 1]->n_bytes)
            s = error_set(err, STATUS_INVALID,
                          "%s: the tensors " STR_FMT " and " STR_FMT
                          " overlap. Fetch the file again",
                          g->path, STR_ARG(by_offset[i - 1]->name), STR_ARG(by_offset[i]->name));
    mem_free(by_offset);
    return s;
}

static enum status parse(struct gguf *g, struct error *err)
{
    const uint8_t *magic;
    if (g->n_bytes < 4 || memcmp(g->bytes, "GGUF", 4) != 0)
        return error_set(err, STATUS_INVALID,
                         "%s is not a GGUF file. Check the path, or fetch the file again", g->path);
    struct cursor c = {g, g->bytes, g->bytes + g->n_bytes, err};
    TRY(take(&c, 4, &magic));
    TRY(take_u32(&c, &g->version));
    if ((g->version & 0xFFFF) == 0 && g->version != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is a big-endian GGUF file, which Coxswain does not support. Use a "
                         "little-endian file",
                         g->path);
    if (g->version != 2 && g->version != 3)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "%s has the GGUF version %u; Coxswain reads versions 2 and 3. Convert the model again",
            g->path, g->version);
    TRY(take_u64(&c, &g->n_tensors));
    TRY(take_u64(&c, &g->n_values));
    TRY(read_values(g, &c));
    uint64_t alignment = DEFAULT_ALIGNMENT;
    enum status s = gguf_get_u64(g, "general.alignment", 1, MAX_ALIGNMENT, &alignment, err);
    if (s != STATUS_OK && s != STATUS_NOT_FOUND)
        return s;
    if ((alignment & (alignment - 1)) != 0)
        return error_set(err, STATUS_INVALID,
                         "%s: the alignment %llu is not a power of two. Fetch the file again",
                         g->path, (unsigned long long)alignment);
    g->alignment = (uint32_t)alignment;
    TRY(read_tensors(g, &c));
    g->n_header_bytes = (size_t)(c.at - g->bytes);
    TRY(place_data(g, err));
    return check_overlaps(g, err);
}

/* ---- opening ---- */

static enum status finish_open(struct gguf *g, enum status s, struct gguf **out, struct error *err)
{
    if (s == STATUS_OK)
        s = parse(g, err);
    if (s != STATUS_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return STATUS_OK;
}

enum status gguf_open_part(const char *path, struct gguf **out, struct error *err)
{
    struct gguf *g = mem_zalloc(sizeof *g);
    *out = NULL;
    g->path = mem_strdup(path);
    enum status s = file_map_open(path, &g->map, err);
    g->bytes = g->map.bytes;
    g->n_bytes = g->map.n_bytes;
    return finish_open(g, s, out, err);
}

enum status gguf_open_memory(const void *bytes, size_t n, const char *name, struct gguf **out,
                             struct error *err)
{
    struct gguf *g = mem_zalloc(sizeof *g);
    *out = NULL;
    g->path = mem_strdup(name);
    g->bytes = bytes;
    g->n_bytes = n;
    return finish_open(g, STATUS_OK, out, err);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (uint32_t i = 1; i < g->n_parts; i++)
        gguf_close(g->parts[i]);
    mem_free(g->parts);
    file_map_close(&g->map);
    mem_free(g->values);
    mem_free(g->tensors);
    mem_free(g->values_by_key);
    mem_free(g->tensors_by_name);
    mem_free(g->path);
    mem_free(g);
}

/* ---- queries ---- */

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->n_bytes;
}

struct file_stamp gguf_stamp(const struct gguf *g)
{
    return g->map.stamp;
}

struct str gguf_header(const struct gguf *g)
{
    return (struct str){(const char *)g->bytes, g->n_header_bytes};
}

uint32_t gguf_n_parts(const struct gguf *g)
{
    return g->n_parts > 0 ? g->n_parts : 1;
}

const struct gguf *gguf_part(const struct gguf *g, uint32_t i)
{
    return i == 0 ? g : g->parts[i];
}

uint64_t gguf_n_values(const struct gguf *g)
{
    return g->n_values;
}

const struct gguf_value *gguf_value_at(const struct gguf *g, uint64_t i)
{
    return i < g->n_values ? &g->values[i] : NULL;
}

uint64_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    struct gguf_tensor wanted = {.name = str_from(name)}, *p = &wanted;
    const struct gguf_tensor **hit =
        bsearch(&p, g->tensors_by_name, g->n_tensors, sizeof *g->tensors_by_name, compare_tensors);
    return hit ? *hit : NULL;
}
