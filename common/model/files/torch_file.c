/* Opens one PyTorch checkpoint. open_archive() finds the members, which are in one folder of any
 * name. data.pkl describes the tensors, and data/KEY holds the bytes of a storage.
 * torch_pickle.c reads the description; read_tensor() checks each tensor against its storage.
 * All checks happen at open, so later reads cannot fail. Tensors point into the mapping, and
 * several may share bytes. The object owns its map, names and tables, and is immutable
 * afterwards. */
#include "common/model/files/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/files/map.h"
#include "common/model/files/torch_pickle.h"
#include "common/model/files/zip.h"

enum { MAX_MEMBER_NAME = 1024 };

struct entry {
    struct tensor t;
    uint32_t n_dims; /* number of dimensions in the file; t has at most TENSOR_MAX_DIMS */
};

struct torch_file {
    char *path;
    struct file_map map; /* mapping of the file; empty when the bytes are borrowed */
    const uint8_t *bytes;
    size_t n_bytes;
    struct zip *zip;
    struct str folder; /* name of the archive's folder */
    struct str pickle;
    char *names;
    uint64_t n_entries, n_tensors;
    struct entry *entries; /* table of the tensors, sorted by position in the file */
    const struct entry **by_name;
    const struct tensor **tensors;
};

/* ---- the archive ---- */

static const struct zip_member *find_member(const struct torch_file *f, const char *folder,
                                            struct str name)
{
    char path[MAX_MEMBER_NAME];
    int n = snprintf(path, sizeof path, STR_FMT "/%s%.*s", STR_ARG(f->folder), folder,
                     (int)(name.len < sizeof path ? name.len : sizeof path), name.ptr);
    return n < 0 || (size_t)n >= sizeof path ? NULL
                                             : zip_find(f->zip, (struct str){path, (size_t)n});
}

/* Checks that the file begins like a zip archive. For PyTorch's older format the error says so. */
static enum status check_magic(const struct torch_file *f, struct error *err)
{
    static const uint8_t archive[] = {'P', 'K', 3, 4}, legacy[] = {0x80, 2, 0x8A, 0x0A};
    if (f->n_bytes >= sizeof archive && memcmp(f->bytes, archive, sizeof archive) == 0)
        return STATUS_OK;
    if (f->n_bytes >= sizeof legacy && memcmp(f->bytes, legacy, sizeof legacy) == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has the file format of PyTorch before 1.6. Load it with PyTorch and "
                         "save it again with torch.save or as safetensors",
                         f->path);
    return error_set(err, STATUS_INVALID,
                     "%s is not a PyTorch checkpoint (%zu bytes). Fetch the file again", f->path,
                     f->n_bytes);
}

static enum status open_archive(struct torch_file *f, struct error *err)
{
    TRY(check_magic(f, err));
    TRY(zip_open_memory(f->bytes, f->n_bytes, f->path, &f->zip, err));
    const struct zip_member *first = zip_member_at(f->zip, 0);
    const char *slash = first ? memchr(first->name.ptr, '/', first->name.len) : NULL;
    f->folder =
        (struct str){first ? first->name.ptr : "", slash ? (size_t)(slash - first->name.ptr) : 0};
    const struct zip_member *pickle = find_member(f, "", STR("data.pkl"));
    const struct zip_member *order = find_member(f, "", STR("byteorder"));
    if (find_member(f, "", STR("constants.pkl")))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is a TorchScript archive, which contains code. Save the state dict of "
                         "the model instead",
                         f->path);
    if (!pickle)
        return error_set(err, STATUS_INVALID,
                         "%s is not a PyTorch checkpoint: it is a zip archive without data.pkl. "
                         "Fetch the file again",
                         f->path);
    if (order && !str_eq_c((struct str){(const char *)order->data, order->n_bytes}, "little"))
        return error_set(err, STATUS_UNSUPPORTED,
                         "the byte order of %s is not little-endian, which Coxswain does not "
                         "support. Save the checkpoint again on a little-endian machine",
                         f->path);
    f->pickle = (struct str){(const char *)pickle->data, pickle->n_bytes};
    return STATUS_OK;
}

/* ---- one tensor ---- */

static enum status wrong(const struct torch_file *f, const struct torch_tensor *t,
                         struct error *err, const char *what)
{
    return error_set(err, STATUS_INVALID, "%s: tensor " STR_FMT ": %s", f->path, STR_ARG(t->name),
                     what);
}

/* Sets *n to the number of elements, which is 0 for an empty tensor. Refuses a tensor whose
 * strides are not contiguous. */
static enum status measure(const struct torch_file *f, const struct torch_tensor *t, uint64_t *n,
                           struct error *err)
{
    uint64_t step = 1;
    bool contiguous = true, empty = false;
    *n = 0;
    for (uint32_t i = t->n_dims; i-- > 0;) {
        empty = empty || t->shape[i] == 0;
        contiguous = contiguous && (t->shape[i] <= 1 || t->stride[i] == step);
        if (__builtin_mul_overflow(step, t->shape[i], &step))
            return wrong(f, t, err, "its shape has too many elements for any file");
    }
    *n = empty ? 0 : step;
    if (empty || contiguous)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s: tensor " STR_FMT " is not contiguous in memory, which Coxswain does not "
                     "support. Save a contiguous copy of it (.contiguous())",
                     f->path, STR_ARG(t->name));
}

/* Sets *out to the storage's bytes in the archive. */
static enum status find_storage(const struct torch_file *f, const struct torch_tensor *t,
                                const struct torch_storage *s, struct str *out, struct error *err)
{
    uint64_t n_bytes = s->n_elems;
    *out = (struct str){0};
    const struct zip_member *m = find_member(f, "data/", s->key);
    if (!m)
        return error_set(err, STATUS_INVALID,
                         "%s: tensor " STR_FMT
                         ": its storage data/%.*s is not in the archive. Fetch the file again",
                         f->path, STR_ARG(t->name), (int)(s->key.len < 64 ? s->key.len : 64),
                         s->key.ptr);
    if ((s->dtype != DTYPE_OPAQUE && !dtype_bytes(s->dtype, s->n_elems, 1, &n_bytes)) ||
        n_bytes > m->n_bytes)
        return error_set(
            err, STATUS_INVALID,
            "%s: tensor " STR_FMT ": its storage " STR_FMT
            " has %llu bytes, which is too few for %llu elements of %s. Fetch the file again",
            f->path, STR_ARG(t->name), STR_ARG(m->name), (unsigned long long)m->n_bytes,
            (unsigned long long)s->n_elems,
            s->dtype == DTYPE_OPAQUE ? "a byte" : dtype_traits(s->dtype).name);
    *out = (struct str){(const char *)m->data, n_bytes};
    return STATUS_OK;
}

static enum status read_tensor(const struct torch_file *f, const struct torch_tensor *t,
                               const struct torch_storage *s, struct entry *e, struct error *err)
{
    uint64_t n, skip, end;
    struct str storage;
    TRY(measure(f, t, &n, err));
    TRY(find_storage(f, t, s, &storage, err));
    if (__builtin_add_overflow(t->first, n, &end) || !dtype_bytes(t->dtype, t->first, 1, &skip) ||
        !dtype_bytes(t->dtype, end, 1, &end) || end > storage.len)
        return error_set(err, STATUS_INVALID,
                         "%s: tensor " STR_FMT " ends after the end of its storage (%llu elements "
                         "of %s from element %llu, in %zu bytes). Fetch the file again",
                         f->path, STR_ARG(t->name), (unsigned long long)n,
                         dtype_traits(t->dtype).name, (unsigned long long)t->first, storage.len);
    e->n_dims = t->n_dims;
    e->t = (struct tensor){.dtype = t->dtype,
                           .n_dims = t->n_dims < TENSOR_MAX_DIMS ? t->n_dims : TENSOR_MAX_DIMS,
                           .n_bytes = end - skip,
                           .data = (const uint8_t *)storage.ptr + skip};
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++)
        e->t.shape[i] = i < t->n_dims ? t->shape[i] : 1;
    return STATUS_OK;
}

/* ---- the table ---- */

static int compare_places(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->t.data != y->t.data)
        return x->t.data < y->t.data ? -1 : 1;
    return str_compare(x->t.name, y->t.name);
}

static int compare_names(const void *a, const void *b)
{
    return str_compare((*(const struct entry *const *)a)->t.name,
                       (*(const struct entry *const *)b)->t.name);
}

static enum status make_tables(struct torch_file *f, const struct torch_pickle *p,
                               struct error *err)
{
    uint64_t n = p->n_tensors, n_name_bytes = 0;
    for (uint64_t i = 0; i < n; i++)
        n_name_bytes += p->tensors[i].name.len + 1;
    f->names = mem_try_array(n_name_bytes + 1, 1);
    f->entries = mem_try_array(n + 1, sizeof *f->entries);
    f->by_name = mem_try_array(n + 1, sizeof *f->by_name);
    f->tensors = mem_try_array(n + 1, sizeof *f->tensors);
    if (!f->names || !f->entries || !f->by_name || !f->tensors)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the tensor list of %s. Free memory on this machine",
                         f->path);
    return STATUS_OK;
}

static enum status read_entries(struct torch_file *f, const struct torch_pickle *p,
                                struct error *err)
{
    char *at = f->names;
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const struct torch_tensor *t = &p->tensors[i];
        struct entry *e = &f->entries[i];
        TRY(read_tensor(f, t, &p->storages[t->storage], e, err));
        memcpy(at, t->name.ptr, t->name.len);
        e->t.name = (struct str){at, t->name.len};
        at += t->name.len + 1; /* the array is zeroed, so a NUL follows the name */
    }
    f->n_entries = p->n_tensors;
    return STATUS_OK;
}

static enum status index_entries(struct torch_file *f, struct error *err)
{
    qsort(f->entries, f->n_entries, sizeof *f->entries, compare_places);
    for (uint64_t i = 0; i < f->n_entries; i++) {
        f->by_name[i] = &f->entries[i];
        if (f->entries[i].n_dims <= TENSOR_MAX_DIMS)
            f->tensors[f->n_tensors++] = &f->entries[i].t;
    }
    qsort(f->by_name, f->n_entries, sizeof *f->by_name, compare_names);
    for (uint64_t i = 1; i < f->n_entries; i++)
        if (str_eq(f->by_name[i - 1]->t.name, f->by_name[i]->t.name))
            return error_set(err, STATUS_INVALID,
                             "%s contains the tensor " STR_FMT " twice. Fetch the file again",
                             f->path, STR_ARG(f->by_name[i]->t.name));
    return STATUS_OK;
}

static enum status parse(struct torch_file *f, struct error *err)
{
    struct torch_pickle p;
    TRY(open_archive(f, err));
    TRY(torch_pickle_read(f->pickle.ptr, f->pickle.len, f->path, &p, err));
    enum status s = make_tables(f, &p, err);
    if (s == STATUS_OK)
        s = read_entries(f, &p, err);
    torch_pickle_fini(&p);
    return s == STATUS_OK ? index_entries(f, err) : s;
}

/* ---- opening ---- */

static enum status finish_open(struct torch_file *f, enum status s, struct torch_file **out,
                               struct error *err)
{
    if (s == STATUS_OK)
        s = parse(f, err);
    if (s != STATUS_OK) {
        torch_file_close(f);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

enum status torch_file_open(const char *path, struct torch_file **out, struct error *err)
{
    struct torch_file *f = mem_zalloc(sizeof *f);
    *out = NULL;
    f->path = mem_strdup(path);
    enum status s = file_map_open(path, &f->map, err);
    f->bytes = f->map.bytes;
    f->n_bytes = f->map.n_bytes;
    return finish_open(f, s, out, err);
}

enum status torch_file_open_memory(const void *bytes, size_t n, const char *name,
                                   struct torch_file **out, struct error *err)
{
    struct torch_file *f = mem_zalloc(sizeof *f);
    *out = NULL;
    f->path = mem_strdup(name);
    f->bytes = bytes;
    f->n_bytes = n;
    return finish_open(f, STATUS_OK, out, err);
}

void torch_file_close(struct torch_file *f)
{
    if (!f)
        return;
    zip_close(f->zip);
    file_map_close(&f->map);
    mem_free(f->names);
    mem_free(f->entries);
    mem_free(f->by_name);
    mem_free(f->tensors);
    mem_free(f->path);
    mem_free(f);
}

/* ---- queries ---- */

struct file_stamp torch_file_stamp(const struct torch_file *f)
{
    return f->map.stamp;
}

struct str torch_file_bytes(const struct torch_file *f)
{
    return (struct str){(const char *)f->bytes, f->n_bytes};
}

uint64_t torch_file_n_tensors(const struct torch_file *f)
{
    return f->n_tensors;
}

const struct tensor *torch_file_tensor_at(const struct torch_file *f, uint64_t i)
{
    return i < f->n_tensors ? f->tensors[i] : NULL;
}

bool torch_file_holds(const struct torch_file *f, const char *name)
{
    struct entry wanted = {.t.name = str_from(name)};
    const struct entry *p = &wanted;
    return bsearch(&p, f->by_name, f->n_entries, sizeof *f->by_name, compare_names) != NULL;
}

struct str torch_file_pickle(const struct torch_file *f)
{
    return f->pickle;
}

struct str torch_file_directory(const struct torch_file *f)
{
    return zip_directory(f->zip);
}
