/* Tests MLA's attention (`latent` of kernels/ops.h) in both of its forms against the CPU
 * backend, which runs the five absorbed operators. Sequences have computed positions before
 * their rows, like chunks of a prompt and hits of the prefix cache. Passes mix prompts and
 * decode rows. Each case runs in three ways:
 *   never expanded    the bounds hold for the absorbed form;
 *   as chosen         the runs that the rule takes are expanded;
 *   always expanded   with the scratch that a worker has, and with so little that heads are
 *                     processed in turns and keys in chunks.
 * Each of these runs twice. First the scores differ, so that a wrong score changes the result.
 * Then the scores are nearly equal, and keys at the edges of blocks, units, chunks and sequences
 * are 16 times as large as other keys. One key too many or too few therefore changes the result.
 * On the emulation, the launched products are counted and compared with the formula.
 *   latent_test [--small]   exit status 0 passed, 1 failures, 77 no device */
#include "kernels/cuda/attention/abi.h"
#include "kernels/cuda/attention/expansion.h"
#include "kernels/cuda/linear/abi.h"
#include "tests/cuda/emulate/faults.h"
#include "tests/cuda/rig/latent_rig.h"
#include "tests/cuda/rig/needs_device.h"

#pragma weak emulate_n_operations
#pragma weak emulate_n_launches

/* MOST_OFF and MOST_ROW_OFF are error bounds, as fractions of the results' root mean square:
 * MOST_OFF for all rows of a case together, MOST_ROW_OFF for one row. Weights in codes are
 * rounded to bfloat16 when they are expanded; a cache of codes is rounded equally on both sides. */
#define MOST_OFF     0.012
#define MOST_ROW_OFF 0.03

/* MOST_BESIDE is the bound of the extra work. Rows between two expanded sequences are separate
 * products, padded to 8. One row that is expanded by mistake costs a tile of 128 rows, several
 * times as much. */
#define MOST_BESIDE 0.02

#define B16 DTYPE_BF16
static const struct latent_case small_cases[] = {
    {"a prompt", 2, 512, 128, 64, 128, B16, B16, B16, 16, 1, {{0, 140}}},
    {"a chunk behind another", 3, 64, 24, 16, 20, B16, B16, B16, 16, 1, {{96, 257}}},
    {"too few rows behind a context", 1, 512, 128, 64, 128, B16, B16, B16, 16, 0, {{600, 130}}},
    {"prompts and decode",
     5,
     40,
     16,
     8,
     24,
     B16,
     B16,
     B16,
     8,
     2,
     {{33, 1}, {0, 129}, {70, 1}, {31, 80}, {17, 150}, {50, 3}}},
    {"a cache of fp8, weights of 8 bits",
     3,
     64,
     32,
     8,
     16,
     DTYPE_Q8_0,
     DTYPE_FP8,
     DTYPE_F8_E4M3,
     16,
     2,
     {{0, 128}, {40, 131}}},
    {"a cache of int8, weights of 4 bits",
     1,
     256,
     32,
     64,
     128,
     DTYPE_Q4_0,
     DTYPE_Q4_K,
     DTYPE_I8,
     20,
     1,
     {{21, 133}, {64, 1}}},
    {"a few rows behind a long context", 3, 64, 24, 16, 20, B16, B16, B16, 16, 0, {{1000, 40}}},
    {"the same of fp8",
     2,
     128,
     32,
     16,
     32,
     DTYPE_FP8,
     DTYPE_FP8,
     DTYPE_F8_E4M3,
     16,
     0,
     {{900, 33}, {700, 1}}},
    {"more keys than are gathered at once", 1, 32, 16, 8, 16, B16, B16, B16, 16, 1, {{8200, 140}}},
    {"a cache of float16",
     2,
     64,
     64,
     32,
     18,
     DTYPE_INT8,
     DTYPE_MXFP4,
     DTYPE_F16,
     16,
     1,
     {{5, 160}}},
    {"latents as short as a key and a value", 2, 40, 64, 32, 16, B16, B16, B16, 16, 0, {{0, 160}}},
};
static const struct latent_case large_cases[] = {
    {"DeepSeek-V2-Lite", 16, 512, 128, 64, 128, B16, B16, B16, 16, 1, {{0, 4096}}},
    {"DeepSeek-V2-Lite, a last chunk",
     16,
     512,
     128,
     64,
     128,
     B16,
     B16,
     DTYPE_F8_E4M3,
     16,
     2,
     {{7000, 1192}, {3000, 1}, {0, 700}}},
    {"DeepSeek-V3, all heads",
     128,
     512,
     128,
     64,
     128,
     DTYPE_FP8,
     DTYPE_FP8,
     B16,
     16,
     1,
     {{500, 900}}},
};

static unsigned n_cases, n_chunked, n_recorded;
static double worst;

/* ---- on the device ---- */

static void compare(const struct scene *s, const uint16_t *out, const char *how)
{
    const struct latent_case *c = s->c;
    const uint32_t width = c->n_heads * c->v;
    double all = 0;
    for (uint32_t row = 0; row < s->n_rows; row++) {
        const float *want = s->want + (uint64_t)row * width;
        double off = 0;
        for (uint32_t i = 0; i < width; i++) {
            const double d = (double)from_bf16(out[(uint64_t)row * width + i]) - (double)want[i];
            off += d * d;
        }
        off = sqrt(off / width) / deviation(want, width);
        all += off * off;
        if (!(off <= MOST_ROW_OFF)) {
            printf("%s, row %u at %u: ", how, row, s->rows[row].position);
            failed(c, s->spikes ? "a row, spikes" : "a row", off, MOST_ROW_OFF);
            return;
        }
    }
    all = sqrt(all / s->n_rows);
    worst = all > worst ? all : worst;
    if (!(all <= MOST_OFF)) {
        printf("%s: ", how);
        failed(c, s->spikes ? "all rows, spikes" : "all rows", all, MOST_OFF);
    }
}

/* `counted` holds the numbers that the emulation counts for one operator: operations of
 * products, and kernels. */
struct counted {
    unsigned long long operations, kernels;
};

static struct counted counted_now(void)
{
    struct counted n = {0};
    if (emulate_n_operations)
        n = (struct counted){emulate_n_operations(), emulate_n_launches()};
    return n;
}

/* Runs the pass on the device. scratch_bytes 0 means as much as a worker has. `key` is the key
 * of a pass that may be recorded, or 0. */
static struct counted run_gpu(struct scene *s, struct device *gpu, uint64_t scratch_bytes,
                              uint64_t key, const char *how)
{
    const struct latent_case *c = s->c;
    const struct ops *ops = gpu->ops;
    const uint64_t n = s->n_rows, heads = c->n_heads;
    const struct scratch_shape shape = {.n_rows = s->n_rows,
                                        .n_heads = c->n_heads,
                                        .n_kv_heads = 1,
                                        .head_dim = latent_dim(c),
                                        .v_dim = c->kv_rank,
                                        .is_latent = true,
                                        .head_nope = c->nope,
                                        .head_v = c->v,
                                        .max_len = s->n_all,
                                        .most_weight_elements = 1024};
    if (scratch_bytes == 0)
        scratch_bytes = ops->memory.scratch_bytes(gpu, &shape);
    float *latents = pass_latents(s);
    uint16_t *q = narrow(s->q, n * q_width(c)), *k = narrow(latents, n * latent_dim(c));
    uint16_t *out = mem_array(n * heads * c->v, sizeof *out);
    memset(out, 0xff, n * heads * c->v * sizeof *out);
    const uint64_t sizes[] = {n * q_width(c) * 2,    n * heads * latent_dim(c) * 2,
                              n * latent_dim(c) * 2, n * heads * c->kv_rank * 2,
                              n * heads * c->v * 2,  scratch_bytes};
    void *rooms[6];
    const void *const host[6] = {q, NULL, k, NULL, out, NULL};
    for (int i = 0; i < 6; i++)
        rooms[i] = gpu_new(gpu, host[i], sizes[i]);
    ops->memory.write(gpu, s->kv[CUDA].k, s->kv[CPU].k, s->cache_bytes);
    struct latent_params p = params_of(s, CUDA);
    views_set(&p, rooms[0], rooms[1], rooms[2], rooms[3], rooms[4], 2);
    ops->pass.begin(gpu);
    ops->memory.use_scratch(gpu, rooms[5], scratch_bytes);
    p.attention.rows = p.write.rows =
        ops->pass.upload_rows(gpu, s->rows, s->n_rows, c->block_tokens);
    const struct counted before = counted_now();
    struct error err = {0};
    if (key && ops->recording.begin(gpu, key, true, &err) != RECORD_NONE)
        failed(c, "the first pass of a key is enqueued as it is", 1, 0);
    ops->math.latent(gpu, &p);
    must(ops->memory.read(gpu, out, rooms[4], sizes[4], &err), &err, how);
    const struct counted after = counted_now();
    compare(s, out, how);
    for (int i = 0; i < 6; i++)
        ops->memory.release(gpu, rooms[i], sizes[i]);
    mem_free(latents);
    mem_free(q);
    mem_free(k);
    mem_free(out);
    n_cases++;
    return (struct counted){after.operations - before.operations, after.kernels - before.kernels};
}

/* ---- counted operations ---- */

/* Returns whether the formula of kernels/cuda/backend/latent.c chooses expansion. Only sequences
 * with at least a tile's rows can be chosen. */
static bool is_chosen(const struct latent_case *c, const struct sequence *s)
{
    const int64_t head = c->nope + (c->v + 7) / 8 * 8, gain = 2 * (int64_t)c->kv_rank - head;
    const int64_t n = s->n, before = s->before, pairs = n * before + n * (n + 1) / 2;
    return n >= 128 && gain > 0 && before * c->kv_rank * head <= pairs * gain;
}

/* Returns the products of the expanded form, for runs whose heads are one turn. Each tile has
 * 128 rows (a head of 192 dimensions and a value of 128) with whole units of 32 keys up to the
 * last unit that its rows see. The expansion of the latents is added. */
static unsigned long long expanded_operations(const struct latent_case *c)
{
    const uint32_t value = (c->v + 7) / 8 * 8;
    unsigned long long n = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++) {
        const struct sequence *s = &c->sequences[i];
        for (uint32_t row = 0; row < s->n; row += 128) {
            const uint32_t rows = s->n - row < 128 ? s->n - row : 128;
            const uint32_t keys = (s->before + row + rows + 31) / 32 * 32;
            n += 2ull * c->n_heads * 128 * keys * (192 + 128);
        }
        n += 2ull * c->n_heads * (s->before + s->n) * c->kv_rank * (c->nope + value);
    }
    return n;
}

/* ---- cases ---- */

/* Returns the scratch with which a turn has n_keys keys of one head and space for n_parts parts. */
static uint64_t tight_bytes(const struct scene *s, uint32_t n_keys, uint32_t n_parts)
{
    const struct latent_case *c = s->c;
    const struct cuda_latent_shape shape = {c->n_heads, c->kv_rank, c->nope, c->rope, c->v};
    const uint64_t head = cuda_latent_head(&shape), unit = 256;
    const uint64_t parts[] = {c->n_heads * head * c->kv_rank * 2, (uint64_t)n_keys * c->kv_rank * 2,
                              (uint64_t)n_keys * c->rope * 2, n_keys * head * 2,
                              cuda_latent_parts_bytes(&shape, (uint64_t)s->n_rows * n_parts)};
    uint64_t n = GPU_BLAS_WORKSPACE;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        n += (parts[i] + unit - 1) / unit * unit;
    return n;
}

static uint32_t longest(const struct latent_case *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        most = c->sequences[i].before + c->sequences[i].n > most
                   ? c->sequences[i].before + c->sequences[i].n
                   : most;
    return most;
}

enum { NEVER, CHOSEN, ALWAYS, N_DEVICES };

/* Returns a case with the sequences of c that are chosen, or with the others. */
static struct latent_case part_of(const struct latent_case *c, bool chosen)
{
    struct latent_case part = *c;
    uint32_t n = 0;
    memset(part.sequences, 0, sizeof part.sequences);
    for (uint32_t i = 0; i < MAX_SEQUENCES; i++)
        if (c->sequences[i].n > 0 && is_chosen(c, &c->sequences[i]) == chosen)
            part.sequences[n++] = c->sequences[i];
    return part;
}

/* Checks the counts. n has the counts of the whole case. `others` is the number of operations of
 * the sequences that are not chosen, alone and absorbed. */
static void check_counts(const struct latent_case *c, const struct counted *n,
                         unsigned long long others)
{
    const struct latent_case chosen = part_of(c, true);
    const unsigned long long want = expanded_operations(c);
    uint32_t n_chosen = 0;
    while (n_chosen < MAX_SEQUENCES && chosen.sequences[n_chosen].n > 0)
        n_chosen++;
    if (n_chosen != c->n_chosen)
        failed(c, "sequences that are chosen", n_chosen, c->n_chosen);
    if (n[ALWAYS].operations != want)
        failed(c, "operations, always expanded", (double)n[ALWAYS].operations, (double)want);
    const double mixed = (double)(expanded_operations(&chosen) + others);
    if (fabs((double)n[CHOSEN].operations - mixed) > (others > 0 ? MOST_BESIDE * mixed : 0))
        failed(c, "operations, as chosen", (double)n[CHOSEN].operations, mixed);
    if (n_chosen == 0 && n[CHOSEN].operations != n[NEVER].operations)
        failed(c, "operations of what ought to be absorbed", (double)n[CHOSEN].operations,
               (double)n[NEVER].operations);
}

/* Returns the operations of the sequences that are not chosen, in a separate pass. Passes of up
 * to 64 rows use other tiles, so such sequences have either one row each or more than 64 rows
 * together. */
static unsigned long long run_others(const struct latent_case *c, bool spikes, struct device *cpu,
                                     struct device *never)
{
    const struct latent_case others = part_of(c, false);
    struct counted n = {0};
    struct scene s;
    if (others.sequences[0].n == 0)
        return 0;
    scene_open(&s, &others, spikes, cpu, never);
    n = run_gpu(&s, never, 0, 0, "those that are not chosen");
    scene_close(&s, never);
    return n.operations;
}

/* Runs with as little scratch as possible. First there is a turn for each head. Then there are a
 * few chunks of one sequence's keys, if that takes less scratch than all keys at once. */
static void run_tight(struct scene *s, struct device *gpu)
{
    const uint32_t keys = longest(s->c), each = (keys / 3 + 32) / 32 * 32;
    const uint64_t turns = tight_bytes(s, keys, 0), chunks = tight_bytes(s, each, 3);
    if (s->c->n_heads > 1)
        (void)run_gpu(s, gpu, turns, 0, "a head a turn");
    if (chunks >= turns)
        return;
    (void)run_gpu(s, gpu, chunks, 0, "keys in chunks");
    n_chunked++;
}

/* Runs the case on a device that always expands: with less scratch, with more scratch, and
 * recorded. */
static void run_always(struct scene *s, struct device *d, const struct counted *own,
                       const struct counted *never)
{
    const struct latent_case *c = s->c;
    run_tight(s, d);
    if (!emulate_n_operations)
        return;
    const uint64_t plenty = (uint64_t)256 << 20;
    if (run_gpu(s, d, plenty, 0, "with more scratch").kernels != own->kernels)
        failed(c, "other launches with more scratch: a worker's is too small", 1, 0);
    if (run_gpu(s, d, 0, ++n_recorded, "may be recorded").operations != never->operations)
        failed(c, "a pass that may be recorded was expanded", 1, 0);
}

static void run_case(const struct latent_case *c, struct device *cpu, struct device *const *devices)
{
    for (int spikes = 0; spikes < 2; spikes++) {
        struct counted n[N_DEVICES];
        for (int d = 0; d < N_DEVICES; d++) {
            struct scene s;
            const char *const how[] = {"never", "as chosen", "always"};
            scene_open(&s, c, spikes, cpu, devices[d]);
            n[d] = run_gpu(&s, devices[d], 0, 0, how[d]);
            if (d == ALWAYS)
                run_always(&s, devices[d], &n[d], &n[NEVER]);
            scene_close(&s, devices[d]);
        }
        if (emulate_n_operations)
            check_counts(c, n, run_others(c, spikes, cpu, devices[NEVER]));
    }
}

/* Every row must be in exactly one run of the rule or one tile of the other rows. No tile may
 * have a row of a run. */
static void check_beside(void)
{
    static const uint32_t tables[6][1];
    const struct latent_case c = {.name = "rows beside runs"};
    struct kv_row rows[900];
    struct gpu_tile tiles[900];
    struct gpu_run runs[900];
    for (uint32_t i_case = 0; i_case < 60; i_case++) {
        const struct gpu_run_rule rule = {1 + random_u32(&rng) % 200, random_u32(&rng) % 200, 1};
        uint32_t n_rows = 0, n_want = 0, seen = 0;
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t n = 1 + random_u32(&rng) % (i % 2 ? 3 : 260);
            const uint64_t position = random_u32(&rng) % 300,
                           pairs = n * position + n * (n + 1) / 2;
            const bool is_padding = random_u32(&rng) % 8 == 0;
            n_want += !is_padding && n >= rule.least_rows && position * rule.of_key <= pairs;
            for (uint32_t k = 0; k < n; k++)
                rows[n_rows++] = (struct kv_row){tables[i], 0,
                                                 is_padding ? KV_ROW_NONE : (uint32_t)position + k};
        }
        const uint32_t n_runs = gpu_runs_find(rows, n_rows, &rule, runs);
        const struct gpu_tile_counts n = gpu_tiles_find_beside(rows, n_rows, runs, n_runs, tiles);
        bool taken[900] = {false};
        if (n_runs != n_want)
            failed(&c, "runs", n_runs, n_want);
        for (uint32_t i = 0; i < n_runs; i++)
            for (uint32_t k = 0; k < runs[i].n_rows; k++) {
                seen += !taken[runs[i].first_row + k];
                taken[runs[i].first_row + k] = true;
            }
        for (uint32_t i = 0; i < n.n_few + n.n_many_tiles; i++) {
            const bool many = i >= n.n_few;
            for (uint32_t k = 0; k < (many ? tiles[i].n_rows : 1); k++) {
                const uint32_t row = tiles[i].first_row + (many ? k : tiles[i].part);
                if (taken[row])
                    failed(&c, "a row that is in two places", row, 0);
                seen += !taken[row];
                taken[row] = true;
            }
        }
        if (seen != n_rows)
            failed(&c, "rows in runs and tiles", seen, n_rows);
    }
}

int main(int argc, char **argv)
{
    const bool is_small = argc > 1 && strcmp(argv[1], "--small") == 0;
    static const uint32_t expand_rows[] = {[NEVER] = UINT32_MAX, [CHOSEN] = 0, [ALWAYS] = 1};
    struct device *cpu, *devices[N_DEVICES];
    struct error err = {0};
    needs_device();
    must(cpu_device_open(&(struct cpu_device_options){.n_threads = 2, .isa_level = -1}, &cpu, &err),
         &err, "CPU");
    for (int d = 0; d < N_DEVICES; d++)
        must(cuda_device_open(&(struct cuda_device_options){.utilization = 0.3,
                                                            .n_threads = 1,
                                                            .staging_bytes = 4 << 20,
                                                            .expand_rows = expand_rows[d]},
                              &devices[d], &err),
             &err, "device");
    check_beside();
    for (size_t i = 0; i < sizeof small_cases / sizeof *small_cases; i++)
        run_case(&small_cases[i], cpu, devices);
    for (size_t i = 0; i < sizeof large_cases / sizeof *large_cases && !is_small; i++)
        run_case(&large_cases[i], cpu, devices);
    for (int d = 0; d < N_DEVICES; d++)
        devices[d]->ops->close(devices[d]);
    cpu->ops->close(cpu);
    if (n_chunked < 4)
        failed(&small_cases[0], "cases whose keys came in chunks", n_chunked, 4);
    printf("latent_test: %u cases, rows off by %.4f at most, %u failures\n", n_cases, worst,
           n_failures);
    return n_failures > 0;
}
