#include "worker/plan/targets.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/str.h"

enum { USUAL_CONTEXT = 1024, MOST_TARGETS = 256 };

/* ---- names ---- */

static struct target *add(struct targets *t)
{
    return t->n < MOST_TARGETS ? &t->list[t->n++] : NULL;
}

typedef enum status (*find_fn)(struct str name, struct gpu_target *out, struct error *err);

/* Finds the targets of "A,B" and of repeated flags. */
static enum status find_all(struct targets *t, const struct option_list *names, find_fn find,
                            struct error *err)
{
    for (size_t i = 0; i < names->n_items; i++)
        for (const char *at = names->items[i]; at;) {
            size_t n = strcspn(at, ",");
            struct str name = str_trim((struct str){at, n}, " ");
            at = at[n] == ',' ? at + n + 1 : NULL;
            struct target *one = name.len > 0 ? add(t) : NULL;
            if (!one && name.len > 0)
                return error_set(err, STATUS_LIMIT,
                                 "--gpu and --instance name too many GPUs and machines: at most %d "
                                 "are possible. Name fewer",
                                 MOST_TARGETS);
            if (one)
                TRY(find(name, &one->at, err));
        }
    return STATUS_OK;
}

/* `unknown` is used for a GPU of which only the memory is known. */
static const struct gpu_model unknown = {.name = "GPU", .capability = GPUS_LEAST_CAPABILITY};

static enum status find_targets(struct targets *t, struct error *err)
{
    const struct plan_options *o = t->shape->options;
    TRY(find_all(t, &o->gpus, gpus_find, err));
    TRY(find_all(t, &o->instances, gpus_find_machine, err));
    if (t->n > 0)
        return STATUS_OK;
    if (o->gpus.n_items + o->instances.n_items > 0)
        return error_set(err, STATUS_INVALID,
                         "--gpu or --instance is empty: give at least one name");
    if (o->memory_bytes > 0) {
        add(t)->at =
            (struct gpu_target){.name = "--memory-bytes", .gpu = &unknown, .n_gpus = GPUS_MOST};
        return STATUS_OK;
    }
    t->is_everything = true;
    for (size_t i = 0; i < gpus_count(); i++)
        TRY(gpus_find(str_from(gpus_at(i)->name), &add(t)->at, err));
    return STATUS_OK;
}

/* ---- one target ---- */

static void foresee(const struct targets *t, const struct target *x, struct target_degree *d)
{
    const struct roofline_on on = {x->at.gpu, t->shape, &d->rank};
    d->has_rates = x->at.gpu->flops > 0;
    if (!d->has_rates)
        return;
    d->decode = roofline_decode(&on, t->batch, t->context);
    if (d->fit.max_batch > 0)
        d->decode_most = roofline_decode(&on, d->fit.max_batch, t->context);
    d->prefill = roofline_prefill(&on, t->context);
}

/* Returns the figures of the same number of ranks on an earlier target with equal memory, so
 * that a rank is counted only once. */
static const struct target_degree *find_same(const struct targets *t, const struct target *x,
                                             uint32_t tp)
{
    for (const struct target *y = t->list; y < x; y++)
        for (uint32_t i = 0; y->memory_bytes == x->memory_bytes && i < y->n_degrees; i++)
            if (y->degrees[i].tp == tp && y->degrees[i].is_possible)
                return &y->degrees[i];
    return NULL;
}

static void look_at(const struct targets *t, struct target *x, uint32_t tp)
{
    const struct plan_options *o = t->shape->options;
    const struct fit_ask ask = {.memory_bytes = x->memory_bytes,
                                .utilization = o->gpu_memory_utilization,
                                .batch = t->batch,
                                .max_model_len = t->shape->max_model_len,
                                .most_model_len = t->shape->most_model_len,
                                .block_tokens = (uint32_t)o->worker.block_size};
    struct target_degree *d = &x->degrees[x->n_degrees++];
    const struct target_degree *same = find_same(t, x, tp);
    *d = (struct target_degree){.tp = tp};
    enum status st = STATUS_OK;
    if (tp > x->at.n_gpus && x->at.is_machine)
        st =
            error_set(&d->reason, STATUS_INVALID, "the machine has only %u GPU%s. Use a lower --tp",
                      x->at.n_gpus, x->at.n_gpus == 1 ? "" : "s");
    else if (same)
        d->rank = same->rank;
    else
        st = shape_rank_of(t->shape, tp, x->memory_bytes, &d->rank, &d->reason);
    d->is_possible = st == STATUS_OK;
    if (!d->is_possible)
        return;
    fit_rank(&d->rank, &ask, &d->fit);
    foresee(t, x, d);
}

static void look_at_target(const struct targets *t, struct target *x)
{
    const struct plan_options *o = t->shape->options;
    x->memory_bytes = o->memory_bytes > 0 ? (uint64_t)o->memory_bytes : x->at.gpu->memory_bytes;
    x->is_supported = x->at.gpu->capability >= GPUS_LEAST_CAPABILITY;
    if (o->worker.tp > 0)
        look_at(t, x, (uint32_t)o->worker.tp);
    for (uint32_t tp = 1; o->worker.tp == 0 && tp <= x->at.n_gpus; tp *= 2)
        look_at(t, x, tp);
    if (o->worker.tp == 0 && (x->at.n_gpus & (x->at.n_gpus - 1)) != 0)
        look_at(t, x, x->at.n_gpus);
    for (uint32_t i = 0; i < x->n_degrees && !x->fits; i++)
        if (x->degrees[i].is_possible) {
            x->i_best = i;
            x->fits = x->degrees[i].fit.fits;
        }
}

/* ---- all targets ---- */

static bool is_better(const struct target *a, const struct target *b)
{
    int rank_a = a->fits * (1 + a->is_supported), rank_b = b->fits * (1 + b->is_supported);
    if (rank_a != rank_b)
        return rank_a > rank_b;
    return a->fits && a->degrees[a->i_best].tp < b->degrees[b->i_best].tp;
}

enum status targets_make(const struct shape *s, struct targets *out, struct error *err)
{
    const struct plan_options *o = s->options;
    uint32_t usual = s->max_model_len < USUAL_CONTEXT ? s->max_model_len : USUAL_CONTEXT;
    *out = (struct targets){.shape = s,
                            .batch = (uint64_t)o->batch,
                            .context = o->context ? (uint32_t)o->context : usual,
                            .list = mem_array(MOST_TARGETS, sizeof *out->list)};
    if (out->context > s->max_model_len)
        return error_set(
            err, STATUS_INVALID,
            "--context %u is too large: sequences have at most %u tokens (%s). Use a lower value",
            out->context, s->max_model_len, "--max-model-len");
    TRY(find_targets(out, err));
    TRY(shape_rank_of(s, 1, out->list[0].at.gpu->memory_bytes, &out->whole, err));
    out->kv_bytes =
        fit_batch_bytes(&out->whole, out->batch, s->max_model_len, (uint32_t)o->worker.block_size);
    for (size_t i = 0; i < out->n; i++) {
        look_at_target(out, &out->list[i]);
        if (is_better(&out->list[i], &out->list[out->i_best]))
            out->i_best = i;
    }
    const struct target *best = &out->list[out->i_best];
    if (!best->degrees[best->i_best].is_possible)
        return error_set(err, STATUS_INVALID, "%s with --tp %u: %s", best->at.name,
                         best->degrees[best->i_best].tp, best->degrees[best->i_best].reason.text);
    out->fits = best->fits;
    out->is_supported = best->is_supported;
    return STATUS_OK;
}

void targets_fini(struct targets *t)
{
    mem_free(t->list);
    *t = (struct targets){0};
}

uint32_t targets_idle(const struct target *t)
{
    uint32_t tp = t->degrees[t->i_best].tp;
    return t->at.is_machine && t->at.n_gpus > tp ? t->at.n_gpus - tp : 0;
}
