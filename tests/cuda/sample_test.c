/* Tests cuda_sample against worker/sampling/sampler.h: the same id, gap and log-probabilities
 * for the same logits and parameters, with rows of all kinds in one call. The two samplers may
 * differ only by double rounding (the two best scores are closer than GAP) or by top_p's float
 * sums. Ids of the same weight within EDGE of top_p's edge could differ, and these logits avoid
 * them. The test runs on a device and over the emulation.
 *   sample_test          all cases; exit status 0 passed, 1 failures, 77 no device
 *   sample_test --small  the cases that the emulation runs in a second */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/sample/abi.h"
#include "tests/cuda/rig/gpu_open.h"
#include "worker/sampling/sampler.h"

#define GAP           1e-6
#define MAX_ROWS      24u
#define MAX_LIST      64u
#define MAX_HISTORY   96u
#define N_SLOTS       32u
#define LOGIT_SCALE   6.0f
#define BROKEN_VALUES 5u

struct rig {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct rng rng;
    uint32_t vocab_size, stride;
    unsigned n_failures, n_checked;
};

/* `row` is a row for both samplers: the device's parameters, and the host's. */
struct row {
    struct gpu_sample_row device;
    struct sampling_params host;
    struct logit_bias biases[MAX_LIST];
    uint32_t banned[MAX_LIST], allowed[MAX_LIST], ids[MAX_HISTORY], n_ids, n_prompt;
    uint32_t mask_words;
};

/* `batch` holds the arrays of one call. */
struct batch {
    uint32_t n_rows, n_biases, n_allowed, n_mask, n_history;
    struct row rows[MAX_ROWS];
    struct gpu_sample_row device_rows[MAX_ROWS];
    struct gpu_bias biases[MAX_ROWS * 2 * MAX_LIST];
    uint32_t allowed[MAX_ROWS * MAX_LIST], history[MAX_ROWS * MAX_HISTORY], last[N_SLOTS];
    uint32_t *mask; /* `mask` has the shape [MAX_ROWS][words] */
    float *logits;  /* `logits` has the shape [n_rows][stride] */
    struct gpu_sampled out[MAX_ROWS];
    struct gpu_sample_wants wants;
};

static uint32_t below(struct rig *r, uint32_t n)
{
    return random_u32(&r->rng) % n;
}

static bool often(struct rig *r, uint32_t one_in)
{
    return below(r, one_in) == 0;
}

static float next_float(struct rig *r)
{
    return (float)(random_u32(&r->rng) >> 8) * 0x1p-24f;
}

/* Makes roughly normal logits. Some rows have equal logits, NaN and infinities, or only -inf. */
static void make_logits(struct rig *r, float *x, uint32_t kind)
{
    static const float broken[BROKEN_VALUES] = {NAN, INFINITY, -INFINITY, -FLT_MAX, 1e30f};
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++)
            sum += next_float(r) - 0.5f;
        x[i] = sum * LOGIT_SCALE;
        if (kind == 1)
            x[i] = floorf(x[i]); /* the logits have ties everywhere */
        if (kind == 2 && often(r, 50))
            x[i] = broken[below(r, BROKEN_VALUES)];
        if (kind == 3)
            x[i] = -INFINITY;
        if (kind == 4)
            x[i] *= 20.0f; /* the logits are far apart, beyond the bins of distances */
    }
}

static void give_biases(struct rig *r, struct batch *b, struct row *row)
{
    uint32_t n = 1 + below(r, MAX_LIST), n_banned = below(r, 4);
    row->device.first_bias = b->n_biases;
    for (uint32_t i = 0; i < n; i++) { /* all ids in a list differ, as in the host's lists */
        uint32_t id = (i * 37 + below(r, 37)) % (37 * MAX_LIST);
        float value = (next_float(r) - 0.5f) * 10.0f;
        row->biases[i] = (struct logit_bias){id, value};
        b->biases[b->n_biases++] = (struct gpu_bias){id, value};
    }
    row->host.logit_bias = row->biases;
    row->host.n_logit_bias = n;
    for (uint32_t i = 0; i < n_banned; i++) {
        row->banned[i] = 37 * MAX_LIST + i;
        b->biases[b->n_biases++] = (struct gpu_bias){row->banned[i], -INFINITY};
    }
    row->host.stop_ids = (struct u32_span){row->banned, n_banned};
    row->host.min_tokens = 1000;
    row->device.n_biases = b->n_biases - row->device.first_bias;
}

/* Adds to the row a list of allowed ids, or the same ids as a mask. */
static void give_allowed(struct rig *r, struct batch *b, struct row *row)
{
    uint32_t n = 1 + below(r, MAX_LIST), words = (r->vocab_size + 31) / 32;
    for (uint32_t i = 0; i < n; i++)
        row->allowed[i] = below(r, r->vocab_size + 2);
    row->host.allowed_ids = (struct u32_span){row->allowed, n};
    if (often(r, 2)) {
        row->device.first_allowed = b->n_allowed;
        row->device.n_allowed = n;
        memcpy(b->allowed + b->n_allowed, row->allowed, n * sizeof *row->allowed);
        b->n_allowed += n;
        return;
    }
    row->device.first_mask = b->n_mask;
    for (uint32_t i = 0; i < n; i++)
        if (row->allowed[i] < r->vocab_size)
            b->mask[b->n_mask + row->allowed[i] / 32] |= 1u << row->allowed[i] % 32;
    b->n_mask += words;
}

static void give_penalties(struct rig *r, struct batch *b, struct row *row)
{
    struct gpu_sample_row *d = &row->device;
    d->repetition = row->host.repetition_penalty = often(r, 2) ? 1.0f : 0.5f + next_float(r);
    d->frequency = row->host.frequency_penalty = next_float(r);
    d->presence = row->host.presence_penalty = next_float(r) - 0.5f;
    d->first_history = b->n_history;
    d->n_history = row->n_ids;
    d->n_prompt = row->n_prompt;
    if (row->n_ids > row->n_prompt && often(r, 2)) { /* only the device knows the newest id */
        d->last_is_output = true;
        d->n_history--;
        b->last[d->slot] = row->ids[row->n_ids - 1];
    }
    memcpy(b->history + b->n_history, row->ids, d->n_history * sizeof *row->ids);
    b->n_history += d->n_history;
}

static void make_row(struct rig *r, struct batch *b, uint32_t i)
{
    struct row *row = &b->rows[i];
    *row = (struct row){.n_ids = 1 + below(r, MAX_HISTORY)};
    row->n_prompt = 1 + below(r, row->n_ids);
    for (uint32_t j = 0; j < row->n_ids; j++)
        row->ids[j] = below(r, often(r, 2) ? 9 : r->vocab_size + 2);
    row->host = (struct sampling_params){.top_p = 1,
                                         .repetition_penalty = 1,
                                         .seed = ((uint64_t)random_u32(&r->rng) << 32) +
                                                 random_u32(&r->rng),
                                         .i_prompt = below(r, 4),
                                         .i_choice = below(r, 4),
                                         .n_logprobs = -1};
    row->device = (struct gpu_sample_row){.seed = row->host.seed,
                                          .i_prompt = row->host.i_prompt,
                                          .i_choice = row->host.i_choice,
                                          .logits_row = i,
                                          .slot = i,
                                          .n_ids = row->n_ids,
                                          .top_p = 1,
                                          .repetition = 1,
                                          .n_logprobs = -1,
                                          .first_mask = UINT32_MAX};
    if (!often(r, 4))
        row->device.temperature = row->host.temperature =
            often(r, 4) ? 0.05f : 0.3f + 2 * next_float(r);
    if (often(r, 3))
        row->device.top_k = (uint32_t)(row->host.top_k = 1 + (int32_t)below(r, 80));
    if (often(r, 3))
        row->device.top_p = row->host.top_p = next_float(r);
    if (often(r, 4))
        row->device.min_p = row->host.min_p = next_float(r) * next_float(r);
    if (often(r, 3))
        row->device.n_logprobs = row->host.n_logprobs = (int32_t)below(r, 21);
    if (often(r, 4))
        give_biases(r, b, row);
    if (often(r, 5))
        give_allowed(r, b, row);
    if (often(r, 3))
        give_penalties(r, b, row);
    b->device_rows[i] = row->device;
    b->wants.changes |= row->device.n_biases > 0 || row->device.n_allowed > 0 ||
                        row->device.first_mask != UINT32_MAX || row->device.repetition != 1 ||
                        row->device.frequency != 0 || row->device.presence != 0;
    b->wants.filters |= row->device.top_k > 0 || row->device.top_p < 1 || row->device.min_p > 0;
    b->wants.draws |= row->device.temperature > 0;
    b->wants.logprobs |= row->device.n_logprobs >= 0;
}

/* ---- both samplers ---- */

static void *device_array(struct rig *r, const void *host, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(r->device, n_bytes ? n_bytes : 4, &ptr, &err), &err, "alloc");
    if (host && n_bytes > 0)
        must(gpu_copy_to_device(r->stream, ptr, host, n_bytes, &err), &err, "copy");
    return ptr;
}

static void run_device(struct rig *r, struct batch *b)
{
    struct error err = {0};
    uint64_t scratch = cuda_sample_scratch_bytes(b->n_rows, r->vocab_size);
    struct gpu_sample_params p = {
        .logits = device_array(r, b->logits, (uint64_t)b->n_rows * r->stride * sizeof(float)),
        .stride = r->stride,
        .vocab_size = r->vocab_size,
        .n_rows = b->n_rows,
        .wants = b->wants,
        .rows = device_array(r, b->device_rows, b->n_rows * sizeof *b->device_rows),
        .biases = device_array(r, b->biases, b->n_biases * sizeof *b->biases),
        .allowed = device_array(r, b->allowed, b->n_allowed * sizeof *b->allowed),
        .mask = device_array(r, b->mask, b->n_mask * sizeof *b->mask),
        .history = device_array(r, b->history, b->n_history * sizeof *b->history),
        .last = device_array(r, b->last, sizeof b->last),
        .out = device_array(r, NULL, sizeof b->out),
        .scratch = device_array(r, NULL, scratch),
        .scratch_bytes = scratch,
    };
    must(cuda_sample(r->stream, &p, &err), &err, "cuda_sample");
    must(gpu_copy_from_device(r->stream, b->out, p.out, sizeof b->out, &err), &err, "copy back");
    must(gpu_copy_from_device(r->stream, b->last, p.last, sizeof b->last, &err), &err, "copy back");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    const void *all[] = {p.logits,  p.rows, p.biases, p.allowed, p.mask,
                         p.history, p.last, p.out,    p.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_release(r->device, (void *)(uintptr_t)all[i]);
}

static void fail(struct rig *r, const struct row *row, uint32_t i, const char *what, double got,
                 double want)
{
    const struct gpu_sample_row *d = &row->device;
    if (r->n_failures++ < 20)
        fprintf(stderr,
                "vocab %u row %u (T %g top_k %u top_p %g min_p %g biases %u allowed %u mask %d "
                "repetition %g history %u+%d): %s %.9g, the host's %.9g\n",
                r->vocab_size, i, (double)d->temperature, d->top_k, (double)d->top_p,
                (double)d->min_p, d->n_biases, d->n_allowed, d->first_mask != UINT32_MAX,
                (double)d->repetition, d->n_history, d->last_is_output, what, got, want);
}

static bool close_to(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-5 * fmax(1.0, fabs(b));
}

static void compare(struct rig *r, const struct batch *b, uint32_t i,
                    const struct sampler_choice *want, const struct logprob_row *rows)
{
    const struct gpu_sampled *got = &b->out[i];
    const struct row *row = &b->rows[i];
    r->n_checked++;
    if (got->id != want->id && (double)want->gap > GAP)
        fail(r, row, i, "id", got->id, want->id);
    if (got->id != want->id)
        return;
    if (!close_to((double)got->gap, (double)want->gap))
        fail(r, row, i, "gap", (double)got->gap, (double)want->gap);
    if (b->last[row->device.slot] != got->id)
        fail(r, row, i, "last", b->last[row->device.slot], got->id);
    if (row->device.n_logprobs < 0)
        return;
    /* if the best logit is infinite, the host's rank is off by one */
    if (got->rank != rows->chosen_rank && got->best < FLT_MAX)
        fail(r, row, i, "rank", got->rank, rows->chosen_rank);
    if (!close_to((double)got->logprob, (double)rows->values.ptr[0]))
        fail(r, row, i, "log-probability", (double)got->logprob, (double)rows->values.ptr[0]);
    for (uint32_t k = 0; k < got->n_top; k++)
        if (got->top_ids[k] != rows->ids.ptr[k + 1] ||
            !close_to((double)got->top_logprobs[k], (double)rows->values.ptr[k + 1]))
            fail(r, row, i, "top", got->top_ids[k], rows->ids.ptr[k + 1]);
    /* the host fills its list up with ids that have no probability */
    uint32_t missing = got->n_top;
    for (; missing + 1 < rows->ids.n; missing++)
        if (rows->values.ptr[missing + 1] != -FLT_MAX)
            fail(r, row, i, "n_top", got->n_top, rows->ids.n - 1);
}

/* Computes the row's maximum and sum, as a backend's logits_top and sum_exp do. */
static void look_at(const struct rig *r, struct sampler_row *row)
{
    row->best = row->second = -INFINITY;
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        float v = row->logits[i];
        if (v > row->best) {
            row->second = row->best;
            row->best = v;
            row->best_id = i;
        } else if (v > row->second) {
            row->second = v;
        }
    }
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        float v = row->logits[i], best = fminf(row->best, FLT_MAX);
        row->sum_exp += isnan(v) ? 0.0 : exp((double)fminf(v, FLT_MAX) - (double)best);
    }
}

static void run_host(struct rig *r, struct batch *b)
{
    struct error err = {0};
    struct sampler *s = sampler_new(r->vocab_size);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        struct arena arena;
        struct sampler_choice want;
        struct logprob_row rows = {0};
        struct sampler_row row = {.params = &b->rows[i].host,
                                  .ids = b->rows[i].ids,
                                  .n_ids = b->rows[i].n_ids,
                                  .n_prompt = b->rows[i].n_prompt,
                                  .logits = b->logits + (size_t)i * r->stride};
        arena_init(&arena, 1 << 20);
        look_at(r, &row);
        must(sampler_choose(s, &row, &arena, &want, &rows, &err), &err, "sampler_choose");
        compare(r, b, i, &want, &rows);
        arena_fini(&arena);
    }
    sampler_free(s);
}

static void run(struct rig *r, uint32_t vocab_size, uint32_t n_rows, uint32_t kind)
{
    struct batch *b = mem_zalloc(sizeof *b);
    r->vocab_size = vocab_size;
    r->stride = vocab_size + below(r, 9);
    b->n_rows = n_rows;
    b->mask = mem_array((uint64_t)n_rows * ((vocab_size + 31) / 32), sizeof *b->mask);
    b->logits = mem_array((uint64_t)n_rows * r->stride, sizeof *b->logits);
    for (uint32_t i = 0; i < n_rows; i++) {
        make_row(r, b, i);
        make_logits(r, b->logits + (size_t)i * r->stride, kind < 5 ? kind : below(r, 5));
    }
    run_device(r, b);
    run_host(r, b); /* the host's sampler changes the logits */
    mem_free(b->mask);
    mem_free(b->logits);
    mem_free(b);
}

int main(int argc, char **argv)
{
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    struct rig r = {.rng = {.state = 88172645463325252ull}};
    struct gpu_info info;
    if (gpu_open(&r.device, &r.stream, &info) != 0)
        return 77;
    static const uint32_t sizes[] = {1, 2, 5, 63, 64, 257, 1000, 4099};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t kind = 0; kind < 6; kind++)
            run(&r, sizes[i], 1 + below(&r, MAX_ROWS), kind);
    for (uint32_t i = 0; i < (small ? 0 : 60); i++)
        run(&r, 20000 + below(&r, 240000), 1 + below(&r, MAX_ROWS), i % 6);
    gpu_close(r.device, r.stream);
    printf("sample: %u rows checked, %u failures\n", r.n_checked, r.n_failures);
    return r.n_failures == 0 && r.n_checked > 0 ? 0 : 1;
}
