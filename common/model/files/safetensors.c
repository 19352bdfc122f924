/* Opens one safetensors file. parse() checks the header's length and JSON. read_root() makes one
 * table of entries in the order of their data, and an array of pointers sorted by name for
 * look-ups. The JSON is released after that.
 * Every check happens at open, so later reads cannot fail: shapes and offsets against the file's
 * size, and no hole or overlap between tensors. The object owns its map, names and tables, and
 * is immutable afterwards. */
#include "common/model/files/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/files/hf_json.h"
#include "common/model/files/map.h"

enum {
    LENGTH_BYTES = 8,
    /* most bytes of a header, as in the reference implementation */
    MAX_HEADER_BYTES = 100 * 1000 * 1000,
    MAX_TENSORS = 1 << 20,
};

struct entry {
    struct tensor t;
    uint64_t begin, end; /* offsets of the tensor within the data */
    uint64_t n_dims;     /* number of dimensions in the file; t has at most TENSOR_MAX_DIMS */
};

struct safetensors {
    char *path;
    struct file_map map; /* mapping of the file; empty when the bytes are borrowed */
    const uint8_t *bytes;
    size_t n_bytes;
    uint64_t n_header_bytes; /* length of the JSON and of the 8 bytes with its length */
    uint64_t n_entries, n_tensors;
    char *names;
    struct entry *entries;        /* table of the tensors, sorted by offset */
    const struct entry **by_name; /* all entries, sorted by name */
    const struct tensor **tensors;
};

static const struct {
    const char *name;
    enum dtype dtype;
} dtypes[] = {
    {"F32", DTYPE_F32},   {"F16", DTYPE_F16},         {"BF16", DTYPE_BF16},
    {"F64", DTYPE_F64},   {"I8", DTYPE_I8},           {"I16", DTYPE_I16},
    {"I32", DTYPE_I32},   {"I64", DTYPE_I64},         {"U8", DTYPE_U8},
    {"U16", DTYPE_U16},   {"U32", DTYPE_U32},         {"U64", DTYPE_U64},
    {"BOOL", DTYPE_BOOL}, {"F8_E4M3", DTYPE_F8_E4M3}, {"F8_E5M2", DTYPE_F8_E5M2},
};

static enum dtype dtype_of(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, dtypes[i].name) == 0)
            return dtypes[i].dtype;
    return DTYPE_OPAQUE;
}

/* ---- one tensor ---- */

static enum status wrong(const struct safetensors *s, const struct entry *e, struct error *err,
                         const char *what)
{
    return error_set(err, STATUS_INVALID, "%s: tensor " STR_FMT ": %s", s->path, STR_ARG(e->t.name),
                     what);
}

/* Reads a tensor's shape and sets *n to the number of elements. An empty shape is a scalar. A
 * dimension of 0 makes an empty tensor. */
static enum status read_shape(const struct safetensors *s, struct entry *e, const json_t *shape,
                              uint64_t *n, struct error *err)
{
    *n = 1;
    if (!json_is_array(shape))
        return wrong(s, e, err, "its shape is missing or is not a list");
    e->n_dims = json_array_size(shape);
    e->t.n_dims = e->n_dims > TENSOR_MAX_DIMS ? TENSOR_MAX_DIMS : (uint32_t)e->n_dims;
    for (size_t i = 0; i < TENSOR_MAX_DIMS; i++)
        e->t.shape[i] = 1;
    for (size_t i = 0; i < e->n_dims; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return wrong(s, e, err, "its shape contains a value that is not a size");
        uint64_t size = (uint64_t)json_integer_value(v);
        if (i < TENSOR_MAX_DIMS)
            e->t.shape[i] = size;
        if (__builtin_mul_overflow(*n, size, n))
            return wrong(s, e, err, "its shape has too many elements for any file");
    }
    return STATUS_OK;
}

static enum status read_offsets(const struct safetensors *s, struct entry *e, const json_t *offsets,
                                struct error *err)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    uint64_t room = s->n_bytes - s->n_header_bytes;
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return wrong(s, e, err,
                     "its data_offsets must be two numbers, the second not less than the first");
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    if (e->end > room)
        return error_set(
            err, STATUS_INVALID,
            "%s: tensor " STR_FMT " ends after the end of the file (at byte %llu of %llu bytes of "
            "data). Check that the download is complete",
            s->path, STR_ARG(e->t.name), (unsigned long long)e->end, (unsigned long long)room);
    e->t.n_bytes = e->end - e->begin;
    e->t.data = s->bytes + s->n_header_bytes + e->begin;
    return STATUS_OK;
}

static enum status read_entry(const struct safetensors *s, struct entry *e, const json_t *o,
                              struct error *err)
{
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    uint64_t n, n_bytes;
    if (!json_is_object(o))
        return wrong(s, e, err, "its description must be a JSON object");
    if (!dtype)
        return wrong(s, e, err, "its dtype is missing or is not a string");
    e->t.dtype = dtype_of(dtype);
    TRY(read_shape(s, e, json_object_get(o, "shape"), &n, err));
    TRY(read_offsets(s, e, json_object_get(o, "data_offsets"), err));
    if (e->t.dtype == DTYPE_OPAQUE)
        return STATUS_OK; /* the size of an element is unknown, so no code can use this tensor */
    if (!dtype_bytes(e->t.dtype, n, 1, &n_bytes) || n_bytes != e->t.n_bytes)
        return error_set(err, STATUS_INVALID,
                         "%s: tensor " STR_FMT
                         ": %llu elements of %s do not need %llu bytes. Fetch the file again",
                         s->path, STR_ARG(e->t.name), (unsigned long long)n, dtype,
                         (unsigned long long)e->t.n_bytes);
    return STATUS_OK;
}

/* ---- the table ---- */

static int compare_offsets(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) /* an empty tensor precedes another tensor at the same offset */
        return x->end < y->end ? -1 : 1;
    return str_compare(x->t.name, y->t.name);
}

static int compare_names(const void *a, const void *b)
{
    return str_compare((*(const struct entry *const *)a)->t.name,
                       (*(const struct entry *const *)b)->t.name);
}

static enum status make_tables(struct safetensors *s, const json_t *root, struct error *err)
{
    const char *name;
    json_t *o;
    size_t n_name_bytes = 0;
    uint64_t n = json_object_size(root);
    json_object_foreach((json_t *)root, name, o) n_name_bytes += strlen(name) + 1;
    if (n > MAX_TENSORS)
        return error_set(err, STATUS_INVALID,
                         "%s has %llu tensors; Coxswain reads at most %d. Use another model",
                         s->path, (unsigned long long)n, MAX_TENSORS);
    s->names = mem_try_array(n_name_bytes + 1, 1);
    s->entries = mem_try_array(n + 1, sizeof *s->entries);
    s->by_name = mem_try_array(n + 1, sizeof *s->by_name);
    s->tensors = mem_try_array(n + 1, sizeof *s->tensors);
    if (!s->names || !s->entries || !s->by_name || !s->tensors)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the tensor list of %s. Free memory on this machine",
                         s->path);
    return STATUS_OK;
}

static enum status read_entries(struct safetensors *s, const json_t *root, struct error *err)
{
    const char *name;
    json_t *o;
    char *at = s->names;
    json_object_foreach((json_t *)root, name, o)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct entry *e = &s->entries[s->n_entries];
        size_t n = strlen(name);
        memcpy(at, name, n + 1);
        e->t.name = (struct str){at, n};
        at += n + 1;
        TRY(read_entry(s, e, o, err));
        s->n_entries++;
    }
    return STATUS_OK;
}

/* Checks that each tensor begins where the tensor before it ends, and that the last tensor ends
 * with the file. */
static enum status check_cover(const struct safetensors *s, struct error *err)
{
    uint64_t at = 0, room = s->n_bytes - s->n_header_bytes;
    for (uint64_t i = 0; i < s->n_entries; i++) {
        const struct entry *e = &s->entries[i];
        if (e->begin != at)
            return error_set(err, STATUS_INVALID,
                             "%s: tensor " STR_FMT " begins at byte %llu, which %s the data before "
                             "it (that ends at %llu). Fetch the file again",
                             s->path, STR_ARG(e->t.name), (unsigned long long)e->begin,
                             e->begin < at ? "is inside" : "leaves a gap after",
                             (unsigned long long)at);
        at = e->end;
    }
    if (at != room)
        return error_set(err, STATUS_INVALID,
                         "%s has %llu bytes of data, but its tensors use only %llu of them. Fetch "
                         "the file again",
                         s->path, (unsigned long long)room, (unsigned long long)at);
    return STATUS_OK;
}

static enum status read_root(struct safetensors *s, const json_t *root, struct error *err)
{
    if (!json_is_object(root))
        return error_set(err, STATUS_INVALID,
                         "the header of %s must be a JSON object. Fetch the file again", s->path);
    TRY(make_tables(s, root, err));
    TRY(read_entries(s, root, err));
    qsort(s->entries, s->n_entries, sizeof *s->entries, compare_offsets);
    TRY(check_cover(s, err));
    for (uint64_t i = 0; i < s->n_entries; i++) {
        s->by_name[i] = &s->entries[i];
        if (s->entries[i].n_dims <= TENSOR_MAX_DIMS)
            s->tensors[s->n_tensors++] = &s->entries[i].t;
    }
    qsort(s->by_name, s->n_entries, sizeof *s->by_name, compare_names);
    return STATUS_OK;
}

static enum status parse(struct safetensors *s, struct error *err)
{
    uint64_t n;
    json_error_t why;
    if (s->n_bytes < LENGTH_BYTES)
        return error_set(err, STATUS_INVALID, "%s is not a safetensors file: it has only %zu bytes",
                         s->path, s->n_bytes);
    static const char lfs[] = "version https://git-lfs";
    if (s->n_bytes > sizeof lfs && memcmp(s->bytes, lfs, sizeof lfs - 1) == 0)
        return error_set(err, STATUS_INVALID,
                         "%s is only a Git LFS pointer. Fetch the file itself with `git lfs pull`",
                         s->path);
    memcpy(&n, s->bytes, sizeof n);
    if (n > MAX_HEADER_BYTES || n > s->n_bytes - LENGTH_BYTES)
        return error_set(err, STATUS_INVALID,
                         "%s is not a safetensors file or is incomplete: it states a header of "
                         "%llu bytes, but the file has %zu bytes and a header at most %d",
                         s->path, (unsigned long long)n, s->n_bytes, MAX_HEADER_BYTES);
    s->n_header_bytes = LENGTH_BYTES + n;
    const char *text = (const char *)s->bytes + LENGTH_BYTES;
    if (n == 0 || text[0] != '{')
        return error_set(
            err, STATUS_INVALID,
            "%s is not a safetensors file: its header does not begin with {. Fetch the file again",
            s->path);
    if (!json_is_bounded(text, n))
        return error_set(err, STATUS_INVALID, "the header of %s has more than %d values, the limit",
                         s->path, JSON_MAX_VALUES);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return error_set(err, STATUS_INVALID,
                         "the header of %s is not valid JSON at byte %d: %s. Fetch the file again",
                         s->path, why.position, why.text);
    enum status status = read_root(s, root, err);
    json_decref(root);
    return status;
}

/* ---- opening ---- */

static enum status finish_open(struct safetensors *s, enum status status, struct safetensors **out,
                               struct error *err)
{
    if (status == STATUS_OK)
        status = parse(s, err);
    if (status != STATUS_OK) {
        safetensors_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

enum status safetensors_open(const char *path, struct safetensors **out, struct error *err)
{
    struct safetensors *s = mem_zalloc(sizeof *s);
    *out = NULL;
    s->path = mem_strdup(path);
    enum status status = file_map_open(path, &s->map, err);
    s->bytes = s->map.bytes;
    s->n_bytes = s->map.n_bytes;
    return finish_open(s, status, out, err);
}

enum status safetensors_open_memory(const void *bytes, size_t n, const char *name,
                                    struct safetensors **out, struct error *err)
{
    struct safetensors *s = mem_zalloc(sizeof *s);
    *out = NULL;
    s->path = mem_strdup(name);
    s->bytes = bytes;
    s->n_bytes = n;
    return finish_open(s, STATUS_OK, out, err);
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    file_map_close(&s->map);
    mem_free(s->names);
    mem_free(s->entries);
    mem_free(s->by_name);
    mem_free(s->tensors);
    mem_free(s->path);
    mem_free(s);
}

/* ---- queries ---- */

uint64_t safetensors_file_bytes(const struct safetensors *s)
{
    return s->n_bytes;
}

struct file_stamp safetensors_stamp(const struct safetensors *s)
{
    return s->map.stamp;
}

uint64_t safetensors_n_tensors(const struct safetensors *s)
{
    return s->n_tensors;
}

const struct tensor *safetensors_tensor_at(const struct safetensors *s, uint64_t i)
{
    return i < s->n_tensors ? s->tensors[i] : NULL;
}

static const struct entry *find(const struct safetensors *s, const char *name)
{
    struct entry wanted = {.t.name = str_from(name)}, *p = &wanted;
    const struct entry **hit =
        bsearch(&p, s->by_name, s->n_entries, sizeof *s->by_name, compare_names);
    return hit ? *hit : NULL;
}

const struct tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct entry *e = find(s, name);
    return e && e->n_dims <= TENSOR_MAX_DIMS ? &e->t : NULL;
}

bool safetensors_holds(const struct safetensors *s, const char *name)
{
    return find(s, name) != NULL;
}

struct str safetensors_header(const struct safetensors *s)
{
    return (struct str){(const char *)s->bytes, s->n_header_bytes};
}
