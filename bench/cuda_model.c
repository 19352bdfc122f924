/* Models of true shapes on a GPU, with dummy weights: what a step takes beside what the device can
 * do in the same run. Ceilings: a copy on the device (bytes read and written), and a product of
 * 8192 x 8192 x 8192 by cuBLASLt. Plans go straight to the executor, two under way, as a head sends
 * them.
 *
 * decode: the bytes that a step must read (weights once; of a mixture the experts that so many rows
 * choose on average; keys and values of every context) by its time, as a part of the copy's rate.
 *
 * prefill: the operations of all products and of attention by their time, as a part of the
 * product's rate.
 *
 * passes: the same decode steps' forward and logits enqueued alone. What a step takes beside them
 * is drawing, results and the host.
 *
 * Usage: cuda_model_bench [FOLDER...] [--tokens 8192] [--context 1024] [--batches 1,64]
 * [--steps 64] [--no-ceilings]. Without a FOLDER: true shapes and
 * the demo model's, of bench/models. The last line has every part that was measured. Exit status 77
 * without a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/model_info.h"
#include "kernels/cuda/cuda_linear.h"
#include "worker/executor_model.h"

enum { BLOCK = 16, MAX_BATCH = 256, MAX_BATCHES = 8, MAX_GROUPS = 8, N_ROUNDS = 5, WARM_STEPS = 8 };
#define COPY_BYTES (1ull << 30)
#define GEMM_SIDE  8192u

enum { MAX_MODELS = 8, SUMMARY_BYTES = 1024 };

struct bench {
    const char *models[MAX_MODELS], *model;
    uint32_t n_models;
    char summary[SUMMARY_BYTES];
    uint32_t n_tokens, context, n_steps, batches[MAX_BATCHES], n_batches;
    bool no_ceilings;
    double copy_rate, gemm_rate; /* bytes, operations per second; 0: not measured */
    struct executor *executor;
    struct engine *engine;
    struct arena arenas[EXECUTOR_MAX_BEGUN];
    uint64_t i_step;
    uint32_t n_begun;
    /* the plan at hand: its arrays stay until it is finished, so there are as many as may be under
     * way */
    struct plan_run runs[EXECUTOR_MAX_BEGUN][MAX_BATCH];
    struct plan_admit admits[EXECUTOR_MAX_BEGUN][MAX_BATCH];
    struct plan_blocks tables[MAX_BATCH][MAX_GROUPS];
    uint32_t *ids, *blocks; /* [n_tokens]; [all blocks] */
};

static void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "cuda_model_bench: %s: %s: %s\n", what, status_name(s), err->text);
    exit(s == STATUS_UNSUPPORTED ? 77 : 1);
}

/* "llama31_8b decode 1 0.87" */
static void add_to_summary(struct bench *b, const char *what, uint32_t n, double part)
{
    size_t used = strlen(b->summary);
    const char *slash = strrchr(b->model, '/');
    if (part > 0)
        snprintf(b->summary + used, sizeof b->summary - used, "%s%s %s %u %.2f",
                 used > 0 ? ", " : "", slash ? slash + 1 : b->model, what, n, part);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2];
}

static double seconds_since(uint64_t begin_ns)
{
    return (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S;
}

/* ---- ceilings ---- */

static double time_copy(struct gpu_stream *s, void *to, void *from)
{
    struct error err = {0};
    uint64_t begin = clock_mono_ns();
    for (int i = 0; i < 8; i++)
        must(gpu_copy_on_device(s, to, from, COPY_BYTES, &err), &err, "copy");
    must(gpu_stream_sync(s, &err), &err, "copy");
    return 8 * 2.0 * (double)COPY_BYTES / seconds_since(begin);
}

static double time_gemm(struct gpu_stream *s, struct gpu_linear *l, const struct gpu_products *p)
{
    struct error err = {0};
    uint64_t begin = clock_mono_ns();
    for (int i = 0; i < 8; i++)
        must(cuda_linear_many(l, p, &err), &err, "product");
    must(gpu_stream_sync(s, &err), &err, "product");
    return 8 * 2.0 * GEMM_SIDE * GEMM_SIDE * GEMM_SIDE / seconds_since(begin);
}

/* Numbers that are not zeros: a product's rate depends on the power that it takes. */
static void fill(struct gpu_stream *s, void *to, uint64_t n_bytes)
{
    struct error err = {0};
    uint16_t *host = mem_array(n_bytes / 2, sizeof *host);
    uint32_t r = 1;
    for (uint64_t i = 0; i < n_bytes / 2; i++) {
        r = r * 1664525 + 1013904223;
        host[i] = (uint16_t)(0x3c00 | (r >> 16 & 0x83ff));
    }
    must(gpu_copy_to_device(s, to, host, n_bytes, &err), &err, "fill");
    must(gpu_stream_sync(s, &err), &err, "fill");
    mem_free(host);
}

static void measure_ceilings(struct bench *b)
{
    struct error err = {0};
    struct gpu_device *d;
    struct gpu_stream *s;
    struct gpu_linear *l;
    struct gpu_info info;
    void *memory[4];
    double copies[N_ROUNDS], gemms[N_ROUNDS];
    const uint64_t bytes[4] = {COPY_BYTES, COPY_BYTES, 2ull * GEMM_SIDE * GEMM_SIDE,
                               GPU_BLAS_WORKSPACE * 4};
    must(gpu_info(0, &info, &err), &err, "device");
    must(gpu_device_open(0, &d, &err), &err, "device");
    must(gpu_stream_new(d, &s, &err), &err, "stream");
    must(gpu_linear_new(s, &info, &l, &err), &err, "products");
    for (int i = 0; i < 4; i++)
        must(gpu_alloc(d, bytes[i], &memory[i], &err), &err, "memory");
    fill(s, memory[0], COPY_BYTES);
    fill(s, memory[2], bytes[2]);
    struct gpu_products p = {.x = {memory[0], GEMM_SIDE},
                             .n_rows = GEMM_SIDE,
                             .n_parts = 1,
                             .parts = {{.out = {memory[1], GEMM_SIDE}}},
                             .scratch = memory[3],
                             .scratch_bytes = bytes[3]};
    if (!gpu_matrix_of(DTYPE_BF16, GEMM_SIDE, GEMM_SIDE, 0, memory[2], &p.parts[0].w))
        must(STATUS_INTERNAL, &err, "no format for bfloat16");
    (void)time_copy(s, memory[1], memory[0]);
    (void)time_gemm(s, l, &p);
    for (int i = 0; i < N_ROUNDS; i++) {
        copies[i] = time_copy(s, memory[1], memory[0]);
        gemms[i] = time_gemm(s, l, &p);
    }
    b->copy_rate = median(copies, N_ROUNDS);
    b->gemm_rate = median(gemms, N_ROUNDS);
    printf("ceilings on %s: copy %.0f GB/s, cuBLASLt %.0f TFLOP/s\n", info.name, b->copy_rate / 1e9,
           b->gemm_rate / 1e12);
    for (int i = 0; i < 4; i++)
        gpu_release(d, memory[i]);
    gpu_linear_free(l);
    gpu_stream_free(s);
    gpu_device_close(d);
}

/* ---- plans ---- */

static void finish_one(struct bench *b)
{
    struct error err = {0};
    struct msg_result result;
    must(b->executor->ops->finish(b->executor, &result, &err), &err, "step");
    b->n_begun--;
}

static void finish_all(struct bench *b)
{
    while (b->n_begun > 0)
        finish_one(b);
}

/* runs and admits of the plan are those of slot `at`. */
static void begin(struct bench *b, uint32_t at, uint32_t n_runs, uint32_t n_admits,
                  struct u32_span finished)
{
    struct error err = {0};
    const struct msg_plan plan = {.step = ++b->i_step,
                                  .admits = b->admits[at],
                                  .n_admits = n_admits,
                                  .runs = b->runs[at],
                                  .n_runs = n_runs,
                                  .finished = finished};
    arena_reset(&b->arenas[at]);
    must(b->executor->ops->begin(b->executor, &plan, &b->arenas[at], &err), &err, "begin");
    b->n_begun++;
}

/* Where the next plan is made: what it replaces has been finished. */
static uint32_t next_place(struct bench *b)
{
    while (b->n_begun == EXECUTOR_MAX_BEGUN)
        finish_one(b);
    return (uint32_t)(b->i_step % EXECUTOR_MAX_BEGUN);
}

static uint32_t n_groups(const struct bench *b)
{
    return b->executor->ops->info(b->executor)->limits.n_kv_groups;
}

/* A sequence of n_ids, with room for n_more. */
static void admit(struct bench *b, uint32_t at, uint32_t i, uint32_t n_ids, uint32_t n_more)
{
    uint32_t n = (n_ids + n_more + BLOCK - 1) / BLOCK;
    b->admits[at][0] = (struct plan_admit){
        .slot = i,
        .n_prompt = n_ids,
        .ids = {b->ids, n_ids},
        .sampling = {.repetition_penalty = 1, .top_p = 1, .max_tokens = n_more, .n_logprobs = -1}};
    for (uint32_t g = 0; g < n_groups(b); g++)
        b->tables[i][g] = (struct plan_blocks){.i_group = g, .ids = {b->blocks + (size_t)i * n, n}};
}

/* The whole prompt of slot i in passes; the last one draws. Returns with everything finished. */
static void prefill(struct bench *b, uint32_t i, uint32_t n_ids, uint32_t n_more)
{
    uint32_t chunk = b->engine->pass_rows;
    for (uint32_t start = 0; start < n_ids; start += chunk) {
        uint32_t at = next_place(b), left = n_ids - start;
        uint32_t n = left < chunk ? left : chunk;
        if (start == 0)
            admit(b, at, i, n_ids, n_more);
        b->runs[at][0] = (struct plan_run){.slot = i,
                                           .blocks = b->tables[i],
                                           .n_blocks = start == 0 ? n_groups(b) : 0,
                                           .start = start,
                                           .n_tokens = n,
                                           .sample = start + n == n_ids};
        begin(b, at, 1, start == 0, (struct u32_span){0});
    }
    finish_all(b);
}

static void decode_step(struct bench *b, uint32_t batch, uint32_t position)
{
    uint32_t at = next_place(b);
    for (uint32_t i = 0; i < batch; i++)
        b->runs[at][i] = (struct plan_run){
            .slot = i, .blocks = b->tables[i], .start = position, .n_tokens = 1, .sample = true};
    begin(b, at, batch, 0, (struct u32_span){0});
}

static void leave_all(struct bench *b)
{
    struct error err = {0};
    finish_all(b);
    must(b->executor->ops->reset(b->executor, &err), &err, "reset");
}

/* ---- what a step must do ---- */

static bool is_expert(const struct program *p, uint32_t i_weight)
{
    for (uint32_t o = 0; o < p->n_ops; o++)
        if (p->ops[o].kind == OP_MOE && i_weight >= p->ops[o].moe.first &&
            i_weight < p->ops[o].moe.first + 3 * p->experts.n)
            return true;
    return false;
}

/* Of a mixture: the part of its experts that n rows choose, each n_chosen of them at random. */
static double part_of_experts(const struct moe_config *m, double n_rows)
{
    double missed = 1;
    for (uint32_t i = 0; i < (uint32_t)n_rows; i++)
        missed *= 1 - (double)m->n_chosen / m->n_experts;
    return 1 - missed;
}

/* Weights read by a step of n_rows, and operations on one row without the head's. */
static void count_weights(const struct bench *b, uint32_t n_rows, double *bytes, double *row_ops)
{
    const struct program *p = b->engine->program;
    const struct moe_config *m = &p->config->moe;
    *bytes = *row_ops = 0;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct op_weight *w = &p->weights[i];
        bool expert = m->n_experts > 0 && is_expert(p, i);
        if (i == p->i_embedding && i != p->i_head)
            continue; /* a row of it for each token */
        *bytes += (double)w->w.n_bytes * (expert ? part_of_experts(m, n_rows) : 1);
        if (i != p->i_head)
            *row_ops +=
                2.0 * w->n_len * w->k_len * (expert ? (double)m->n_chosen / m->n_experts : 1);
    }
}

static double kv_bytes_of_token(const struct bench *b)
{
    double n = 0;
    for (uint32_t g = 0; g < b->engine->program->n_kv_groups; g++)
        n += (double)b->engine->kv_groups[g].bytes_per_block / b->engine->kv_groups[g].block_tokens;
    return n;
}

/* Causal attention over n positions: scores and sums of values. */
static double attention_ops(const struct bench *b, double n)
{
    const struct program *p = b->engine->program;
    const struct kv_cache *kv = kv_store_layer(b->engine->kv, p->layer_begin);
    return p->config->n_layers * 2.0 * p->heads.q.n * (kv->head_dim + kv->v_dim) * n * n / 2;
}

/* ---- measuring ---- */

static void measure_prefill(struct bench *b)
{
    double seconds[N_ROUNDS], bytes, row_ops;
    prefill(b, 0, b->n_tokens, 1);
    leave_all(b);
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t begin_ns = clock_mono_ns();
        prefill(b, 0, b->n_tokens, 1);
        seconds[i] = seconds_since(begin_ns);
        leave_all(b);
    }
    count_weights(b, b->n_tokens, &bytes, &row_ops);
    double ops = row_ops * b->n_tokens + attention_ops(b, b->n_tokens);
    double took = median(seconds, N_ROUNDS);
    printf("prefill %u tokens: %.1f ms, %.0f tokens/s, %.1f TFLOP/s", b->n_tokens, took * 1e3,
           b->n_tokens / took, ops / took / 1e12);
    double part = b->gemm_rate > 0 ? ops / took / b->gemm_rate : 0;
    if (part > 0)
        printf(" = %.2f of cuBLASLt's", part);
    printf("\n");
    add_to_summary(b, "prefill", b->n_tokens, part);
}

/* Forward and logits of decode rows, enqueued one after the other: what the device needs. */
static double time_passes(struct bench *b, uint32_t batch)
{
    struct error err = {0};
    struct executor_model *x = (struct executor_model *)b->executor;
    struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS] = {0};
    uint32_t *ids = mem_array(batch, sizeof *ids), *rows = mem_array(batch, sizeof *rows);
    uint32_t *positions = mem_array(batch, sizeof *positions);
    struct row_batch rb = {.n_rows = batch, .ids = ids, .positions = positions};
    float *logits;
    for (uint32_t g = 0; g < b->engine->program->n_kv_groups; g++) {
        kv_rows[g] = mem_array(batch, sizeof *kv_rows[g]);
        for (uint32_t i = 0; i < batch; i++)
            kv_rows[g][i] =
                (struct kv_row){.blocks = b->tables[i][g].ids.ptr, .position = b->context};
        rb.kv_rows[g] = kv_rows[g];
    }
    for (uint32_t i = 0; i < batch; i++) {
        rows[i] = i;
        positions[i] = b->context;
    }
    uint64_t begin_ns = 0;
    for (uint32_t i = 0; i < WARM_STEPS + b->n_steps; i++) {
        if (i == WARM_STEPS) {
            must(x->engine->device->ops->sync(x->engine->device, &err), &err, "sync");
            begin_ns = clock_mono_ns();
        }
        must(runner_forward(x->engine->runner, &rb, &err), &err, "forward");
        must(runner_logits(x->engine->runner, rows, batch, &logits, &err), &err, "logits");
    }
    must(x->engine->device->ops->sync(x->engine->device, &err), &err, "sync");
    double took = seconds_since(begin_ns) / b->n_steps;
    for (uint32_t g = 0; g < b->engine->program->n_kv_groups; g++)
        mem_free(kv_rows[g]);
    mem_free(ids);
    mem_free(rows);
    mem_free(positions);
    return took;
}

static void measure_decode(struct bench *b, uint32_t batch)
{
    double seconds[N_ROUNDS], weights, row_ops;
    uint32_t more = WARM_STEPS + N_ROUNDS * b->n_steps + 1;
    for (uint32_t i = 0; i < batch; i++)
        prefill(b, i, b->context, more);
    uint32_t position = b->context;
    for (uint32_t i = 0; i < WARM_STEPS; i++)
        decode_step(b, batch, position++);
    finish_all(b);
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t begin_ns = clock_mono_ns();
        for (uint32_t i = 0; i < b->n_steps; i++)
            decode_step(b, batch, position++);
        finish_all(b);
        seconds[round] = seconds_since(begin_ns) / b->n_steps;
    }
    double passes = time_passes(b, batch);
    leave_all(b);
    count_weights(b, batch, &weights, &row_ops);
    double took = median(seconds, N_ROUNDS);
    double kv =
        kv_bytes_of_token(b) * batch * (b->context + WARM_STEPS + N_ROUNDS * b->n_steps / 2.0);
    printf("decode %3u x %u: %.3f ms a step, %.0f tokens/s, reads %.2f GB weights + %.2f GB KV: "
           "%.0f GB/s",
           batch, b->context, took * 1e3, batch / took, weights / 1e9, kv / 1e9,
           (weights + kv) / took / 1e9);
    double part = b->copy_rate > 0 ? (weights + kv) / took / b->copy_rate : 0;
    if (part > 0)
        printf(" = %.2f of a copy's", part);
    printf("; passes alone %.3f ms, beside them %.1f us\n", passes * 1e3, (took - passes) * 1e6);
    fflush(stdout);
    add_to_summary(b, "decode", batch, part);
}

/* ---- the model ---- */

static void open_model(struct bench *b, const char *cache_dir)
{
    struct error err = {0};
    uint32_t most = 1;
    for (uint32_t i = 0; i < b->n_batches; i++)
        most = b->batches[i] > most ? b->batches[i] : most;
    uint32_t length = b->context + WARM_STEPS + N_ROUNDS * b->n_steps + 2;
    length = length > b->n_tokens + 2 ? length : b->n_tokens + 2;
    uint64_t n_blocks =
        (uint64_t)most * ((b->context + WARM_STEPS + N_ROUNDS * b->n_steps) / BLOCK + 2);
    n_blocks = n_blocks > length / BLOCK + 2 ? n_blocks : length / BLOCK + 2;
    const struct worker_options o = {.model = b->model,
                                     .cache_dir = cache_dir,
                                     .device = WORKER_DEVICE_CUDA,
                                     .load_format = WORKER_LOAD_DUMMY,
                                     .block_size = BLOCK,
                                     .gpu = -1,
                                     .gpu_memory_utilization = 0.92,
                                     .num_gpu_blocks_override = (int64_t)n_blocks,
                                     .max_model_len = length,
                                     .tp = 1,
                                     .pp = 1};
    uint64_t begin_ns = clock_mono_ns();
    must(executor_open(&o, &b->executor, &err), &err, "open");
    b->engine = ((struct executor_model *)b->executor)->engine;
    const struct executor_info *info = b->executor->ops->info(b->executor);
    uint32_t counts[MAX_GROUPS];
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n_id = sizeof id;
    for (uint32_t g = 0; g < info->limits.n_kv_groups; g++)
        counts[g] = (uint32_t)n_blocks;
    must(b->executor->ops->make_comm_id(b->executor, id, &n_id, &err), &err, "id");
    const struct executor_comm comm = {.term_epoch = 1,
                                       .tp = 1,
                                       .pp = 1,
                                       .isa_level = info->isa_level,
                                       .n_blocks = {counts, info->limits.n_kv_groups},
                                       .id = {id, n_id}};
    must(b->executor->ops->join_comm(b->executor, &comm, &err), &err, "join");
    b->ids = mem_array(length, sizeof *b->ids);
    b->blocks = mem_array(n_blocks, sizeof *b->blocks);
    for (uint32_t i = 0; i < length; i++)
        b->ids[i] = (i * 7919 + 13) % info->limits.vocab_size;
    for (uint32_t i = 0; i < n_blocks; i++)
        b->blocks[i] = i;
    for (uint32_t i = 0; i < EXECUTOR_MAX_BEGUN; i++)
        arena_init(&b->arenas[i], 0);
    printf("%s: %.2f GB of weights, open in %.2f s\n", b->model, (double)info->weights_bytes / 1e9,
           seconds_since(begin_ns));
}

static bool parse_batches(struct bench *b, const char *value)
{
    for (b->n_batches = 0; *value && b->n_batches < MAX_BATCHES; value += *value == ',') {
        char *end;
        unsigned long n = strtoul(value, &end, 10);
        if (end == value || n == 0 || n > MAX_BATCH)
            return false;
        b->batches[b->n_batches++] = (uint32_t)n;
        value = end;
    }
    return b->n_batches > 0;
}

static bool parse_number(struct bench *b, const char *option, const char *value)
{
    uint32_t *out = strcmp(option, "--tokens") == 0    ? &b->n_tokens
                    : strcmp(option, "--context") == 0 ? &b->context
                    : strcmp(option, "--steps") == 0   ? &b->n_steps
                                                       : NULL;
    unsigned long n = strtoul(value, NULL, 10);
    if (!out || n == 0 || n > 1u << 20)
        return false;
    *out = (uint32_t)n;
    return true;
}

static bool parse(struct bench *b, int argc, char **argv)
{
    b->n_tokens = 8192, b->context = 1024, b->n_steps = 64;
    b->batches[0] = 1, b->batches[1] = 64, b->n_batches = 2;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--no-ceilings") == 0) {
            b->no_ceilings = true;
            continue;
        }
        if (argv[i][0] != '-') {
            if (b->n_models == MAX_MODELS)
                return false;
            b->models[b->n_models++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--batches") == 0 ? !parse_batches(b, value)
                                              : !parse_number(b, argv[i], value))
            return false;
        i++;
    }
    return true;
}

static void run_model(struct bench *b, const char *cache_dir)
{
    struct error err = {0};
    b->i_step = 0;
    open_model(b, cache_dir);
    if (!b->executor->ops->begin)
        must(STATUS_INTERNAL, &err, "this executor has no asynchronous steps");
    for (uint32_t i = 0; i < b->n_batches; i++)
        measure_decode(b, b->batches[i]);
    measure_prefill(b);
    b->executor->ops->close(b->executor);
    for (uint32_t i = 0; i < EXECUTOR_MAX_BEGUN; i++)
        arena_fini(&b->arenas[i]);
    mem_free(b->ids);
    mem_free(b->blocks);
}

int main(int argc, char **argv)
{
    static const char *const shapes[] = {"bench/models/llama31_8b", "bench/models/llama31_8b_awq",
                                         "bench/models/deepseek_coder_v2_lite_awq",
                                         "bench/models/phi3_mini_4k", "bench/models/gemma3_270m"};
    static struct bench b;
    static char cache[4096];
    struct gpu_info info;
    struct error err = {0};
    if (!parse(&b, argc, argv)) {
        fprintf(stderr, "usage: cuda_model_bench [FOLDER...] [--tokens N] [--context N] "
                        "[--batches N,N] [--steps N] [--no-ceilings]\n");
        return 2;
    }
    log_init("bench", LOG_LEVEL_COUNT, LOG_LOGFMT);
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    must(gpu_info(0, &info, &err), &err, "device");
    if (!b.no_ceilings)
        measure_ceilings(&b);
    for (uint32_t i = 0; b.n_models == 0 && i < sizeof shapes / sizeof *shapes; i++)
        b.models[i] = shapes[i];
    for (uint32_t i = 0; i < MAX_MODELS && b.models[i]; i++) {
        b.model = b.models[i];
        run_model(&b, cache);
    }
    printf("of a copy's, of cuBLASLt's rate: %s\n", b.summary[0] ? b.summary : "not measured");
    return 0;
}
