/* Opens a LoRA adapter for a worker. lora_adapter_open reads adapter_config.json (config.c),
 * maps the tensor file, and pairs the A and B of each module. Workers then copy the matrices of
 * the modules that their shard has.
 * The folder is not trusted: names, shapes, dtypes and every number are checked at open, so that
 * later use cannot fail. The adapter owns the mapped file and the table. Module tensors point
 * into the file and live until lora_adapter_close. The adapter is immutable after the open, so
 * any thread may use it. */
#include "common/model/lora/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the macro allows a hash state on the stack */
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/model/files/safetensors.h"
#include "common/model/files/torch_file.h"
#include "common/model/lora/config.h"
#include "common/model/lora/files.h"

/* MAX_MODULES is more than the largest models have: 1024 layers of 16 modules. */
enum { MAX_MODULES = 1 << 14 };

struct lora_adapter {
    char *folder;
    struct lora_config config;
    struct safetensors *file; /* opened tensor file; only one of `file` and `torch` is set */
    struct torch_file *torch;
    struct lora_module *modules; /* modules, [n_modules], sorted by name */
    uint32_t n_modules;
};

/* These are PEFT's file names. The first file that exists is used. */
static const char safetensors_name[] = "adapter_model.safetensors";
static const char torch_name[] = "adapter_model.bin";

const char *lora_adapter_file(const struct lora_adapter *a)
{
    return a->torch ? torch_name : safetensors_name;
}

static uint64_t n_tensors(const struct lora_adapter *a)
{
    return a->torch ? torch_file_n_tensors(a->torch) : safetensors_n_tensors(a->file);
}

static const struct tensor *tensor_at(const struct lora_adapter *a, uint64_t i)
{
    return a->torch ? torch_file_tensor_at(a->torch, i) : safetensors_tensor_at(a->file, i);
}

static enum status bad_tensor(const struct lora_adapter *a, const struct tensor *t, enum status s,
                              const char *what, struct error *err)
{
    return error_set(err, s, "%s/%s: tensor %.128s: %s", a->folder, lora_adapter_file(a),
                     t->name.ptr, what);
}

/* Splits "base_model.model." MODULE ".lora_A.weight" into the module's name and A or B. */
static enum status take_name_apart(const struct lora_adapter *a, const struct tensor *t,
                                   char module[LORA_MODULE_MAX], bool *is_a, struct error *err)
{
    static const char prefix[] = "base_model.model.";
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const char *name = t->name.ptr;
    size_t skip = sizeof prefix - 1, end = strlen(ends[0]), n = strlen(name);
    if (strncmp(name, prefix, skip) != 0 || n <= skip + end)
        return bad_tensor(a, t, STATUS_UNSUPPORTED,
                          "its name does not have the form base_model.model.MODULE.lora_A.weight",
                          err);
    *is_a = strcmp(name + n - end, ends[0]) == 0;
    if (!*is_a && strcmp(name + n - end, ends[1]) != 0)
        return bad_tensor(a, t, STATUS_UNSUPPORTED,
                          "it is neither lora_A.weight nor lora_B.weight of a module, and this "
                          "build supports no other tensors of an adapter",
                          err);
    if (n - skip - end >= LORA_MODULE_MAX)
        return bad_tensor(a, t, STATUS_INVALID, "its name is too long", err);
    snprintf(module, LORA_MODULE_MAX, "%.*s", (int)(n - skip - end), name + skip);
    return STATUS_OK;
}

static int compare_modules(const void *a, const void *b)
{
    return strcmp(((const struct lora_module *)a)->name, ((const struct lora_module *)b)->name);
}

/* Returns true when all numbers are finite. NaN and infinity would spread over every row of the
 * adapter. */
static bool is_finite(const struct tensor *t)
{
    bool ok = true;
    if (t->dtype == DTYPE_F32) {
        for (uint64_t i = 0; i < t->n_bytes / 4; i++) {
            uint32_t x;
            memcpy(&x, t->data + 4 * i, sizeof x);
            ok &= (x & 0x7F800000u) != 0x7F800000u;
        }
        return ok;
    }
    uint16_t exponent = t->dtype == DTYPE_F16 ? 0x7C00u : 0x7F80u;
    for (uint64_t i = 0; i < t->n_bytes / 2; i++) {
        uint16_t x;
        memcpy(&x, t->data + 2 * i, sizeof x);
        ok &= (x & exponent) != exponent;
    }
    return ok;
}

static enum status check_tensor(const struct lora_adapter *a, const struct tensor *t,
                                struct error *err)
{
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return bad_tensor(a, t, STATUS_UNSUPPORTED, "its data type must be F32, F16 or BF16", err);
    if (t->n_dims != 2 || t->shape[0] == 0 || t->shape[1] == 0)
        return bad_tensor(a, t, STATUS_INVALID, "it is not a matrix", err);
    if (!is_finite(t))
        return bad_tensor(a, t, STATUS_INVALID, "it contains a number that is NaN or infinite",
                          err);
    return STATUS_OK;
}

/* Checks that A and B exist and have the configured rank. */
static enum status check_module(const struct lora_adapter *a, struct lora_module *m,
                                struct error *err)
{
    char what[160];
    if (!m->a || !m->b)
        return error_set(err, STATUS_INVALID,
                         "%s/%s: the tensor base_model.model.%s.lora_%s.weight is missing. Fetch "
                         "the adapter again",
                         a->folder, lora_adapter_file(a), m->name, m->a ? "B" : "A");
    lora_config_of(&a->config, m->name, &m->rank, &m->scale);
    const struct tensor *wrong = m->a->shape[0] != m->rank   ? m->a
                                 : m->b->shape[1] != m->rank ? m->b
                                                             : NULL;
    if (!wrong)
        return STATUS_OK;
    snprintf(what, sizeof what,
             "its shape is [%llu, %llu], which does not match the rank %u in adapter_config.json",
             (unsigned long long)wrong->shape[0], (unsigned long long)wrong->shape[1], m->rank);
    return bad_tensor(a, wrong, STATUS_INVALID, what, err);
}

/* Merges the A and B of each module. Every tensor name is unique (safetensors.h), so A and B are
 * neighbours after the sort by module. */
static enum status pair_up(struct lora_adapter *a, struct error *err)
{
    uint32_t n = 0;
    qsort(a->modules, a->n_modules, sizeof *a->modules, compare_modules);
    for (uint32_t i = 0; i < a->n_modules; i++) {
        struct lora_module *m = &a->modules[i];
        if (n == 0 || strcmp(a->modules[n - 1].name, m->name) != 0) {
            a->modules[n++] = *m;
            continue;
        }
        struct lora_module *first = &a->modules[n - 1];
        first->a = m->a ? m->a : first->a;
        first->b = m->b ? m->b : first->b;
    }
    a->n_modules = n;
    for (uint32_t i = 0; i < n; i++)
        TRY(check_module(a, &a->modules[i], err));
    return STATUS_OK;
}

static enum status read_modules(struct lora_adapter *a, struct error *err)
{
    uint64_t n = n_tensors(a);
    if (n == 0 || n > 2 * (uint64_t)MAX_MODULES)
        return error_set(err, STATUS_INVALID,
                         "%s/%s has %llu tensors; Coxswain supports 1 to %d, and no adapters of "
                         "experts. Use another adapter",
                         a->folder, lora_adapter_file(a), (unsigned long long)n, 2 * MAX_MODULES);
    a->modules = mem_try_array(n, sizeof *a->modules);
    if (!a->modules)
        return error_set(
            err, STATUS_NO_MEMORY,
            "not enough memory for %s/%s with %llu tensors. Free memory on this machine", a->folder,
            lora_adapter_file(a), (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        const struct tensor *t = tensor_at(a, i);
        struct lora_module *m = &a->modules[a->n_modules];
        bool is_a = false;
        TRY(take_name_apart(a, t, m->name, &is_a, err));
        TRY(check_tensor(a, t, err));
        *(is_a ? &m->a : &m->b) = t;
        a->n_modules++;
    }
    return pair_up(a, err);
}

/* Opens the first tensor file that exists. If neither exists, the error names the safetensors
 * file. */
static enum status open_tensors(struct lora_adapter *a, const char *root, struct error *err)
{
    char path[PATH_MAX];
    struct error other;
    enum status s = lora_file_find(a->folder, root, safetensors_name, path, err);
    if (s == STATUS_OK)
        s = safetensors_open(path, &a->file, err);
    if (s != STATUS_NOT_FOUND)
        return s;
    enum status torch = lora_file_find(a->folder, root, torch_name, path, &other);
    if (torch == STATUS_OK)
        torch = torch_file_open(path, &a->torch, &other);
    if (torch == STATUS_NOT_FOUND)
        return s;
    if (torch != STATUS_OK)
        *err = other;
    return torch;
}

static enum status open_adapter(struct lora_adapter *a, const char *root, struct error *err)
{
    TRY(lora_config_read(a->folder, root, &a->config, err));
    TRY(open_tensors(a, root, err));
    return read_modules(a, err);
}

enum status lora_adapter_open(const char *folder, const char *root, struct lora_adapter **out,
                              struct error *err)
{
    struct lora_adapter *a = mem_zalloc(sizeof *a);
    *out = NULL;
    a->folder = mem_strdup(folder);
    enum status s = open_adapter(a, root, err);
    if (s != STATUS_OK) {
        lora_adapter_close(a);
        return s;
    }
    *out = a;
    return STATUS_OK;
}

void lora_adapter_close(struct lora_adapter *a)
{
    if (!a)
        return;
    lora_config_fini(&a->config);
    safetensors_close(a->file);
    torch_file_close(a->torch);
    mem_free(a->modules);
    mem_free(a->folder);
    mem_free(a);
}

uint32_t lora_adapter_n_modules(const struct lora_adapter *a)
{
    return a->n_modules;
}

const struct lora_module *lora_adapter_module_at(const struct lora_adapter *a, uint32_t i)
{
    return &a->modules[i];
}

const struct lora_module *lora_adapter_find(const struct lora_adapter *a, const char *name)
{
    struct lora_module key;
    if (strlen(name) >= sizeof key.name)
        return NULL;
    memcpy(key.name, name, strlen(name) + 1);
    return bsearch(&key, a->modules, a->n_modules, sizeof key, compare_modules);
}

bool lora_adapter_targets(const struct lora_adapter *a, const char *name)
{
    return !a->config.some_layers && lora_names_find(&a->config.targets, name);
}

uint32_t lora_adapter_n_targets(const struct lora_adapter *a)
{
    return a->config.targets.n;
}

const char *lora_adapter_target_at(const struct lora_adapter *a, uint32_t i)
{
    uint32_t k = 0;
    while (a->config.targets.all[k].i != i)
        k++;
    return a->config.targets.all[k].name;
}

void lora_adapter_mark_targets(const struct lora_adapter *a, const char *name, bool *seen)
{
    lora_names_mark(&a->config.targets, name, seen);
}

/* ---- identity ---- */

static void hash_tensor(XXH3_state_t *h, const struct tensor *t)
{
    uint32_t dtype = (uint32_t)t->dtype;
    XXH3_128bits_update(h, &dtype, sizeof dtype);
    XXH3_128bits_update(h, t->shape, t->n_dims * sizeof t->shape[0]);
    XXH3_128bits_update(h, t->data, t->n_bytes);
}

/* Hashes the modules in the order of their names, so that the order in the file does not matter. */
void lora_adapter_identity(const struct lora_adapter *a, uint64_t out[2])
{
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    for (uint32_t i = 0; i < a->n_modules; i++) {
        const struct lora_module *m = &a->modules[i];
        XXH3_128bits_update(&h, m->name, strlen(m->name) + 1);
        XXH3_128bits_update(&h, &m->scale, sizeof m->scale);
        hash_tensor(&h, m->a);
        hash_tensor(&h, m->b);
    }
    XXH128_hash_t x = XXH3_128bits_digest(&h);
    out[0] = x.high64;
    out[1] = x.low64;
}
