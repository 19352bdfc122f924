/* Tests a decode step as it is recorded: passes whose rows have adapters, in any mix, and logits
 * with their sampling. Adapters are loaded and replaced between steps. A replay must have the
 * same bits as its operators run one by one. On the emulation the test also checks the amount of
 * work that the host enqueues, and refuses each call of a recording once. Exit status 0 passed,
 * 1 failures, 77 no device. --small runs the same cases. */
#include "kernels/cuda/backend/sampler.h"
#include "tests/cuda/emulate/faults.h"
#include "tests/cuda/rig/runner_rig.h"
#include "worker/runner/logits.h"
#include "worker/runner/record.h"

/* Builds for a real device do not have these functions. */
#pragma weak emulate_refuse_capture
#pragma weak emulate_n_enqueued

enum { MAX_LORAS = 2, N_SLOTS = 16, MOST_DRAWS = 80, LOGITS = MOST_SEQUENCES * TINY_VOCAB };

/* ---- adapters ---- */

struct module {
    const char *name;
    uint32_t n, k;
};
static const struct module attention[] = {{"self_attn.q_proj", 32, TINY_HIDDEN},
                                          {"self_attn.k_proj", 16, TINY_HIDDEN},
                                          {"self_attn.v_proj", 16, TINY_HIDDEN}};
static const struct module mlp[] = {{"mlp.gate_proj", 64, TINY_HIDDEN},
                                    {"mlp.up_proj", 64, TINY_HIDDEN},
                                    {"mlp.down_proj", TINY_HIDDEN, 64}};

static void put_adapter(const char *folder, const struct module *m, size_t n, uint32_t rank,
                        uint64_t seed)
{
    struct tiny_file f = {.rng = {seed}};
    struct strbuf file;
    char name[160];
    strbuf_init(&f.header, 0);
    strbuf_init(&f.data, 0);
    strbuf_init(&file, 0);
    for (uint32_t layer = 0; layer < TINY_LAYERS; layer++)
        for (size_t i = 0; i < n; i++) {
            static const char form[] = "base_model.model.model.layers.%u.%s.lora_%c.weight";
            snprintf(name, sizeof name, form, layer, m[i].name, 'A');
            tiny_tensor(&f, name, rank, m[i].k);
            snprintf(name, sizeof name, form, layer, m[i].name, 'B');
            tiny_tensor(&f, name, m[i].n, rank);
        }
    strbuf_append_c(&f.header, "}");
    uint64_t n_header = f.header.len;
    strbuf_append(&file, (const char *)&n_header, sizeof n_header);
    strbuf_append(&file, f.header.ptr, f.header.len);
    strbuf_append(&file, f.data.ptr, f.data.len);
    put_file(folder, "adapter_model.safetensors", strbuf_str(&file));
    strbuf_reset(&file);
    strbuf_printf(&file, "{\"peft_type\":\"LORA\",\"r\":%u,\"lora_alpha\":%u,\"target_modules\":[",
                  rank, rank);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&file, "%s\"%s\"", i ? "," : "", strchr(m[i].name, '.') + 1);
    strbuf_append_c(&file, "]}");
    put_file(folder, "adapter_config.json", strbuf_str(&file));
    strbuf_fini(&f.header);
    strbuf_fini(&f.data);
    strbuf_fini(&file);
}

/* Loads an adapter into slot i on both sides, in the place of another adapter. */
static void load(struct side *const sides[2], uint64_t id, uint64_t instead_of, const char *folder)
{
    for (int i = 0; i < 2; i++) {
        struct error err;
        struct lora_set *l = sides[i]->engine->loras;
        if (instead_of)
            lora_set_unload(l, instead_of);
        must(lora_set_load(l, id, folder, NULL, &err), &err, folder);
    }
}

/* ---- passes ---- */

static void give_adapters(struct pass *p, const struct lora_set *l, const uint64_t *ids)
{
    for (uint32_t i = 0; i < p->n_sampled; i++)
        for (uint32_t row = i ? p->sampled[i - 1] + 1 : 0; row <= p->sampled[i]; row++)
            p->adapters[row] = lora_set_find(l, ids[i]);
    p->b.adapters = p->adapters;
}

static void run(struct side *s, const struct pass *p, float *out)
{
    struct error err;
    float *logits;
    must(runner_forward(s->engine->runner, &p->b, &err), &err, "forward");
    must(runner_logits(s->engine->runner, p->sampled, p->n_sampled, &logits, &err), &err, "logits");
    must(runner_read_logits(s->engine->runner, 0, p->n_sampled, &logits, &err), &err, "read");
    memcpy(out, logits, (size_t)p->n_sampled * TINY_VOCAB * sizeof *out);
}

static struct emulate_enqueued enqueued(void)
{
    struct emulate_enqueued n = {0};
    if (emulate_n_enqueued)
        emulate_n_enqueued(&n);
    return n;
}

/* Runs a pass on both devices. The GPU's rows must be near the CPU's. was_replayed means that
 * only a graph and its uploads may be enqueued for the pass; the logits are not part of the
 * pass. */
static void run_both(struct side *const sides[2], const struct pass *p, float *got,
                     bool was_replayed)
{
    float want[LOGITS];
    run(sides[0], p, want);
    const struct emulate_enqueued before = enqueued();
    run(sides[1], p, got);
    const struct emulate_enqueued after = enqueued();
    expect(!emulate_n_enqueued || (after.graphs > before.graphs) == was_replayed,
           "whether a pass was recorded");
    for (uint32_t i = 0; i < p->n_sampled; i++)
        expect(share_of_spread(got + i * TINY_VOCAB, want + i * TINY_VOCAB) <= NEAR,
               "a row of logits is near the CPU's");
}

static bool is_same(const float *a, const float *b, uint32_t row)
{
    return memcmp(a + row * TINY_VOCAB, b + row * TINY_VOCAB, TINY_VOCAB * sizeof *a) == 0;
}

/* Sequences 0 .. 3 have 20, 15, 5 and 30 positions, which were computed without adapters. */
static const uint32_t at[] = {20, 15, 5, 30}, ones[] = {1, 1, 1, 1};
enum { FIRST = 11, SECOND = 12, THIRD = 13, FOURTH = 14 };

static void test_mixes(struct side *const sides[2])
{
    static const uint64_t mixes[][4] = {{FIRST, FIRST, 0, SECOND},
                                        {0, FIRST, SECOND, FIRST},
                                        {SECOND, FIRST, 0, 0},
                                        {0, 0, SECOND, FIRST}};
    static struct pass p;
    float got[4][LOGITS], again[LOGITS], plain[LOGITS];
    struct lora_set *l = sides[1]->engine->loras;
    /* these steps have two adapters each and run eagerly, recorded and replayed */
    for (uint32_t i = 0; i < 4; i++) {
        make_pass(&p, 4, at, ones);
        give_adapters(&p, l, mixes[i]);
        run_both(sides, &p, got[i], i > 0);
    }
    expect(!is_same(got[0], got[1], 0) && is_same(got[1], got[3], 0) && is_same(got[0], got[1], 1),
           "a row has its adapter's numbers");
    runner_drop_records(sides[1]->engine->runner);
    run(sides[1], &p, again);
    expect(memcmp(got[3], again, 4 * TINY_VOCAB * sizeof *again) == 0,
           "a replay has other bits than its operators one by one");
    for (int i = 0; i < 3; i++) {
        make_pass(&p, 4, at, ones);
        run_both(sides, &p, plain, i > 0);
    }
    expect(is_same(plain, got[3], 0) && !is_same(plain, got[3], 2),
           "a row without an adapter has the model's numbers");
}

/* The same recording and the same memory must serve another adapter. */
static void test_places_are_taken_again(struct side *const sides[2], const char *third,
                                        const char *fourth)
{
    static const uint64_t before[] = {FIRST, SECOND, FIRST, 0}, after[] = {THIRD, SECOND, THIRD, 0};
    static const uint64_t last[] = {THIRD, FOURTH, 0, FOURTH};
    static struct pass p;
    float got[LOGITS], other[LOGITS];
    make_pass(&p, 4, at, ones);
    give_adapters(&p, sides[1]->engine->loras, before);
    /* the key was seen before recordings were dropped, so the steps are recorded and replayed */
    for (int i = 0; i < 2; i++)
        run_both(sides, &p, got, true);
    load(sides, THIRD, FIRST, third); /* this adapter has the same matrices */
    give_adapters(&p, sides[1]->engine->loras, after);
    run_both(sides, &p, other, true);
    expect(is_same(got, other, 1) && !is_same(got, other, 0), "the adapter that is there now");
    /* this adapter has other matrices, which need another recording */
    load(sides, FOURTH, SECOND, fourth);
    give_adapters(&p, sides[1]->engine->loras, last);
    for (int i = 0; i < 3; i++)
        run_both(sides, &p, other, i > 0);
}

/* Adapters for the same matrices share recordings. A pass with more tiles than its recording
 * allows needs another recording. */
static void test_tiles(struct side *const sides[2], const char *first, const char *fourth)
{
    static const uint64_t one[] = {THIRD, 0, 0, 0}, two[] = {THIRD, FIRST, 0, FIRST};
    static struct pass p;
    float got[LOGITS];
    load(sides, FIRST, FOURTH, first);
    make_pass(&p, 4, at, ones);
    give_adapters(&p, sides[1]->engine->loras, one);
    for (int i = 0; i < 3; i++)
        run_both(sides, &p, got, i > 0);
    give_adapters(&p, sides[1]->engine->loras, two);
    for (int i = 0; i < 3; i++)
        run_both(sides, &p, got, i > 0);
    load(sides, FOURTH, FIRST, fourth);
}

/* Passes of more than 64 rows must be recorded if each sequence has few rows, for any sequences.
 * Passes with a prompt, or with more rows than any recording, must run eagerly each time. */
static void test_many_rows(struct side *const sides[2])
{
    static const uint64_t mixes[][8] = {{FIRST, FIRST, 0, SECOND, 0, 0, FIRST, SECOND},
                                        {0, FIRST, SECOND, SECOND, 0, FIRST, 0, FIRST},
                                        {SECOND, 0, 0, 0, 0, FIRST, 0, 0}};
    static const uint32_t from[16] = {0}, nine[] = {9, 9, 9, 9, 9, 9, 9, 9};
    /* 73 rows are in the same bucket */
    static const uint32_t other[] = {16, 3, 13, 1, 16, 7, 9, 8};
    static const uint32_t most[] = {16, 16, 16, 16, 16, 16, 16, 16, 15, 16, 16, 16, 16, 16, 16, 16};
    static const uint32_t prompt[] = {17, 9, 9, 9, 9, 9, 9, 9};
    static struct pass p;
    float got[LOGITS], again[LOGITS];
    for (uint32_t i = 0; i < 3; i++) {
        make_pass(&p, 8, from, i == 1 ? other : nine);
        run_both(sides, &p, got, i > 0);
    }
    runner_drop_records(sides[1]->engine->runner);
    run(sides[1], &p, again);
    expect(memcmp(got, again, 8 * TINY_VOCAB * sizeof *got) == 0,
           "a replay of 80 rows has other bits than its operators one by one");
    for (uint32_t i = 0; i < 3; i++) {
        make_pass(&p, 8, from, i == 1 ? other : nine);
        give_adapters(&p, sides[1]->engine->loras, mixes[i]);
        run_both(sides, &p, got, i > 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        make_pass(&p, 8, from, prompt);
        run_both(sides, &p, got, false);
    }
    for (uint32_t i = 0; i < 3; i++) { /* 255 rows are padded to 256 */
        make_pass(&p, 16, from, most);
        run_both(sides, &p, got, i > 0);
    }
}

static void test_buckets(const struct runner *r)
{
    static const uint32_t want[][2] = {{1, 1},     {3, 4},     {64, 64},   {65, 80},   {80, 80},
                                       {97, 112},  {113, 128}, {129, 160}, {161, 192}, {193, 224},
                                       {225, 256}, {256, 256}, {257, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        expect(runner_sample_rows(r, want[i][0]) == want[i][1], "rows of a recorded draw");
}

/* A worker whose passes have at most 100 rows must not record passes of 97 rows and more. Such
 * passes would be padded to 112, and the worker's memory is too small for 112 rows. */
static void test_short_passes(struct side *const sides[2], const char *folder)
{
    static const uint32_t from[16] = {0}, n[] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 16, 3};
    static struct pass p;
    struct side small[2], *const both[] = {&small[0], &small[1]};
    float got[LOGITS];
    for (int i = 0; i < 2; i++) {
        small[i] = (struct side){.device = sides[i]->device};
        open_engine_of(&small[i], folder, 0, WORKER_LOAD_AUTO, 100);
    }
    const struct runner *r = small[1].engine->runner;
    expect(runner_sample_rows(r, 96) == 96 && runner_sample_rows(r, 97) == 0 &&
               runner_sample_rows(r, 100) == 0,
           "rows of a recorded draw, of passes of 100 rows");
    for (uint32_t i = 0; i < 6; i++) { /* the passes have 96 rows, then 99 */
        make_pass(&p, i < 3 ? 11 : 12, from, n);
        run_both(both, &p, got, i == 1 || i == 2);
    }
    for (int i = 0; i < 2; i++)
        engine_close(small[i].engine);
}

/* These passes must never be recorded. */
static void test_prompts(struct side *const sides[2])
{
    static const uint64_t mix[] = {SECOND, 0, FIRST, 0, SECOND};
    static const uint32_t zeros[5] = {0}, few[] = {20, 30, 20, 30, 10},
                          many[] = {20, 15, 60, 30, 3};
    static struct pass p;
    float got[LOGITS];
    make_pass(&p, 5, zeros, few);
    give_adapters(&p, sides[1]->engine->loras, mix);
    run_both(sides, &p, got, false);
    make_pass(&p, 5, zeros, many);
    give_adapters(&p, sides[1]->engine->loras, mix);
    run_both(sides, &p, got, false);
}

/* ---- samples ---- */

struct sampling_rank {
    struct gpu_sampler *sampler;
    struct gpu_sample_row rows[MOST_DRAWS];
    uint32_t at[MOST_DRAWS], i_step;
};

static enum status host_sample_rows(void *ctx, float *logits, struct error *err)
{
    struct sampling_rank *d = ctx;
    return d->sampler->ops->sample(d->sampler, logits, TINY_VOCAB, err);
}

/* Runs a step: a pass, and the sampling of n of its rows. The odd rows have a temperature. */
static void step_of(struct side *gpu, struct sampling_rank *d, const struct pass *p,
                    const uint32_t *rows, uint32_t n, struct gpu_sampled *out)
{
    struct error err;
    struct runner *r = gpu->engine->runner;
    const uint32_t most = runner_sample_rows(r, n);
    struct gpu_sample_lists list = {
        .n_rows = most, .wants = {.draws = true}, .at_rows = d->at, .rows = d->rows};
    must(runner_forward(r, &p->b, &err), &err, "forward");
    for (uint32_t i = 0; i < most; i++) {
        const bool is_real = i < n;
        d->at[i] = is_real ? rows[i] : 0;
        d->rows[i] = (struct gpu_sample_row){.seed = 5 + i,
                                             .logits_row = i,
                                             .slot = is_real && i < N_SLOTS ? i : UINT32_MAX,
                                             .n_ids = p->positions[d->at[i]] + 1,
                                             .temperature = i % 2 && is_real ? 0.7f : 0.0f,
                                             .top_p = 1.0f,
                                             .repetition = 1.0f,
                                             .first_mask = UINT32_MAX,
                                             .n_logprobs = -1};
    }
    struct runner_sample run_sample = {.n = most, .key = 1, .sample = host_sample_rows, .ctx = d};
    d->i_step = !d->i_step;
    d->sampler->ops->begin(d->sampler, d->i_step);
    must(d->sampler->ops->send(d->sampler, d->i_step, &list, &run_sample.at, &err), &err, "send");
    must(runner_sample(r, &run_sample, &err), &err, "draw");
    must(d->sampler->ops->end(d->sampler, d->i_step, n, N_SLOTS, &err), &err, "end");
    must(d->sampler->ops->wait(d->sampler, d->i_step, &err), &err, "wait");
    memcpy(out, d->sampler->results[d->i_step], n * sizeof *out);
}

/* Runs a step that samples the last row of each sequence. */
static void step(struct side *gpu, struct sampling_rank *d, const struct pass *p,
                 struct gpu_sampled *out)
{
    step_of(gpu, d, p, p->sampled, p->n_sampled, out);
}

static void open_sampler(struct side *gpu, struct sampling_rank *d)
{
    struct error err;
    const struct gpu_sampler_options o = {.vocab_size = TINY_VOCAB,
                                          .n_slots = N_SLOTS,
                                          .n_rows = MOST_DRAWS,
                                          .n_places = MOST_DRAWS,
                                          .n_biases = 16,
                                          .n_allowed = 16,
                                          .n_history = 16};
    must(gpu_sampler_open(gpu->device, &o, &d->sampler, &err), &err, "draws");
}

/* Positions must advance from step to step, and draws must follow from seeds and positions.
 * Three rows are padded to four. */
static void test_draws(struct side *gpu)
{
    static struct sampling_rank d;
    static struct pass p;
    struct gpu_sampled got[4][4], again[4];
    float logits[LOGITS];
    uint32_t from[] = {20, 15, 5};
    open_sampler(gpu, &d);
    for (uint32_t i = 0; i < 4; i++) {
        make_pass(&p, 3, from, ones);
        step(gpu, &d, &p, got[i]);
        const uint32_t *last = d.sampler->host_last[d.i_step];
        for (uint32_t k = 0; k < N_SLOTS; k++)
            expect(last[k] == (k < 3 ? got[i][k].id : 0), "where ids are for the next step");
        run(gpu, &p, logits);
        for (uint32_t k = 0; k < 3; k += 2) { /* these rows are greedy */
            uint32_t best = 0;
            for (uint32_t id = 1; id < TINY_VOCAB; id++)
                if (logits[k * TINY_VOCAB + id] > logits[k * TINY_VOCAB + best])
                    best = id;
            expect(got[i][k].id == best, "the largest logit's id");
        }
        for (uint32_t k = 0; k < 3; k++)
            from[k]++;
    }
    runner_drop_records(gpu->engine->runner);
    step(gpu, &d, &p, again);
    expect(memcmp(got[3], again, 3 * sizeof *again) == 0, "a replay draws something else");
    d.sampler->ops->close(d.sampler);
}

/* 72 rows are more than cuda_linear_few takes at once. The pass and the samples have 80 rows and
 * run eagerly, recorded and replayed. */
static void test_many_draws(struct side *gpu)
{
    enum { N = 72, SEEN = 2 };
    static const uint32_t from[8] = {0}, nine[] = {9, 9, 9, 9, 9, 9, 9, 9};
    static struct sampling_rank d;
    static struct pass p;
    struct gpu_sampled got[3][N];
    struct error err;
    uint32_t rows[N], n_best = 0;
    float *logits;
    open_sampler(gpu, &d);
    make_pass(&p, 8, from, nine);
    for (uint32_t i = 0; i < N; i++)
        rows[i] = i;
    for (uint32_t i = 0; i < 3; i++) {
        const struct emulate_enqueued before = enqueued();
        step_of(gpu, &d, &p, rows, N, got[i]);
        expect(!emulate_n_enqueued || enqueued().graphs - before.graphs == (i > 0 ? 2 : 0),
               "whether a step of 72 rows was recorded");
    }
    for (uint32_t i = 0; i < N; i++)
        expect(got[0][i].id == got[SEEN][i].id, "a replay of 72 rows draws something else");
    must(runner_logits(gpu->engine->runner, rows, N, &logits, &err), &err, "logits");
    for (uint32_t first = 0; first < N; first += 8) {
        must(runner_read_logits(gpu->engine->runner, first, 8, &logits, &err), &err, "read");
        for (uint32_t i = 0; i < 8; i += 2) { /* these rows are greedy */
            const float *row = logits + (size_t)i * TINY_VOCAB;
            bool is_best = true;
            for (uint32_t id = 0; id < TINY_VOCAB; id++)
                is_best = is_best && row[id] <= row[got[SEEN][first + i].id];
            n_best += is_best;
        }
    }
    expect(n_best == N / 2, "the largest logit's id, of 72 rows");
    d.sampler->ops->close(d.sampler);
}

/* ---- recordings refused ---- */

static void test_refusals(struct side *gpu)
{
    enum { MANY = 100000 };
    static const uint64_t mix[] = {FOURTH, 0, FOURTH};
    static struct pass p;
    static struct sampling_rank d;
    struct gpu_sampled want[3], got[3];
    struct error err;
    unsigned n_calls;
    if (!emulate_refuse_capture)
        return;
    open_sampler(gpu, &d);
    make_pass(&p, 3, at, ones);
    give_adapters(&p, gpu->engine->loras, mix);
    for (unsigned n = MANY; n > 0; n = n == MANY ? n_calls : n - 1) {
        runner_drop_records(gpu->engine->runner);
        (void)emulate_refuse_capture(n);
        for (int i = 0; i < 3; i++) {
            step(gpu, &d, &p, i == 0 && n == MANY ? want : got);
            expect((i == 0 && n == MANY) || memcmp(got, want, sizeof got) == 0,
                   "other ids where a recording was refused");
        }
        unsigned left = emulate_refuse_capture(0);
        n_calls = MANY - left; /* number of calls of the first round */
        expect(n == MANY ? n_calls > 20 : left == 0, "the refusal did not take place");
        expect(gpu->device->ops->pass.sync(gpu->device, &err) == STATUS_OK, "a refusal is no loss");
    }
    d.sampler->ops->close(d.sampler);
}

/* ---- work that the host enqueues ---- */

/* `count` holds the kernels of a step over the emulation (4 multiprocessors), as in
 * docs/develop/gpu.md. A change that adds or removes a launch must change these numbers. */
struct count {
    uint32_t n_rows;
    bool has_adapters;
    unsigned n_kernels;
};
static const struct count of_llama[] = {
    {1, false, 27}, {1, true, 33}, {8, false, 25}, {8, true, 35}};
static const struct count of_deepseek[] = {{1, false, 47}, {8, false, 48}};

/* A recorded step must be two graphs and four copies. The copies are for numbers, block tables,
 * lists and results (and ids, which this test asks for). */
static void test_counts(struct side *gpu, const char *name, const struct count *counts, uint32_t n)
{
    static const uint32_t eight[] = {20, 15, 5, 30, 7, 9, 3, 1}, each[] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const uint64_t mix[] = {FOURTH, 0, FOURTH, THIRD, 0, FOURTH, 0, THIRD};
    static struct pass p;
    static struct sampling_rank d;
    struct gpu_sampled got[MOST_SEQUENCES];
    if (!emulate_n_enqueued)
        return;
    open_sampler(gpu, &d);
    for (uint32_t i = 0; i < n; i++) {
        const struct count *c = &counts[i];
        struct emulate_enqueued before = {0}, after = {0}, eager[2];
        uint64_t nodes = 0;
        make_pass(&p, c->n_rows, eight, each);
        if (c->has_adapters)
            give_adapters(&p, gpu->engine->loras, mix);
        runner_drop_records(gpu->engine->runner);
        eager[0] = enqueued();
        step(gpu, &d, &p, got);
        eager[1] = enqueued();
        for (int k = 0; k < 2; k++) {
            before = enqueued();
            nodes = cuda_device_nodes(gpu->device);
            step(gpu, &d, &p, got);
            nodes = cuda_device_nodes(gpu->device) - nodes;
            after = enqueued();
        }
        const unsigned long long kernels = after.kernels - before.kernels;
        const unsigned long long copies = after.copies - before.copies;
        const unsigned long long graphs = after.graphs - before.graphs;
        const unsigned long long alone = eager[1].kernels - eager[0].kernels;
        printf("%s, a step of %u rows%s: %llu kernels; recorded %llu nodes, %llu kernels, %llu "
               "graphs, %llu copies\n",
               name, c->n_rows, c->has_adapters ? " with adapters" : "", alone,
               (unsigned long long)nodes, kernels, graphs, copies);
        expect(kernels == 0 && graphs == 2 && copies == 5, "what the host enqueues of a step");
        expect(alone == c->n_kernels && nodes == alone, "the kernels of a step");
    }
    d.sampler->ops->close(d.sampler);
}

/* Passes of 72 and 73 rows, padded to 80, and of 255 rows must have the same bits when run
 * eagerly, recorded and replayed. */
static void test_replays(struct side *gpu)
{
    static const uint32_t from[16] = {0};
    static const uint32_t n[][16] = {
        {9, 9, 9, 9, 9, 9, 9, 9},
        {16, 3, 13, 1, 16, 7, 9, 8},
        {16, 16, 16, 16, 16, 16, 16, 16, 15, 16, 16, 16, 16, 16, 16, 16}};
    static struct pass p;
    float seen[LOGITS], got[LOGITS];
    for (uint32_t i = 0; i < sizeof n / sizeof *n; i++) {
        make_pass(&p, n[i][8] ? 16 : 8, from, n[i]);
        runner_drop_records(gpu->engine->runner);
        run(gpu, &p, seen);
        for (int k = 0; k < 2; k++) {
            const unsigned long long before = enqueued().graphs;
            run(gpu, &p, got);
            expect(!emulate_n_enqueued || enqueued().graphs > before, "a recorded pass of latents");
            expect(memcmp(seen, got, p.n_sampled * TINY_VOCAB * sizeof *got) == 0,
                   "a replay of latents and a mixture has other bits than its operators");
        }
    }
}

/* Tests a made-up model with latent attention, a dense layer, then a mixture with a shared
 * expert. */
static void test_deepseek(struct side *gpu, const char *folder)
{
    static const char config[] =
        "{\"model_type\":\"deepseek_v2\",\"hidden_size\":32,\"intermediate_size\":64,"
        "\"moe_intermediate_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":2,\"kv_lora_rank\":32,\"q_lora_rank\":null,"
        "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,"
        "\"n_routed_experts\":8,\"n_shared_experts\":1,\"num_experts_per_tok\":2,"
        "\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\"topk_method\":\"greedy\","
        "\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.0,"
        "\"norm_topk_prob\":false,\"scoring_func\":\"softmax\",\"vocab_size\":100,"
        "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,"
        "\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}";
    struct side own = {.device = gpu->device};
    put_file(folder, "config.json", STR(config));
    open_engine_of(&own, folder, 0, WORKER_LOAD_DUMMY, PASS_ROWS);
    test_counts(&own, "deepseek", of_deepseek, sizeof of_deepseek / sizeof *of_deepseek);
    test_replays(&own);
    engine_close(own.engine);
}

static void remove_all(const char *folder, const char *const *names, size_t n)
{
    char path[256];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

int main(void)
{
    static const char *const model[] = {"model.safetensors", "config.json"};
    static const char *const adapter[] = {"adapter_model.safetensors", "adapter_config.json"};
    struct side cpu = {0}, gpu = {0}, *const sides[] = {&cpu, &gpu};
    char folder[] = "/tmp/cox-steps-XXXXXX", adapters[4][32];
    open_sides(&cpu, &gpu, folder);
    for (int i = 0; i < 4; i++) {
        snprintf(adapters[i], sizeof adapters[i], "/tmp/cox-adapter-XXXXXX");
        if (!mkdtemp(adapters[i]))
            return 1;
    }
    tiny_model_write(folder, 7);
    put_adapter(adapters[0], attention, 3, 4, 1);
    put_adapter(adapters[1], mlp, 3, 8, 2);
    put_adapter(adapters[2], attention, 3, 7, 3);
    put_adapter(adapters[3], mlp, 1, 3, 4);
    open_engine(&cpu, folder, MAX_LORAS);
    open_engine(&gpu, folder, MAX_LORAS);
    load(sides, FIRST, 0, adapters[0]);
    load(sides, SECOND, 0, adapters[1]);
    test_prompts(sides);
    test_many_rows(sides);
    test_prompts(sides); /* this test fills the caches that the other tests continue from */
    test_buckets(gpu.engine->runner);
    test_mixes(sides);
    test_places_are_taken_again(sides, adapters[2], adapters[3]);
    test_tiles(sides, adapters[0], adapters[3]);
    test_draws(&gpu);
    test_many_draws(&gpu);
    test_refusals(&gpu);
    test_counts(&gpu, "llama", of_llama, sizeof of_llama / sizeof *of_llama);
    engine_close(cpu.engine);
    engine_close(gpu.engine);
    test_short_passes(sides, folder);
    test_deepseek(&gpu, folder);
    gpu.device->ops->close(gpu.device);
    cpu.device->ops->close(cpu.device);
    remove_all(folder, model, 2);
    for (int i = 0; i < 4; i++)
        remove_all(adapters[i], adapter, 2);
    printf("steps_test: %u checks, %u failures\n", n_checks, n_failures);
    return n_failures > 0;
}
