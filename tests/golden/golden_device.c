/* Compares a model on a GPU with two CPUs, row by row (golden_device.h). model_golden.c calls
 * golden_device_run with a model and its golden file. For each prompt, run_piece feeds the same
 * ids to the device, to the exact CPU and to the rounding CPU. The CPUs follow the device's
 * experts. `compare` adds up the distances of the rows, check_reference compares the exact CPU
 * with the golden file, and check_step compares the sampled token. `end_side` and `check_ratio`
 * judge the prompt.
 * `excess` counts each failed check, and separates those that rounding can explain. Buffers of
 * rows hold the longest prompt, which must fit into one pass. The program uses one thread, beside
 * the devices' own threads. */
#include "tests/golden/golden_device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "tests/golden/golden_choices.h"
#include "tests/golden/golden_math.h"
#include "tests/golden/golden_round.h"

/* `limits` are those of a row's distance, as a fraction of the row's spread: for the worst row
 * of a prompt, and for the root mean square over its rows. The values are those of
 * docs/develop/gpu.md, "Numbers", plus a fifth, because a GPU adds in another order than its
 * emulation. */
struct limits {
    double row, mean;
};
struct bounds {
    struct limits from_reference, from_rounding;
};
static const struct bounds plain = {{6.5e-2, 3.2e-2}, {4.5e-2, 2.5e-2}};
static const struct bounds mixture = {{9.5e-2, 3.8e-2}, {8e-2, 2.7e-2}};
/* `coarse` is for a KV cache of codes. A number that is close to the next code's border may get
 * another code. */
static const struct bounds coarse = {{12e-2, 6.5e-2}, {10e-2, 4e-2}};
/* A row may exceed the limit when its distance from the reference is at most `as_far` times the
 * rounding CPU's distance. Some models have such rows (one row of gpt_oss_bf16 differs by 20 %). */
static const double as_far = 1.5;
/* The rows of a prompt may be at most `as_rounding` times as far from the rounding CPU as that
 * CPU is from the reference. Two devices that round alike but add in another order differ from
 * each other by about as much as each differs from exact numbers. The exact factor depends on
 * the model. */
static const double as_rounding = 1.2;
/* `as_rounding_scaled` replaces as_rounding for weights whose scales are products that a GPU
 * rounds to float16 and this CPU does not (docs/develop/gpu.md, "Weights"). The measured ratio
 * is 1.27 (llama_tiny_gguf_q4_k), and 0.86 with float scales. */
static const double as_rounding_scaled = 1.45;
/* `router_move` is the largest allowed move of a router's logits to the device's choice, as a
 * fraction of their standard deviation. */
static const double router_move = 0.1;
/* Tokens may change places when their logits differ by less than this, in the reference or in
 * the rounding CPU. The second value applies after a prompt's first step that is so close
 * (measured: 0.172, phi3). */
static const double greedy_gap = 0.1, greedy_gap_behind = 0.2;
/* `undecided` lists models with a step that is undecided although its two best logits differ by
 * more. In prompt p65 of qwen2_moe_dense, the two best logits are 0.123 apart at the tenth
 * token. */
static const struct {
    const char *name;
    double gap;
} undecided[] = {{"qwen2_moe_dense", 0.13}};

struct distance {
    double worst, squares;
    uint32_t n, worst_row;
};

/* `side` is a CPU that the device is compared with. */
struct side {
    struct device *cpu;
    struct golden_follower *follower;
    struct golden_engine engine;
    float *rows;          /* logits of the last piece, [rows of a piece][vocab_size] */
    struct distance from; /* distance in the current prompt */
    double worst, mean;   /* largest values of the rows and of the means, over all prompts */
    double largest_move;
    uint32_t n_moved;
};

struct run {
    const struct golden_device_check *check;
    const struct bounds *bounds;
    /* `undecided` is the largest difference of logits that a named exception allows, else 0 */
    double as_rounding, undecided;
    const struct golden_prompt *prompt;
    struct golden_choices *choices;
    struct golden_engine engine;
    float *rows;
    struct side exact, rounding;
    uint32_t piece_rows; /* most rows that are fed at once */
    /* counts of the current prompt; n_wrong: greedy steps that failed */
    uint32_t n_passes, n_wrong;
    struct golden_excess excess; /* how far the n_failed checks exceed their bounds */
    /* Totals of all prompts; n_alone counts rows that the golden file does not cover. */
    uint32_t n_failed, n_prompts, n_rows, n_alone;
    /* Numbers of greedy steps by outcome: n_same have the reference's token, and n_named are
     * exceptions of `undecided`. */
    uint32_t n_same, n_close, n_rounded, n_named;
    /* Squares of the rounding CPU's distance from the reference, and the worst ratio for
     * as_rounding. */
    double own_squares, worst_ratio;
    /* Distance of the worst row that as_far allows, and the rounding CPU's distance in that row. */
    double worst_far, own_far;
    bool is_behind; /* true = the current prompt has had a close step */
};

static bool is_coarse(enum dtype kv)
{
    return kv == DTYPE_F8_E4M3 || kv == DTYPE_I8;
}

static void tell_failure(struct run *r, const char *what, uint32_t row, double value, double limit)
{
    r->n_failed++;
    printf("  FAILED %s, %s, row %u: %s: %g, allowed is %g\n", r->check->title, r->prompt->name,
           row, what, value, limit);
}

/* Reports a failed check whose outcome depends on how the device rounds. */
static void fail(struct run *r, const char *what, uint32_t row, double value, double limit)
{
    golden_excess_add(&r->excess, value, limit);
    tell_failure(r, what, row, value, limit);
}

/* Reports a failed check of the CPU that stands for the reference; the device is not involved. */
static void fail_reference(struct run *r, const char *what, uint32_t row, double value,
                           double limit)
{
    r->excess.n_other++;
    tell_failure(r, what, row, value, limit);
}

/* ---- opening ---- */

static void open_side(struct run *r, struct side *s, struct device *cpu, enum dtype kv)
{
    struct golden_engine_options o = *r->check->options;
    struct error err;
    s->cpu = cpu;
    s->follower = golden_follow(r->choices, cpu);
    o.device = cpu;
    o.kv_dtype = kv;
    if (golden_engine_open(&s->engine, r->check->model, &o, &err) != STATUS_OK)
        golden_die("%s, on the CPU: %s", r->check->title, err.text);
    s->rows = mem_array((size_t)r->piece_rows * s->engine.vocab_size, sizeof *s->rows);
}

static void close_side(struct side *s)
{
    golden_engine_close(&s->engine);
    golden_follower_free(s->follower);
    s->cpu->ops->close(s->cpu);
    mem_free(s->rows);
}

static struct device *open_cpu(void)
{
    struct device *d;
    struct error err;
    if (cpu_device_open(&(struct cpu_device_options){.n_threads = 1, .isa_level = -1}, &d, &err) !=
        STATUS_OK)
        golden_die("%s", err.text);
    return d;
}

static bool has_rounded_scales(const struct golden_engine *e)
{
    const struct program *p = golden_ranks_engine(e->ranks, 0)->program;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const enum dtype t = p->weights[i].w.dtype;
        if (t == DTYPE_Q2_K || t == DTYPE_Q3_K || t == DTYPE_Q4_K)
            return true;
    }
    return false;
}

static void choose_bounds(struct run *r)
{
    const char *model = r->check->model;
    r->bounds = is_coarse(r->check->options->kv_dtype) ? &coarse
                : golden_engine_is_mixture(&r->engine) ? &mixture
                                                       : &plain;
    r->as_rounding = has_rounded_scales(&r->engine) ? as_rounding_scaled : as_rounding;
    r->undecided = 0;
    for (size_t i = 0; i < sizeof undecided / sizeof *undecided; i++) {
        const char *slash = strrchr(model, '/');
        if (strcmp(slash ? slash + 1 : model, undecided[i].name) == 0)
            r->undecided = undecided[i].gap;
    }
}

static bool is_wanted(const struct golden_device_check *c, const struct golden_prompt *p)
{
    const uint32_t n = p->n_ids + p->n_greedy;
    return n >= c->shortest && n <= c->longest;
}

static void open_run(struct run *r)
{
    const struct golden_engine_options *o = r->check->options;
    struct error err;
    for (uint32_t i = 0; i < r->check->want->n_prompts; i++) {
        const struct golden_prompt *p = &r->check->want->prompts[i];
        if (is_wanted(r->check, p) && p->n_ids > r->piece_rows)
            r->piece_rows = p->n_ids;
    }
    if (r->piece_rows > GOLDEN_PASS_ROWS)
        golden_die("%s: a prompt of %u tokens is more than a pass", r->check->title, r->piece_rows);
    r->choices = golden_choices_new(o->device, GOLDEN_PASS_ROWS);
    if (golden_engine_open(&r->engine, r->check->model, o, &err) != STATUS_OK)
        golden_die("%s: %s", r->check->title, err.text);
    if (r->engine.vocab_size != r->check->want->vocab_size)
        golden_die("%s: a vocabulary of %u, expected %u", r->check->title, r->engine.vocab_size,
                   r->check->want->vocab_size);
    choose_bounds(r);
    r->rows = mem_array((size_t)r->piece_rows * r->engine.vocab_size, sizeof *r->rows);
    open_side(r, &r->exact, open_cpu(), is_coarse(o->kv_dtype) ? o->kv_dtype : DTYPE_F32);
    open_side(r, &r->rounding, golden_rounding_device(), o->kv_dtype);
}

static void close_run(struct run *r)
{
    close_side(&r->exact);
    close_side(&r->rounding);
    golden_engine_close(&r->engine);
    golden_choices_free(r->choices);
    mem_free(r->rows);
}

/* ---- rows ---- */

static const float *row_of(const struct run *r, const float *rows, uint32_t i)
{
    return rows + (size_t)i * r->engine.vocab_size;
}

struct keeper {
    float *rows;
    uint32_t n;
};
static void keep_row(void *ctx, uint32_t i, const float *logits)
{
    const struct keeper *k = ctx;
    memcpy(k->rows + (size_t)i * k->n, logits, k->n * sizeof *logits);
}

static void feed(struct golden_engine *e, float *rows, const uint32_t *ids, uint32_t n)
{
    struct keeper k = {rows, e->vocab_size};
    golden_engine_feed(e, ids, n, 0, keep_row, &k);
}

/* Returns true when the reference has chosen its own experts in all rows up to row i of the last
 * pass. */
static bool is_own(const struct run *r, uint32_t i)
{
    const struct golden_moves *m = golden_follower_moves(r->exact.follower);
    return m->n == 0 || m->first_pass >= r->n_passes ||
           (m->first_pass == r->n_passes - 1 && i < m->first_row);
}

static double between(const struct run *r, const float *got, const float *want, uint32_t i)
{
    return golden_share_of_spread(row_of(r, got, i), 0, row_of(r, want, i), r->engine.vocab_size);
}

static void add(struct distance *d, double share, uint32_t i_row)
{
    if (d->n == 0 || share > d->worst) {
        d->worst = share;
        d->worst_row = i_row;
    }
}

/* Compares row i of the last pass, which is row i_row of the prompt and its continuation. */
static void compare(struct run *r, uint32_t i, uint32_t i_row)
{
    struct distance *e = &r->exact.from, *o = &r->rounding.from;
    const double exact = between(r, r->rows, r->exact.rows, i);
    const double rounding = between(r, r->rows, r->rounding.rows, i);
    const double own = between(r, r->rounding.rows, r->exact.rows, i);
    add(o, rounding, i_row);
    if (exact <= r->bounds->from_reference.row || !(exact <= as_far * own))
        add(e, exact, i_row);
    else if (exact > r->worst_far)
        r->worst_far = exact, r->own_far = own;
    e->squares += exact * exact;
    o->squares += rounding * rounding;
    r->own_squares += own * own;
    e->n++;
    o->n++;
    r->n_rows++;
    r->n_alone += !is_own(r, i);
}

/* Compares the reference CPU with the golden file that it stands for. */
static void check_reference(struct run *r, uint32_t i)
{
    const struct golden_prompt *p = r->prompt;
    const uint32_t n = r->engine.vocab_size;
    const float *got = row_of(r, r->exact.rows, i);
    double worst = 0;
    if (p->logprobs) {
        double all = golden_log_sum_exp(got, n);
        for (uint32_t k = 0; k < n; k++)
            golden_widen(&worst,
                         fabs((double)got[k] - all - (double)p->logprobs[(size_t)i * n + k]));
    }
    if (p->last_logits && i + 1 == p->n_ids)
        for (uint32_t k = 0; k < n; k++)
            golden_widen(&worst, fabs((double)got[k] - (double)p->last_logits[k]));
    for (uint32_t k = 0; i + 1 == p->n_ids && k < p->n_top; k++)
        golden_widen(&worst, fabs((double)got[p->top[k].id] - p->top[k].logit));
    if (worst > r->check->file_distance)
        fail_reference(r, "distance of the CPU from the golden file", i, worst,
                       r->check->file_distance);
}

/* Returns by how much the rounding CPU prefers the first token to the other. */
static double gap_of_rounding(const struct run *r, uint32_t i, uint32_t id, uint32_t other)
{
    const float *x = row_of(r, r->rounding.rows, i);
    return (double)x[id] - (double)x[other];
}

/* Reports a step that rounding decides although the reference's two best logits are not close. */
static void tell_step(struct run *r, uint32_t i, uint32_t i_row, const struct golden_two *want,
                      uint32_t got)
{
    r->n_rounded++;
    printf("  %s, %s, row %u: another token, whose logit is %.3f behind, of a CPU that rounds "
           "%.3f\n",
           r->check->title, r->prompt->name, i_row, want->gap,
           gap_of_rounding(r, i, want->id, got));
}

/* Reports a step that only a named exception allows. The step has a line of its own and a count
 * of its own in the result. */
static void tell_exception(struct run *r, uint32_t i_row, double gap)
{
    r->n_named++;
    printf("  EXCEPTION %s, %s, row %u: another token at a gap of %.3f, of which this model alone "
           "is allowed %g\n",
           r->check->title, r->prompt->name, i_row, gap, r->undecided);
}

/* Checks the token of step i_step, from row i of the last pass. */
static void check_step(struct run *r, uint32_t i, uint32_t i_step)
{
    const struct golden_prompt *p = r->prompt;
    const uint32_t n = r->engine.vocab_size, i_row = p->n_ids - 1 + i_step;
    const uint32_t got = golden_argmax(row_of(r, r->rows, i), n);
    struct golden_two want = golden_two_best(row_of(r, r->exact.rows, i), n);
    if (is_own(r, i) && !is_coarse(r->check->options->kv_dtype)) {
        if (want.id != p->greedy[i_step] && p->gaps[i_step] >= r->check->file_gap)
            fail_reference(r, "the CPU's token, not the golden file's", i_row, want.id,
                           p->greedy[i_step]);
        want = (struct golden_two){.id = p->greedy[i_step], .gap = p->gaps[i_step]};
    }
    const double limit = r->is_behind ? greedy_gap_behind : greedy_gap;
    r->is_behind |= want.gap < fmax(greedy_gap, r->undecided);
    if (got == want.id)
        r->n_same++;
    else if (want.gap < limit)
        r->n_close++;
    else if (want.gap < r->undecided)
        tell_exception(r, i_row, want.gap);
    else if (gap_of_rounding(r, i, want.id, got) < limit)
        tell_step(r, i, i_row, &want, got);
    else if (r->n_wrong++ == 0) /* only the first failed step of a prompt is reported */
        fail(r, "a greedy token differs at a gap of", i_row, want.gap, limit);
}

/* Feeds the next n ids to the device and the two CPUs, and compares their rows. */
static void run_piece(struct run *r, const uint32_t *ids, uint32_t n)
{
    const uint32_t first = r->engine.n_done;
    feed(&r->engine, r->rows, ids, n);
    golden_choices_take(r->choices);
    feed(&r->exact.engine, r->exact.rows, ids, n);
    feed(&r->rounding.engine, r->rounding.rows, ids, n);
    r->n_passes++;
    for (uint32_t i = 0; i < n; i++) {
        compare(r, i, first + i);
        if (first + i < r->prompt->n_ids && is_own(r, i) && !is_coarse(r->check->options->kv_dtype))
            check_reference(r, i);
    }
    check_step(r, n - 1, first + n - r->prompt->n_ids);
}

/* ---- a prompt ---- */

static void begin_side(struct side *s)
{
    s->from = (struct distance){.worst = 0};
    golden_engine_begin(&s->engine);
    golden_follower_begin(s->follower);
}

static void end_side(struct run *r, struct side *s, const struct limits *limits, const char *name)
{
    const struct distance *d = &s->from;
    const struct golden_moves *m = golden_follower_moves(s->follower);
    const double mean = sqrt(d->squares / d->n);
    char what[96];
    snprintf(what, sizeof what, "distance of a row from %s, of its spread", name);
    if (!(d->worst <= limits->row))
        fail(r, what, d->worst_row, d->worst, limits->row);
    snprintf(what, sizeof what, "distance of a prompt's rows from %s, the last is", name);
    if (!(mean <= limits->mean))
        fail(r, what, d->n - 1, mean, limits->mean);
    snprintf(what, sizeof what, "experts that the router of %s is too far from", name);
    if (!(m->largest <= router_move))
        fail(r, what, m->first_row, m->largest, router_move);
    golden_widen(&s->worst, d->worst);
    golden_widen(&s->mean, mean);
    golden_widen(&s->largest_move, m->largest);
    s->n_moved += m->n;
}

static void check_ratio(struct run *r)
{
    const double ratio = sqrt(r->rounding.from.squares / r->own_squares);
    golden_widen(&r->worst_ratio, ratio);
    if (!(ratio <= r->as_rounding))
        fail(r, "distance from a CPU that rounds, of that one's from the reference; the last",
             r->rounding.from.n - 1, ratio, r->as_rounding);
}

static void run_prompt(struct run *r, const struct golden_prompt *p)
{
    r->prompt = p;
    r->n_passes = 0;
    r->n_wrong = 0;
    r->own_squares = 0;
    r->is_behind = false;
    golden_engine_begin(&r->engine);
    begin_side(&r->exact);
    begin_side(&r->rounding);
    run_piece(r, p->ids, p->n_ids);
    for (uint32_t i = 0; i + 1 < p->n_greedy; i++)
        run_piece(r, &p->greedy[i], 1);
    end_side(r, &r->exact, &r->bounds->from_reference, "the reference");
    end_side(r, &r->rounding, &r->bounds->from_rounding, "a CPU that rounds");
    check_ratio(r);
    r->n_prompts++;
}

static void tell(const struct run *r, uint64_t began_ns)
{
    const struct side *e = &r->exact, *o = &r->rounding;
    char excess[256];
    golden_excess_text(&r->excess, excess, sizeof excess);
    printf("%s: %u rows of %u prompts, from the reference %.2g (%.2g of a prompt), from a CPU that "
           "rounds %.2g (%.2g, %.2f of its own); ",
           r->check->title, r->n_rows, r->n_prompts, e->worst, e->mean, o->worst, o->mean,
           r->worst_ratio);
    if (r->worst_far > 0)
        printf("where that is %.2g from the reference itself, %.2g; ", r->own_far, r->worst_far);
    if (golden_engine_is_mixture(&r->engine))
        printf("other experts than the reference's %u times, by a move of %.2g, than the other "
               "CPU's %u, by %.2g; %u rows have none of the file; ",
               e->n_moved, e->largest_move, o->n_moved, o->largest_move, r->n_alone);
    printf("%u tokens the same, %u at close steps not, %u by rounding not, ", r->n_same, r->n_close,
           r->n_rounded);
    if (r->undecided > 0)
        printf("%u as the exception of this model (gaps to %g), ", r->n_named, r->undecided);
    printf("%.1f s%s%s\n", (double)(clock_mono_ns() - began_ns) / 1e9,
           r->n_failed ? "; FAILED: " : "", excess);
    fflush(stdout);
}

uint32_t golden_device_run(const struct golden_device_check *check)
{
    struct run r = {.check = check};
    const uint64_t began_ns = clock_mono_ns();
    open_run(&r);
    for (uint32_t i = 0; i < check->want->n_prompts; i++)
        if (is_wanted(check, &check->want->prompts[i]))
            run_prompt(&r, &check->want->prompts[i]);
    tell(&r, began_ns);
    check->excess->n_near += r.excess.n_near;
    check->excess->n_far += r.excess.n_far;
    check->excess->n_other += r.excess.n_other;
    golden_widen(&check->excess->worst, r.excess.worst);
    close_run(&r);
    return r.n_failed;
}
