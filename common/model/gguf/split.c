/* Joins a model in several files, as llama.cpp's gguf-split makes them: NAME-00001-of-0000N.gguf
 * and so on. The first file has the metadata. Each file has its number (split.no, from 0), the
 * number of files (split.count) and the total number of tensors (split.tensors.count). All
 * tables of tensors are joined in the first part's object. */
#include "common/model/gguf/split.h"

#include <limits.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/gguf/names.h"
#include "common/model/gguf/part.h"
#include "common/model/gguf/state.h"
#include "common/model/gguf/values.h"

enum { MAX_PARTS = 1024 };

/* Reads a key of the split. *out stays unchanged when the key is absent. */
static enum status get_number(const struct gguf *g, const char *key, uint64_t max, uint64_t *out,
                              struct error *err)
{
    uint64_t v = *out;
    enum status s = gguf_get_u64(g, key, 0, max, &v, err);
    if (s == STATUS_OK)
        *out = v;
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

static enum status check_part(const struct gguf *part, uint32_t i, uint64_t n, uint64_t n_tensors,
                              struct error *err)
{
    uint64_t no = UINT64_MAX, count = 0, all = n_tensors;
    TRY(get_number(part, "split.no", UINT16_MAX, &no, err));
    TRY(get_number(part, "split.count", UINT16_MAX, &count, err));
    TRY(get_number(part, "split.tensors.count", INT32_MAX, &all, err));
    if (no != i || count != n || all != n_tensors)
        return error_set(err, STATUS_INVALID,
                         "%s must be part %u of %llu with %llu tensors in total, but says that it "
                         "is part %llu of %llu with %llu (split.no, split.count, "
                         "split.tensors.count). Check that all parts come from the same model",
                         part->path, i + 1, (unsigned long long)n, (unsigned long long)n_tensors,
                         (unsigned long long)no + 1, (unsigned long long)count,
                         (unsigned long long)all);
    return STATUS_OK;
}

static enum status open_parts(struct gguf *g, uint32_t n, uint64_t n_tensors, struct error *err)
{
    char path[PATH_MAX];
    g->parts = mem_array(n, sizeof *g->parts);
    for (g->n_parts = 1; g->n_parts < n; g->n_parts++) {
        uint32_t i = g->n_parts;
        if (!gguf_part_path(g->path, i + 1, n, path))
            return error_set(err, STATUS_INVALID, "the path %s is too long. Use a shorter path",
                             g->path);
        enum status s = gguf_open_part(path, &g->parts[i], err);
        if (s == STATUS_NOT_FOUND)
            return error_set(
                err, STATUS_INVALID,
                "the file %s is missing; it is part %u of %u of %s. Fetch the missing file", path,
                i + 1, n, g->path);
        TRY(s);
        s = check_part(g->parts[i], i, n, n_tensors, err);
        if (s != STATUS_OK) {
            gguf_close(g->parts[i]);
            return s;
        }
    }
    return STATUS_OK;
}

static const char *path_of(const struct gguf *g, const struct gguf_tensor *t)
{
    for (uint32_t i = 1; i < g->n_parts; i++) {
        const struct gguf *p = g->parts[i];
        if (t->data >= p->bytes && t->data < p->bytes + p->n_bytes)
            return p->path;
    }
    return g->path;
}

static enum status merge(struct gguf *g, uint64_t n_tensors, struct error *err)
{
    uint64_t n = 0;
    struct gguf_tensor *all = mem_try_array(n_tensors + 1, sizeof *all);
    const struct gguf_tensor **by_name = mem_try_array(n_tensors + 1, sizeof *by_name);
    if (!all || !by_name) {
        mem_free(all);
        mem_free(by_name);
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the tensor list of %s. Free memory on this machine",
                         g->path);
    }
    for (uint32_t i = 0; i < g->n_parts; i++) {
        const struct gguf *p = gguf_part(g, i);
        memcpy(all + n, p->tensors, p->n_tensors * sizeof *all);
        n += p->n_tensors;
    }
    mem_free(g->tensors);
    mem_free(g->tensors_by_name);
    g->tensors = all;
    g->tensors_by_name = by_name;
    g->n_tensors = n_tensors;
    const struct gguf_tensor *twice = gguf_index_tensors(g), *first = twice;
    for (uint64_t i = 0; twice && first == twice; i++)
        if (str_eq(all[i].name, twice->name) && &all[i] != twice)
            first = &all[i];
    if (twice)
        return error_set(err, STATUS_INVALID,
                         "%s and %s both contain the tensor " STR_FMT ". Fetch the files again",
                         path_of(g, first < twice ? first : twice),
                         path_of(g, first < twice ? twice : first), STR_ARG(twice->name));
    return STATUS_OK;
}

enum status gguf_join(struct gguf *g, struct error *err)
{
    uint64_t n = 0, n_tensors = 0, counted = g->n_tensors;
    uint32_t i_name, n_name;
    size_t stem = gguf_stem_length(str_from(g->path));
    TRY(get_number(g, "split.count", UINT16_MAX, &n, err));
    if (n <= 1)
        return STATUS_OK;
    if (n > MAX_PARTS)
        return error_set(err, STATUS_LIMIT,
                         "%s is one of %llu parts; Coxswain reads at most %d. Merge the parts with "
                         "llama-gguf-split --merge",
                         g->path, (unsigned long long)n, MAX_PARTS);
    if (stem == 0 || !gguf_read_suffix(g->path, stem, &i_name, &n_name) || i_name != 1 ||
        n_name != n)
        return error_set(err, STATUS_INVALID,
                         "%s is one of %llu parts, but its name does not end in "
                         "-00001-of-%05llu.gguf. Give the first part, with its original name",
                         g->path, (unsigned long long)n, (unsigned long long)n);
    TRY(get_number(g, "split.tensors.count", INT32_MAX, &n_tensors, err));
    TRY(check_part(g, 0, n, n_tensors, err));
    TRY(open_parts(g, (uint32_t)n, n_tensors, err));
    for (uint32_t i = 1; i < g->n_parts; i++)
        counted += g->parts[i]->n_tensors;
    if (counted != n_tensors || counted > GGUF_MAX_TENSORS)
        return error_set(err, STATUS_INVALID,
                         "%s: the %llu parts have %llu tensors, but split.tensors.count is %llu "
                         "(at most %d are allowed). Fetch the files again",
                         g->path, (unsigned long long)n, (unsigned long long)counted,
                         (unsigned long long)n_tensors, GGUF_MAX_TENSORS);
    return merge(g, n_tensors, err);
}
