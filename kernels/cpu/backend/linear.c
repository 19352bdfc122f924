/* Computes products of rows with matrices on a CPU, and reads rows of an embedding.
 * The runner calls `cpu_linear` and `cpu_linear_top` through struct ops. Rows are first brought
 * into the matrix's input order (`linear_sorted`). They are converted to narrow numbers if the
 * weights are narrow (codes or bfloat16). The matrix is then cut into tasks of whole panels, and
 * the pool's threads call the level's kernels.
 * A row's bits depend neither on the other rows nor on the cut into tasks. All scratch memory
 * belongs to the device and only grows. One thread calls the operators, and the pool's threads
 * write disjoint columns. */
#include "kernels/cpu/backend/linear.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/backend/units.h"
#include "kernels/cpu/pack/pack.h"

enum {
    MACS_PARALLEL = 50000,
    MACS_TASK_MIN = 64 << 10,
    MACS_TASK_MAX = 4 << 20,
    MAX_K = 1 << 20,      /* limit of k, so that products of sizes stay within 64 bits */
    SORTED_ROWS = 64,     /* number of rows that are reordered at a time */
    NARROW_ROWS = 128,    /* number of rows that become codes or bfloat16 at a time */
    TOP_FLOATS = 16 << 10 /* outputs of one task of linear_top, which fit a second-level cache */
};

/* Returns whether a matrix is laid out for dot products of codes. If so, w->k is a whole number
 * of its blocks. */
static bool has_dots(const struct cpu_device *d, const struct weight *w)
{
    return d->is_narrow && dot_has(w->dtype);
}
/* Returns whether the rows become bfloat16 for this matrix. */
static bool has_rounded(const struct cpu_device *d, const struct linear_part *part)
{
    return d->is_narrow && part->w->dtype == DTYPE_BF16 && !part->exact;
}

/* Returns the number of floats of scratch that n_rows rows need as codes. */
static uint64_t coded_floats(uint32_t k, uint32_t n_rows)
{
    uint64_t n = dot_n_places(n_rows);
    return n * (k / DOT_GROUP) * (sizeof(struct dot_group) + DOT_GROUP) / sizeof(float);
}

/* Returns the number of floats of scratch that NARROW_ROWS rows need as bfloat16. The number is
 * enough for every level, since the next step may use another level. */
static uint64_t rounded_floats(uint32_t k)
{
    return (uint64_t)NARROW_ROWS * rounded_stride(&rounded_kernels_scalar, k);
}

uint64_t cpu_weight_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                          uint32_t group)
{
    if (n == 0 || k == 0 || k > MAX_K)
        return 0;
    /* the product fits 64 bits: it is below 2^20 * 64 * 2^28 */
    return pack_panel_bytes(dtype, k) * div_up(n, PANEL_N);
}

struct pack {
    struct weight *w;
    const struct weight_rows *rows;
};
static void pack_unit(struct cpu_device *d, const void *p, uint32_t i, uint32_t i_thread)
{
    const struct pack *job = p;
    if (has_dots(d, job->w))
        dot_pack_panel(job->w, job->rows, i);
    else
        pack_panel(job->w, job->rows, i);
}
void cpu_weight_pack(struct device *device, struct weight *w, const struct weight_rows *rows)
{
    struct cpu_device *d = cpu_of(device);
    if (w->order) /* the memory is allocated at load, not in a step */
        cpu_scratch_grow(&d->sorted, (uint64_t)w->k * SORTED_ROWS);
    if (has_dots(d, w))
        cpu_scratch_grow(&d->coded, coded_floats(w->k, NARROW_ROWS));
    if (d->is_narrow && w->dtype == DTYPE_BF16)
        cpu_scratch_grow(&d->rounded, rounded_floats(w->k));
    cpu_run_units(d, div_up(w->n, PANEL_N), (uint64_t)w->k * PANEL_N, pack_unit,
                  &(struct pack){w, rows});
}

static void embed_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct embed_params *p = params;
    uint32_t id = p->ids[i];
    if (id >= p->first && id - p->first < p->w->n && has_dots(d, p->w))
        dot_embed_row(p->w, id - p->first, p->scale, row_of(p->out, i));
    else if (id >= p->first && id - p->first < p->w->n)
        d->kernels->embed_row(p->w, id - p->first, p->scale, row_of(p->out, i));
    else
        memset(row_of(p->out, i), 0, p->w->k * sizeof(float));
}
void cpu_embed(struct device *d, const struct embed_params *p)
{
    cpu_run_units(cpu_of(d), p->n_rows, 4 * (uint64_t)p->w->k, embed_unit, p);
}

/* `narrow_rows` holds the rows of a product in the narrow forms that its weights need. */
struct narrow_rows {
    const struct dot_rows *coded; /* rows as codes; NULL: no part needs codes */
    struct view rounded;          /* rows as bfloat16; data is NULL when no part needs bfloat16 */
};

/* `top_job` describes a product that returns only the two best outputs of each row. Each thread
 * keeps the best of the columns that it has computed, and memory for the columns of one task. */
struct top_job {
    float softcap;
    struct logits_top *of_threads; /* `of_threads` has the shape [threads][NARROW_ROWS] */
    struct logits_top *out;        /* `out` has the shape [rows] */
};

/* `linear_job` describes one product: the panels of all parts, cut into tasks of at most
 * per_task panels. A task lies in one part. */
struct linear_job {
    struct cpu_device *d;
    const struct linear_params *p;
    const struct narrow_rows *narrow; /* narrow forms of p->x */
    const struct top_job *top; /* best outputs of a product; NULL: the whole product is stored */
    uint32_t per_task, n_tasks[LINEAR_MAX_PARTS];
};

struct panels {
    const struct linear_part *part;
    uint32_t begin, end;
};
static struct panels panels_of(const struct linear_job *job, uint32_t i_task)
{
    const struct linear_part *part = job->p->parts;
    for (const uint32_t *n = job->n_tasks; i_task >= *n; n++, part++)
        i_task -= *n;
    uint32_t n_panels = div_up(part->w->n, PANEL_N), begin = i_task * job->per_task;
    uint32_t left = n_panels - begin;
    return (struct panels){part, begin, begin + (left < job->per_task ? left : job->per_task)};
}

/* Returns the panels that this thread probably computes next. Tasks are assigned in order, so a
 * thread's next task is most likely i_task + the number of threads. A wrong prediction costs
 * little, because the threads share the cache that the data was prefetched into. */
static struct panels_ahead panels_next(const struct linear_job *job, const struct panels *now,
                                       uint32_t i_task)
{
    uint32_t n_tasks = 0, next = i_task + pool_n_threads(job->d->pool);
    for (uint32_t i = 0; i < job->p->n_parts; i++)
        n_tasks += job->n_tasks[i];
    if (next >= n_tasks)
        return (struct panels_ahead){0};
    const struct panels then = panels_of(job, next);
    const struct weight *w = then.part->w;
    /* those panels have another layout; k is equal in all parts */
    if (w->dtype != now->part->w->dtype)
        return (struct panels_ahead){0};
    return (struct panels_ahead){(const uint8_t *)w->data +
                                     then.begin * pack_panel_bytes(w->dtype, w->k),
                                 then.end - then.begin};
}

static void multiply(const struct linear_job *job, const struct panels *now,
                     struct panels_ahead next, uint32_t i_thread)
{
    const struct linear_params *p = job->p;
    const struct linear_part *part = now->part;
    if (has_dots(job->d, part->w)) {
        job->d->dots->linear(&(struct dot_task){.w = part->w,
                                                .bias = part->bias,
                                                .x = job->narrow->coded,
                                                .out = part->out.data,
                                                .out_stride = part->out.stride,
                                                .panel_begin = now->begin,
                                                .panel_end = now->end,
                                                .next = next});
        return;
    }
    struct linear_task t = {.w = part->w,
                            .bias = part->bias,
                            .x = p->x.data,
                            .out = part->out.data,
                            .n_rows = p->n_rows,
                            .x_stride = p->x.stride,
                            .out_stride = part->out.stride,
                            .panel_begin = now->begin,
                            .panel_end = now->end,
                            .next = next,
                            .scratch = job->d->scratch[i_thread].floats};
    if (!has_rounded(job->d, part)) {
        job->d->kernels->linear(&t);
        return;
    }
    t.x = job->narrow->rounded.data;
    t.x_stride = job->narrow->rounded.stride;
    rounded_linear(job->d->rounding, &t);
}

/* Computes a task's columns in memory that the thread reuses for every task, and keeps the best
 * of each row. */
static void top_task(const struct linear_job *job, const struct panels *now,
                     struct panels_ahead next, uint32_t i_thread)
{
    const struct cpu_kernels *kernels = job->d->kernels;
    const struct top_job *top = job->top;
    const uint32_t first = now->begin * PANEL_N, n_panels = now->end - now->begin;
    struct weight w = *now->part->w;
    const uint32_t left = w.n - first, n = left < n_panels * PANEL_N ? left : n_panels * PANEL_N;
    w.data = (uint8_t *)w.data + now->begin * pack_panel_bytes(w.dtype, w.k);
    w.n = n;
    struct linear_part part = *now->part;
    part.w = &w;
    part.out =
        (struct view){job->d->scratch[i_thread].floats + LINEAR_SCRATCH_FLOATS, n_panels * PANEL_N};
    multiply(job, &(struct panels){&part, 0, n_panels}, next, i_thread);
    for (uint32_t r = 0; r < job->p->n_rows; r++) {
        float *row = row_of(part.out, r);
        if (top->softcap > 0)
            kernels->softcap(row, n, top->softcap);
        struct logits_top found = kernels->logits_top(row, n);
        found.id += first;
        logits_top_merge(&top->of_threads[i_thread * NARROW_ROWS + r], found);
    }
}

static void linear_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct linear_job *job = ctx;
    const struct panels now = panels_of(job, i_task);
    const struct panels_ahead next = panels_next(job, &now, i_task);
    (job->top ? top_task : multiply)(job, &now, next, i_thread);
}

/* Returns the number of panels of a task. Each thread gets several tasks. A task is large enough
 * that its overhead is negligible, and small enough that threads do not wait long for the last
 * task. The number is a multiple of the panels that a kernel processes side by side. */
static uint32_t panels_per_task(struct cpu_device *d, uint64_t n_panels, uint64_t macs_per_panel,
                                uint32_t n_rows)
{
    uint32_t n_threads = pool_n_threads(d->pool);
    if (n_threads == 1 || n_panels * macs_per_panel < MACS_PARALLEL)
        return (uint32_t)n_panels;
    uint64_t n = div_up(n_panels, (uint64_t)n_threads * TASKS_PER_THREAD);
    if (n > MACS_TASK_MAX / macs_per_panel)
        n = MACS_TASK_MAX / macs_per_panel;
    if (n * macs_per_panel < MACS_TASK_MIN)
        n = div_up(MACS_TASK_MIN, macs_per_panel);
    uint32_t side_by_side = n_rows == 1 ? 2 * LINEAR_TASK_PANELS : LINEAR_TASK_PANELS;
    return div_up(n, side_by_side) * side_by_side;
}

/* Computes a product whose inputs are in the file's order. */
static void linear_plain(struct cpu_device *d, const struct linear_params *p,
                         const struct narrow_rows *narrow, const struct top_job *top)
{
    assert(p->n_parts > 0 && p->n_parts <= LINEAR_MAX_PARTS);
    uint64_t n_panels = 0;
    uint32_t k = p->parts[0].w->k, n_tasks = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        n_panels += div_up(p->parts[i].w->n, PANEL_N);
    struct linear_job job = {.d = d, .p = p, .narrow = narrow, .top = top};
    job.per_task = panels_per_task(d, n_panels, (uint64_t)k * PANEL_N * p->n_rows, p->n_rows);
    if (top && job.per_task > TOP_FLOATS / PANEL_N / p->n_rows)
        job.per_task = TOP_FLOATS / PANEL_N / p->n_rows;
    for (uint32_t i = 0; i < p->n_parts; i++)
        n_tasks += job.n_tasks[i] = div_up(div_up(p->parts[i].w->n, PANEL_N), job.per_task);
    if (job.per_task == n_panels) /* the product is too small to wake the threads */
        for (uint32_t i = 0; i < n_tasks; i++)
            linear_task(&job, i, 0);
    else
        pool_run(d->pool, n_tasks, linear_task, &job);
}

/* Clears the best outputs of all threads. top_end() merges them for n rows from `first` on. */
static void top_begin(const struct cpu_device *d, const struct top_job *top)
{
    for (uint32_t i = 0; i < pool_n_threads(d->pool) * NARROW_ROWS; i++)
        top->of_threads[i] = (struct logits_top){0, -INFINITY, -INFINITY};
}
static void top_end(const struct cpu_device *d, const struct top_job *top, uint32_t first,
                    uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        top->out[first + r] = top->of_threads[r];
        for (uint32_t i = 1; i < pool_n_threads(d->pool); i++)
            logits_top_merge(&top->out[first + r], top->of_threads[i * NARROW_ROWS + r]);
    }
}

struct coding {
    struct view x;
    const struct dot_rows *to;
};
static void code_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct coding *c = params;
    dot_quantise_rows(d->dots, c->x.data, c->x.stride, c->to, i);
}
static void make_codes(struct cpu_device *d, const struct linear_params *p, struct dot_rows *to)
{
    const uint32_t k = p->parts[0].w->k;
    const uint64_t n_places = dot_n_places(p->n_rows);
    cpu_scratch_grow(&d->coded, coded_floats(k, NARROW_ROWS));
    /* the codes are stored first and aligned, so that 32 codes are in one cache line */
    int8_t *codes = (int8_t *)d->coded.floats;
    *to = (struct dot_rows){.n_rows = p->n_rows,
                            .k = k,
                            .codes = codes,
                            .groups = (struct dot_group *)(codes + n_places * k)};
    cpu_run_units(d, div_up(p->n_rows, DOT_TILE), 2 * (uint64_t)DOT_TILE * k, code_unit,
                  &(struct coding){p->x, to});
}

struct rounding {
    struct view from, to;
    uint32_t k;
};
static void round_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct rounding *r = params;
    d->rounding->round(row_of(r->to, i), row_of(r->from, i), r->k);
}
static struct view make_rounded(struct cpu_device *d, const struct linear_params *p)
{
    const uint32_t k = p->parts[0].w->k;
    cpu_scratch_grow(&d->rounded, rounded_floats(k));
    const struct view to = {d->rounded.floats, rounded_stride(d->rounding, k)};
    cpu_run_units(d, p->n_rows, k, round_unit, &(struct rounding){p->x, to, k});
    return to;
}

/* Returns the number of rows to convert at a time, so that the pieces are whole tiles of similar
 * size. A rest of seven rows, for example, would read every weight once more for almost no work. */
static uint32_t narrow_rows_of(uint32_t n_rows)
{
    const uint32_t share = div_up(n_rows, div_up(n_rows, NARROW_ROWS));
    return div_up(share, DOT_TILE) * DOT_TILE;
}

/* Computes a product whose inputs are in the file's order. Rows that become narrow are converted
 * and multiplied up to NARROW_ROWS at a time. */
static void linear_in_order(struct cpu_device *d, const struct linear_params *p,
                            const struct top_job *top)
{
    bool wants_codes = false, wants_rounded = false;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        wants_codes = wants_codes || has_dots(d, p->parts[i].w);
        wants_rounded = wants_rounded || has_rounded(d, &p->parts[i]);
    }
    struct narrow_rows narrow = {0};
    struct dot_rows coded;
    if (!wants_codes && !wants_rounded && !top) {
        linear_plain(d, p, &narrow, NULL);
        return;
    }
    const uint32_t most = narrow_rows_of(p->n_rows);
    for (uint32_t first = 0; first < p->n_rows; first += most) {
        struct linear_params some = *p;
        some.n_rows = p->n_rows - first < most ? p->n_rows - first : most;
        some.x.data = row_of(p->x, first);
        for (uint32_t i = 0; i < p->n_parts && !top; i++)
            some.parts[i].out.data = row_of(p->parts[i].out, first);
        if (wants_codes) {
            make_codes(d, &some, &coded);
            narrow.coded = &coded;
        }
        if (wants_rounded)
            narrow.rounded = make_rounded(d, &some);
        if (top)
            top_begin(d, top);
        linear_plain(d, &some, &narrow, top);
        if (top)
            top_end(d, top, first, some.n_rows);
    }
}

struct sorting {
    struct view from, to;
    const struct weight *w;
};
static void sort_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct sorting *s = params;
    const float *from = row_of(s->from, i);
    float *to = row_of(s->to, i);
    for (uint32_t k = 0; k < s->w->k; k++)
        to[k] = s->w->order[k] == WEIGHT_NO_INPUT ? 0 : from[s->w->order[k]];
}

/* Computes one part, SORTED_ROWS rows at a time, with the inputs in its matrix's order. */
static void linear_sorted(struct cpu_device *d, const struct linear_params *p,
                          const struct linear_part *part, const struct top_job *top)
{
    const struct weight *w = part->w;
    cpu_scratch_grow(&d->sorted, (uint64_t)w->k * SORTED_ROWS);
    const struct view sorted = {d->sorted.floats, w->k};
    for (uint32_t first = 0; first < p->n_rows; first += SORTED_ROWS) {
        uint32_t n = p->n_rows - first < SORTED_ROWS ? p->n_rows - first : SORTED_ROWS;
        const struct view from = {row_of(p->x, first), p->x.stride};
        struct linear_part some = *part;
        struct top_job top_of_some = {0};
        if (top) {
            top_of_some = *top;
            top_of_some.out += first;
        } else {
            some.out.data = row_of(part->out, first);
        }
        cpu_run_units(d, n, w->k, sort_unit, &(struct sorting){from, sorted, w});
        linear_in_order(
            d, &(struct linear_params){.x = sorted, .n_rows = n, .n_parts = 1, .parts = {some}},
            top ? &top_of_some : NULL);
    }
}

void cpu_linear(struct device *device, const struct linear_params *p)
{
    struct cpu_device *d = cpu_of(device);
    bool in_order = true;
    if (p->n_rows == 0)
        return;
    for (uint32_t i = 0; i < p->n_parts; i++)
        in_order = in_order && !p->parts[i].w->order;
    if (in_order) {
        linear_in_order(d, p, NULL);
        return;
    }
    for (uint32_t i = 0; i < p->n_parts; i++) {
        struct linear_params one = {.x = p->x, .n_rows = p->n_rows, .n_parts = 1};
        one.parts[0] = p->parts[i];
        if (p->parts[i].w->order)
            linear_sorted(d, &one, &p->parts[i], NULL);
        else
            linear_in_order(d, &one, NULL);
    }
}

void cpu_linear_top(struct device *device, const struct linear_params *p, float softcap,
                    struct logits_top *out)
{
    struct cpu_device *d = cpu_of(device);
    const uint64_t n_tops = (uint64_t)pool_n_threads(d->pool) * NARROW_ROWS;
    assert(p->n_parts == 1);
    if (p->n_rows == 0)
        return;
    cpu_scratch_reserve(d, LINEAR_SCRATCH_FLOATS + TOP_FLOATS);
    cpu_scratch_grow(&d->tops, n_tops * sizeof *out / sizeof(float));
    const struct top_job top = {softcap, (struct logits_top *)(void *)d->tops.floats, out};
    if (p->parts[0].w->order)
        linear_sorted(d, p, &p->parts[0], &top);
    else
        linear_in_order(d, p, &top);
}
