/* Keeps the LoRA adapters of one rank (see lora.h). step/adapters.c loads and unloads them by id
 * and folder. The engine sets the shard, for which held adapters are loaded again. An adapter's
 * tensors are checked against the whole model, then this rank's part is packed into the slot's
 * memory on the device. Invariants: all memory is allocated with the shard, so a load cannot run
 * out of it. A failed load changes nothing. The check uses the whole model, so that an error is
 * the same on every rank. Paths are resolved before they are compared with `root`. All functions
 * run on the compute thread. */
#include "worker/lora/lora.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/path.h"
#include "common/model/lora/adapter.h"
#include "worker/lora/state.h"
#include "worker/model/families/program_build.h"
#include "worker/weights/source_state.h"

#define ALIGN 64u

/* ---- matrices that can have an adapter ---- */

/* Returns true when w is a matrix that an adapter can change: its tensor as a whole, or a range
 * of its rows. */
static bool can_have(const struct op_weight *w)
{
    return !w->part.transposed && !w->part.of_experts && w->part.step <= 1 &&
           w->part.first_in == 0 && w->part.n_columns == 0 && w->n_experts == 0;
}

typedef enum status target_fn(void *ctx, uint32_t i_weight, const char *module, struct error *err);

/* Calls fn with a module name such as "model.layers.0.self_attn.q_proj" for each matrix of a
 * linear operator. */
static enum status each_target(const struct program *p, target_fn *fn, void *ctx, struct error *err)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->ops[i];
        for (uint32_t k = 0; o->kind == OP_LINEAR && k < o->linear.n; k++) {
            const struct op_weight *w = &p->weights[o->linear.first + k];
            char name[TENSOR_NAME_MAX];
            tensor_name_format(&w->name, MODEL_HF, w->layer, w->expert, name);
            size_t n = strlen(name), end = sizeof ".weight" - 1;
            if (!can_have(w) || n <= end || strcmp(name + n - end, ".weight") != 0)
                continue;
            name[n - end] = '\0';
            TRY(fn(ctx, o->linear.first + k, name, err));
        }
    }
    return STATUS_OK;
}

/* ---- memory ---- */

/* `sizes` is the input of lay_out. Adapters keep the format of their file, which is at most
 * float32. */
struct sizes {
    const struct lora_set *l;
    const struct program *p;
    uint64_t slot_bytes;
    uint32_t most_in, most_out;
};

static enum status measure_target(void *ctx, uint32_t i_weight, const char *module,
                                  struct error *err)
{
    struct sizes *z = ctx;
    const struct op_weight *w = &z->p->weights[i_weight];
    const struct device *d = z->l->s.device;
    uint64_t a = d->ops->loading.weight_bytes(d, DTYPE_F32, z->l->s.max_rank, w->k_len, 0);
    uint64_t b = d->ops->loading.weight_bytes(d, DTYPE_F32, w->n_len, z->l->s.max_rank, 0);
    if (a == 0 || b == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--max-lora-rank %u: this device has no kernel for an adapter of %s",
                         z->l->s.max_rank, module);
    z->slot_bytes += align_up(a, ALIGN) + align_up(b, ALIGN);
    z->most_in = w->k_len > z->most_in ? w->k_len : z->most_in;
    z->most_out = w->n_len > z->most_out ? w->n_len : z->most_out;
    return STATUS_OK;
}

static struct view room(uint8_t *memory, uint64_t *used, uint32_t element_bytes, uint32_t width)
{
    struct view v = {memory ? memory + *used : NULL, width};
    *used += align_up((uint64_t)element_bytes * width * LORA_CHUNK_ROWS, ALIGN);
    return v;
}

/* Assigns memory to the slots, their tables, and the scratch buffers of the operator. With
 * `memory` NULL the function only computes the size. */
static enum status lay_out(struct lora_set *l, const struct program *p, uint8_t *memory,
                           uint64_t *n_bytes, struct error *err)
{
    struct sizes z = {.l = l, .p = p};
    uint32_t e = l->s.device->ops->activation_bytes;
    TRY(each_target(p, measure_target, &z, err));
    l->slot_bytes = z.slot_bytes;
    *n_bytes = z.slot_bytes * l->s.max_loras;
    l->tables = NULL;
    if (l->s.device->ops->adapters.table) {
        l->table_stride =
            align_up(p->n_weights * l->s.device->ops->adapters.bytes(l->s.device), ALIGN);
        l->tables = memory ? memory + *n_bytes : NULL;
        *n_bytes += l->table_stride * l->s.max_loras;
    }
    l->gathered = room(memory, n_bytes, e, z.most_in);
    l->low = room(memory, n_bytes, e, l->s.max_rank);
    l->high = room(memory, n_bytes, e, z.most_out);
    return STATUS_OK;
}

enum status lora_set_measure(const struct lora_set *l, const struct program *p, uint64_t *out,
                             struct error *err)
{
    struct lora_set copy = *l;
    return lay_out(&copy, p, NULL, out, err);
}

uint64_t lora_set_slot_bytes(const struct lora_set *l)
{
    return l->slot_bytes;
}

/* ---- check of an adapter against the model ---- */

struct fit {
    const struct lora_set *l;
    const struct lora_adapter *adapter;
    const char *folder;
    bool *seen;         /* [modules of the adapter]; true = the model has the module */
    bool *targets_seen; /* [target_modules]; true = the model has such a module */
    char targets[320];  /* last parts of the model's module names, for error texts */
    const struct program *p;
    struct lora_slot *slot; /* slot to fill */
    uint8_t *memory;
    uint64_t used;
};

static void add_target(char *list, size_t size, const char *module)
{
    const char *dot = strrchr(module, '.'), *last = dot ? dot + 1 : module;
    size_t n = strlen(last), used = strlen(list);
    for (const char *at = list; (at = strstr(at, last)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
            return;
    if (used + n + 3 < size)
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", last);
}

static enum status wrong_shape(const struct fit *f, const struct lora_module *m, const char *which,
                               const struct tensor *t, const uint32_t want[2], struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "%s/%s: tensor base_model.model.%s.lora_%s.weight has shape [%llu, %llu], but "
                     "this model needs [%u, %u]. Use an adapter that was made for this model",
                     f->folder, lora_adapter_file(f->adapter), m->name, which,
                     (unsigned long long)t->shape[0], (unsigned long long)t->shape[1], want[0],
                     want[1]);
}

/* Checks that the adapter's tensors for a module of the whole model have the right shape. */
static enum status check_target(void *ctx, uint32_t i_weight, const char *module, struct error *err)
{
    struct fit *f = ctx;
    add_target(f->targets, sizeof f->targets, module);
    lora_adapter_mark_targets(f->adapter, module, f->targets_seen);
    const struct lora_module *m = lora_adapter_find(f->adapter, module);
    if (!m && lora_adapter_targets(f->adapter, module))
        return error_set(
            err, STATUS_INVALID,
            "%s/%s: tensor base_model.model.%s.lora_A.weight is missing, although "
            "target_modules names its module. Use an adapter that was made for this model",
            f->folder, lora_adapter_file(f->adapter), module);
    if (!m)
        return STATUS_OK;
    f->seen[m - lora_adapter_module_at(f->adapter, 0)] = true;
    struct source_place at = source_place(&f->l->whole->weights[i_weight]);
    const uint32_t a[] = {m->rank, at.n_columns}, b[] = {at.n_rows, m->rank};
    if (m->a->shape[1] != a[1])
        return wrong_shape(f, m, "A", m->a, a, err);
    if (m->b->shape[0] != b[0])
        return wrong_shape(f, m, "B", m->b, b, err);
    if (m->rank > f->l->s.max_rank)
        return error_set(err, STATUS_LIMIT,
                         "%s/adapter_config.json: rank %u of %s is above the limit, "
                         "--max-lora-rank %u. Raise the option",
                         f->folder, m->rank, module, f->l->s.max_rank);
    return STATUS_OK;
}

/* Refuses an adapter with a target or module that the model does not have, instead of ignoring
 * that part. */
static enum status check_modules(struct fit *f, struct error *err)
{
    const struct lora_adapter *a = f->adapter;
    for (uint32_t i = 0; i < lora_adapter_n_targets(a); i++)
        if (!f->targets_seen[i])
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s/adapter_config.json: target_modules names %.96s, but adapters of "
                             "this model can change only %s",
                             f->folder, lora_adapter_target_at(a, i), f->targets);
    for (uint32_t i = 0; i < lora_adapter_n_modules(a); i++) {
        const char *name = lora_adapter_module_at(a, i)->name;
        if (!f->seen[i])
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s/%s: tensor base_model.model.%s.lora_A.weight: %s. The modules "
                             "that adapters can change are %s",
                             f->folder, lora_adapter_file(a), name,
                             strstr(name, ".experts.")
                                 ? "adapters of experts are not supported"
                                 : "an adapter of this model cannot change a module of this name",
                             f->targets);
    }
    return STATUS_OK;
}

/* ---- loading ---- */

static const char *take(struct fit *f, struct weight *w, const struct weight_rows *rows)
{
    struct device *d = f->l->s.device;
    w->n_bytes = d->ops->loading.weight_bytes(d, w->dtype, w->n, w->k, w->group);
    if (w->n_bytes == 0 || f->used + align_up(w->n_bytes, ALIGN) > f->l->slot_bytes)
        return "its tensors are larger than the space of an adapter";
    w->data = f->memory + f->used;
    f->used += align_up(w->n_bytes, ALIGN);
    d->ops->loading.weight_pack(d, w, rows);
    return NULL;
}

/* Returns true when the file has the rows of Q and K in another order than the checkpoint for
 * which the adapter was made. A GGUF of some families stores the two dimensions of a rotated
 * pair next to each other (families/llama.c). */
static bool is_permuted(const struct lora_set *l, const struct op_weight *w)
{
    return l->p->n_ropes > 0 && l->p->ropes[0].interleaved && !l->whole->ropes[0].interleaved &&
           (w->out == REG_Q || w->out == REG_K);
}

static void permute(const struct program *p, const struct op_weight *w, const uint8_t *from,
                    uint64_t row_bytes, uint8_t *to)
{
    uint64_t half = p->config->head_dim / 2;
    for (uint32_t i = 0; i < w->n_len; i++) {
        uint64_t row = source_row(w, i), head = row / (2 * half), at = row % (2 * half);
        uint64_t old = head * 2 * half + at % 2 * half + at / 2;
        memcpy(to + i * row_bytes, from + old * row_bytes, row_bytes);
    }
}

static const char *take_b(struct fit *f, struct weight *b, const struct tensor *t,
                          const struct op_weight *w)
{
    uint64_t row_bytes = b->k * (uint64_t)dtype_traits(t->dtype).block_bytes;
    if (!is_permuted(f->l, w))
        return take(f, b, &(struct weight_rows){t->data + source_row(w, 0) * row_bytes, row_bytes});
    uint8_t *rows = mem_array(w->n_len, row_bytes);
    permute(f->p, w, t->data, row_bytes, rows);
    const char *why = take(f, b, &(struct weight_rows){rows, row_bytes});
    mem_free(rows);
    return why;
}

/* Loads this rank's part of an adapter: A is cut by inputs and B by outputs, like the matrix
 * itself. */
static enum status load_target(void *ctx, uint32_t i_weight, const char *module, struct error *err)
{
    struct fit *f = ctx;
    const struct lora_module *m = lora_adapter_find(f->adapter, module);
    const struct op_weight *w = &f->p->weights[i_weight];
    struct lora_pair *pair = &f->slot->pairs[i_weight];
    if (!m)
        return STATUS_OK;
    uint64_t element = dtype_traits(m->a->dtype).block_bytes;
    uint64_t row_bytes = source_place(w).n_columns * element;
    pair->a = (struct weight){.dtype = m->a->dtype, .n = m->rank, .k = w->k_len};
    pair->b = (struct weight){.dtype = m->b->dtype, .n = w->n_len, .k = m->rank};
    pair->scale = m->scale;
    const char *why =
        take(f, &pair->a, &(struct weight_rows){m->a->data + w->k0 * element, row_bytes});
    if (!why)
        why = take_b(f, &pair->b, m->b, w);
    return why ? error_set(err, STATUS_INTERNAL, "cannot load the adapter %s: module %s: %s",
                           f->folder, module, why)
               : STATUS_OK;
}

/* Checks that the files are those from which this id was first loaded. All ranks of a replica
 * must have the same adapter, no matter when they load it. */
static enum status check_identity(struct lora_slot *slot, struct adapter_identity said,
                                  const char *folder, struct error *err)
{
    if (!adapter_identity_known(slot->identity))
        slot->identity = said;
    if (adapter_identity_same(slot->identity, said))
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "%s: the adapter's files changed after it was loaded: load it again with load_inplace",
        folder);
}

/* Computes the digest of a loaded slot, and fills the table from which the device finds its
 * matrices. */
static void say_pairs(const struct lora_set *l, struct lora_slot *slot)
{
    const struct ops *ops = l->s.device->ops;
    slot->digest = 0xcbf29ce484222325u; /* FNV-1a's start value */
    for (uint32_t i = 0; i < l->p->n_weights; i++)
        slot->digest = (slot->digest ^ (slot->pairs[i].a.n > 0)) * 0x100000001b3u;
    if (ops->adapters.table)
        ops->adapters.table(l->s.device, slot->pairs, l->p->n_weights,
                            l->tables + (uint64_t)(slot - l->slots) * l->table_stride);
}

/* Loads an adapter into the slot. slot->identity is the required identity, or unknown. */
static enum status load_slot(struct lora_set *l, struct lora_slot *slot, const char *folder,
                             struct error *err)
{
    uint64_t identity[2];
    struct fit f = {.l = l, .folder = folder, .p = l->p, .slot = slot};
    struct lora_adapter *adapter;
    TRY(lora_adapter_open(folder, l->s.root, &adapter, err));
    f.adapter = adapter;
    f.memory = l->memory + (uint64_t)(slot - l->slots) * l->slot_bytes;
    slot->pairs = mem_array(l->p->n_weights, sizeof *slot->pairs);
    f.seen = mem_array(lora_adapter_n_modules(adapter), sizeof *f.seen);
    f.targets_seen = mem_array(lora_adapter_n_targets(adapter), sizeof *f.targets_seen);
    enum status s = each_target(l->whole, check_target, &f, err);
    if (s == STATUS_OK)
        s = check_modules(&f, err);
    if (s == STATUS_OK)
        s = each_target(l->p, load_target, &f, err);
    if (s == STATUS_OK)
        say_pairs(l, slot);
    if (s == STATUS_OK) /* errors of packing appear only here */
        s = l->s.device->ops->pass.sync(l->s.device, err);
    lora_adapter_identity(adapter, identity); /* hash of the bytes that were just read */
    if (s == STATUS_OK)
        s = check_identity(slot, (struct adapter_identity){identity[0], identity[1]}, folder, err);
    mem_free(f.seen);
    mem_free(f.targets_seen);
    lora_adapter_close(adapter);
    if (s != STATUS_OK) {
        mem_free(slot->pairs);
        slot->pairs = NULL;
    }
    return s;
}

/* Resolves an adapter's path. Symbolic links are followed before the check, because a name below
 * `root` may point outside. */
static enum status resolve(const char *root, const char *path, char out[PATH_MAX],
                           struct error *err)
{
    char joined[PATH_MAX], real_root[PATH_MAX];
    bool relative = root && path[0] != '/';
    int n =
        snprintf(joined, sizeof joined, "%s%s%s", relative ? root : "", relative ? "/" : "", path);
    if (path[0] == '\0' || n < 0 || (size_t)n >= sizeof joined)
        return error_set(
            err, STATUS_INVALID,
            "the path of the adapter's folder is empty. Give a folder below --lora-root");
    if (!root) {
        memcpy(out, joined, (size_t)n + 1);
        return STATUS_OK;
    }
    if (!realpath(root, real_root))
        return error_set(err, STATUS_NOT_FOUND, "--lora-root %s cannot be opened: %m", root);
    if (!realpath(joined, out))
        return error_set(err, STATUS_NOT_FOUND,
                         "cannot load the adapter: the folder %s does not exist", path);
    if (path_is_below(out, real_root))
        return STATUS_OK;
    return error_set(
        err, STATUS_DENIED,
        "%s: the folder is not below --lora-root: move the adapter there or change the option",
        path);
}

static enum status is_here(struct lora_slot *slot, struct adapter_identity *identity,
                           struct error *err)
{
    struct adapter_identity here = slot->identity;
    if (identity && adapter_identity_known(*identity) && !adapter_identity_same(*identity, here))
        return error_set(err, STATUS_INVALID,
                         "adapter %016llx is already loaded, but from files with other contents. "
                         "Unload it first",
                         (unsigned long long)slot->id);
    if (identity)
        *identity = here;
    return error_set(err, STATUS_EXISTS,
                     "adapter %016llx is already loaded. Unload it first to load it again",
                     (unsigned long long)slot->id);
}

enum status lora_set_load(struct lora_set *l, uint64_t id, const char *path,
                          struct adapter_identity *identity, struct error *err)
{
    char folder[PATH_MAX];
    uint32_t i = lora_set_find(l, id);
    if (i > 0)
        return is_here(&l->slots[i - 1], identity, err);
    if (!l->p)
        return error_set(err, STATUS_INVALID,
                         "adapters cannot be loaded yet: this rank has not loaded its shard of the "
                         "model. Try again later");
    while (i < l->s.max_loras && l->slots[i].id != 0)
        i++;
    if (i == l->s.max_loras)
        return error_set(
            err, STATUS_LIMIT,
            "%u adapters are loaded, the most that --max-loras allows: unload one first",
            l->s.max_loras);
    TRY(resolve(l->s.root, path, folder, err));
    l->slots[i].identity = identity ? *identity : (struct adapter_identity){0};
    TRY(load_slot(l, &l->slots[i], folder, err));
    if (identity)
        *identity = l->slots[i].identity;
    l->slots[i].id = id;
    l->slots[i].path = mem_strdup(folder);
    return STATUS_OK;
}

static void free_slot(struct lora_slot *slot)
{
    mem_free(slot->pairs);
    mem_free(slot->path);
    *slot = (struct lora_slot){0};
}

void lora_set_unload(struct lora_set *l, uint64_t id)
{
    uint32_t i = lora_set_find(l, id);
    if (i > 0)
        free_slot(&l->slots[i - 1]);
}

uint32_t lora_set_find(const struct lora_set *l, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < l->s.max_loras; i++)
        if (l->slots[i].id == id)
            return i + 1;
    return 0;
}

/* ---- life ---- */

enum status lora_set_new(const struct lora_setup *s, struct lora_set **out, struct error *err)
{
    const struct program_setup whole = {.tp = 1, .max_model_len = 1, .inner_unit = 1};
    if (s->max_loras == 0 || s->max_loras > LORA_MAX_SLOTS || s->max_rank == 0 ||
        s->max_rank > LORA_MAX_RANK)
        return error_set(err, STATUS_INVALID,
                         "%u adapters of rank %u are not possible: --max-loras must be 1 to %u and "
                         "--max-lora-rank 1 to %u",
                         s->max_loras, s->max_rank, LORA_MAX_SLOTS, LORA_MAX_RANK);
    struct lora_set *l = mem_zalloc(sizeof *l);
    l->s = *s;
    l->config = *s->config;
    l->config.format = MODEL_HF;
    enum status st = program_build(&l->config, &whole, &l->whole, err);
    if (st != STATUS_OK) {
        mem_free(l);
        return st;
    }
    l->list = mem_array(s->pass_rows, sizeof *l->list);
    l->losses = mem_array(s->max_loras, sizeof *l->losses);
    *out = l;
    return STATUS_OK;
}

/* Loads a held adapter again for a new shard. A failure is recorded as a loss. It affects
 * neither the base model nor other adapters. */
static void take_again(struct lora_set *l, struct lora_slot *slot)
{
    struct lora_loss loss = {.id = slot->id};
    if (slot->id == 0 || load_slot(l, slot, slot->path, &loss.why) == STATUS_OK)
        return;
    free_slot(slot);
    if (l->n_losses < l->s.max_loras)
        l->losses[l->n_losses++] = loss;
}

enum status lora_set_take(struct lora_set *l, const struct program *p, struct error *err)
{
    struct device *d = l->s.device;
    lora_set_drop(l);
    TRY(lora_set_measure(l, p, &l->n_bytes, err));
    l->memory = d->ops->memory.alloc(d, l->n_bytes);
    if (!l->memory)
        return error_set(
            err, STATUS_NO_MEMORY,
            "not enough memory for %llu bytes of adapters. Free memory on this machine",
            (unsigned long long)l->n_bytes);
    l->p = p;
    TRY(lay_out(l, p, l->memory, &l->n_bytes, err));
    for (uint32_t i = 0; i < l->s.max_loras; i++)
        take_again(l, &l->slots[i]);
    return STATUS_OK;
}

bool lora_set_next_loss(struct lora_set *l, uint64_t *id, struct error *why)
{
    if (l->n_losses == 0)
        return false;
    *id = l->losses[--l->n_losses].id;
    *why = l->losses[l->n_losses].why;
    return true;
}

void lora_set_drop(struct lora_set *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->s.max_loras; i++) {
        mem_free(l->slots[i].pairs);
        l->slots[i].pairs = NULL;
    }
    if (l->memory)
        l->s.device->ops->memory.release(l->s.device, l->memory, l->n_bytes);
    l->memory = NULL;
    l->p = NULL;
}

void lora_set_free(struct lora_set *l)
{
    if (!l)
        return;
    lora_set_drop(l);
    for (uint32_t i = 0; i < l->s.max_loras; i++)
        free_slot(&l->slots[i]);
    program_free(l->whole);
    mem_free(l->list);
    mem_free(l->losses);
    mem_free(l);
}
