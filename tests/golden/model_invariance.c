/* Tests on a whole model that "at one TP the bits of every logit row are equal for any batch,
 * chunking and thread count" (docs/develop/protocol.md, Invariance). The same sequences run
 * alone in one piece with one thread, and then together, in chunks, in passes, over scattered
 * blocks, with more threads. AVX2 is compared with AVX-512, and all rows with only the requested
 * rows. With --tp N the same runs over N ranks, over shared memory and sockets, and after the
 * ranks have changed places. The distance from one rank is printed and bounded.
 * When the model has adapters (loras/NAME in its folder), two of three sequences use an adapter.
 * The other sequences must get the bits of an engine without adapters.
 * Usage: model_invariance [--tp N] [--kv f32|f16|bf16|fp8|int8] [--activations narrow] MODEL...
 * "demo" is the cached demo model. Exit status 77: no MODEL exists. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/model/info/open.h"
#include "kernels/cpu/cpu.h"
#include "tests/golden/golden_kv.h"
#include "tests/golden/golden_ranks.h"

enum { N_SEQUENCES = 5, MAX_LEN = 700, BLOCK = 16, TABLE = MAX_LEN / BLOCK + 1 };

/* MAX_DISTANCE bounds the distance of a logit from one rank. Ids are random, keys and values
 * have half precision. A wrong split would be off by whole logits. */
#define MAX_DISTANCE 0.1

/* One of the sequences is longer than the demo model's window. */
static const uint32_t lengths[N_SEQUENCES] = {1, 7, 65, 200, MAX_LEN};

struct way {
    const char *name;
    /* numbers of threads, of rows per pass and per chunk; chunk 0 = the whole sequence */
    uint32_t n_threads, pass_rows, chunk;
    bool together;
    enum cpu_isa isa;
    uint32_t tp;
    bool sockets;  /* true = the ranks share no memory */
    bool no_loras; /* true = only the sequences without an adapter are compared */
    /* 1 = every engine has taken the next engine's rank; 2 = and then its own rank again */
    uint32_t turns;
    uint32_t from; /* number of ranks that were opened and have loaded their adapters; 0 = tp */
    bool all_rows; /* true = no row is dropped after the last keys and values */
};

struct run {
    struct golden_ranks *ranks;
    const struct engine *engine; /* engine of rank 0 */
    uint32_t adapters[N_SEQUENCES];
    uint32_t ids[N_SEQUENCES][MAX_LEN];
    uint32_t tables[N_SEQUENCES][TABLE];
    uint32_t done[N_SEQUENCES];
    float *logits[N_SEQUENCES]; /* logits of the last position, [vocab] */
};

static bool kv_set; /* true = --kv was given; false = the model's own dtype */
static enum dtype kv_dtype;
static enum cpu_activations activations;
static _Atomic uint64_t progress;
static _Atomic bool interrupt;

static void die(const char *what, const struct error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

/* Starts a run. The ids are always the same. The seed decides the order of the blocks of all
 * sequences. */
static void begin(struct run *r, uint64_t seed)
{
    uint32_t n_blocks = N_SEQUENCES * TABLE, blocks[N_SEQUENCES * TABLE];
    uint32_t vocab = r->engine->config.vocab_size;
    struct rng rng;
    rng.state = 7;
    for (uint32_t s = 0; s < N_SEQUENCES; s++)
        for (uint32_t i = 0; i < MAX_LEN; i++)
            r->ids[s][i] = (uint32_t)rng_below(&rng, vocab);
    rng.state = seed;
    for (uint32_t i = 0; i < n_blocks; i++)
        blocks[i] = i;
    for (uint32_t i = n_blocks - 1; i > 0; i--) {
        uint32_t j = (uint32_t)rng_below(&rng, i + 1), t = blocks[i];
        blocks[i] = blocks[j];
        blocks[j] = t;
    }
    memcpy(r->tables, blocks, sizeof r->tables);
    memset(r->done, 0, sizeof r->done);
}

/* Runs one pass with n[s] more rows of each sequence s. Keeps the logits of those sequences that
 * end. */
static void pass(struct run *r, const uint32_t n[N_SEQUENCES], bool all_rows)
{
    static uint32_t ids[4096], positions[4096], adapters[4096];
    static struct kv_row rows[4096];
    uint32_t n_rows = 0, ends[N_SEQUENCES], which[N_SEQUENCES], n_ends = 0;
    struct error err = {0};
    for (uint32_t s = 0; s < N_SEQUENCES; s++) {
        for (uint32_t i = 0; i < n[s]; i++, n_rows++) {
            uint32_t at = r->done[s]++;
            ids[n_rows] = r->ids[s][at];
            positions[n_rows] = at;
            adapters[n_rows] = r->adapters[s];
            rows[n_rows] = (struct kv_row){.blocks = r->tables[s], .position = at};
        }
        if (n[s] > 0 && r->done[s] == lengths[s]) {
            which[n_ends] = s;
            ends[n_ends++] = n_rows - 1;
        }
    }
    /* every KV group uses the same tables, because each group has enough blocks */
    struct row_batch b = {
        .n_rows = n_rows, .ids = ids, .positions = positions, .adapters = adapters};
    if (!all_rows) {
        b.kept = ends;
        b.n_kept = n_ends;
    }
    for (uint32_t g = 0; g < r->engine->program->n_kv_groups; g++)
        b.kv_rows[g] = rows;
    if (golden_ranks_forward(r->ranks, &b, &err) != STATUS_OK)
        die("forward", &err);
    float *logits;
    if (n_ends > 0 && golden_ranks_logits(r->ranks, ends, n_ends, &logits, &err) != STATUS_OK)
        die("logits", &err);
    for (uint32_t i = 0; i < n_ends; i++) {
        uint32_t vocab = r->engine->config.vocab_size;
        memcpy(r->logits[which[i]], logits + (size_t)i * vocab, vocab * sizeof *logits);
    }
}

static void run_sequences(struct run *r, const struct way *w)
{
    uint32_t left = N_SEQUENCES, alone = 0;
    while (left > 0) {
        uint32_t n[N_SEQUENCES] = {0}, room = r->engine->pass_rows;
        for (uint32_t s = 0; s < N_SEQUENCES; s++) {
            uint32_t rest = lengths[s] - r->done[s];
            uint32_t want = w->chunk && w->chunk < rest ? w->chunk : rest;
            if (w->together || s == alone)
                n[s] = want < room ? want : room;
            room -= n[s];
        }
        pass(r, n, w->all_rows);
        left = 0;
        for (uint32_t s = 0; s < N_SEQUENCES; s++)
            left += r->done[s] < lengths[s];
        while (alone < N_SEQUENCES && r->done[alone] == lengths[alone])
            alone++;
    }
}

/* Loads adapters: sequence s has adapter s % 3 - 1. */
static void load_adapters(struct run *r, const char *model, struct error *err)
{
    static const char *const names[] = {"every", "some"};
    char folder[PATH_MAX];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t adapter = 0;
        snprintf(folder, sizeof folder, "%s/loras/%s", model, names[i]);
        if (access(folder, R_OK) == 0 &&
            golden_ranks_load(r->ranks, 1 + i, folder, &adapter, err) != STATUS_OK)
            die(folder, err);
        for (uint32_t s = 1 + i; s < N_SEQUENCES; s += 3)
            r->adapters[s] = adapter;
    }
}

/* BLOCKS_TO_SHRINK is the factor by which the KV cache is larger in a run that reduces TP. The
 * shards then grow at the cost of the cache, which must be large enough. */
enum { BLOCKS_TO_SHRINK = 30 };

/* Returns false when the model cannot be split over this many ranks. */
static bool open_run(struct run *r, const char *model, const struct way *w)
{
    struct error err = {0};
    uint32_t n_blocks = N_SEQUENCES * TABLE;
    const struct engine_setup s = {.model = model,
                                   .tp = w->from ? w->from : w->tp,
                                   .is_elastic = w->from > 0,
                                   .n_threads = w->n_threads,
                                   .isa_level = w->isa,
                                   .activations = activations,
                                   .kv_dtype_set = kv_set,
                                   .kv_dtype = kv_dtype,
                                   .block_tokens = BLOCK,
                                   .max_model_len = MAX_LEN,
                                   .pass_rows = w->pass_rows,
                                   .n_kv_blocks = n_blocks * (w->from ? BLOCKS_TO_SHRINK : 1),
                                   .max_loras = w->no_loras ? 0 : 2,
                                   .max_lora_rank = 16,
                                   .progress = &progress,
                                   .interrupt = &interrupt};
    enum status st = golden_ranks_open(&s, w->sockets, &r->ranks, &err);
    if (st == STATUS_UNSUPPORTED && w->from) {
        printf("  %s: not tried: %s\n", w->name, err.text);
        return false;
    }
    if (st != STATUS_OK)
        die(model, &err);
    if (!w->no_loras)
        load_adapters(r, model, &err);
    if (w->from && golden_ranks_reshape(r->ranks, w->tp, &err) != STATUS_OK)
        die(model, &err);
    if ((w->turns > 0 && golden_ranks_turn(r->ranks, 1, &err) != STATUS_OK) ||
        (w->turns > 1 && golden_ranks_turn(r->ranks, 0, &err) != STATUS_OK))
        die(model, &err);
    r->engine = golden_ranks_engine(r->ranks, 0);
    for (uint32_t i = 0; i < N_SEQUENCES; i++)
        r->logits[i] = mem_array(r->engine->config.vocab_size, sizeof(float));
    return true;
}

static void close_run(struct run *r)
{
    golden_ranks_close(r->ranks);
    for (uint32_t i = 0; i < N_SEQUENCES; i++)
        mem_free(r->logits[i]);
}

static uint32_t compare(const struct run *a, const struct run *b, const struct way *w)
{
    uint32_t n_bad = 0;
    for (uint32_t s = 0; s < N_SEQUENCES; s++) {
        uint32_t n = 0, vocab = a->engine->config.vocab_size;
        if (w->no_loras && a->adapters[s] > 0)
            continue;
        for (uint32_t i = 0; i < vocab; i++)
            n += memcmp(&a->logits[s][i], &b->logits[s][i], sizeof(float)) != 0;
        if (n > 0)
            printf("  %s: sequence of %u: %u of %u logits differ in their bits\n", w->name,
                   lengths[s], n, vocab);
        n_bad += n > 0;
    }
    return n_bad;
}

/* Checks the distance of two runs with different numbers of ranks. They add in different orders,
 * which gives other bits of nearly the same numbers. */
static uint32_t check_distance(const struct run *a, const struct run *b)
{
    double worst = 0, largest = 0;
    for (uint32_t s = 0; s < N_SEQUENCES; s++)
        for (uint32_t i = 0; i < a->engine->config.vocab_size; i++) {
            double d = fabs((double)a->logits[s][i] - (double)b->logits[s][i]);
            worst = !(d <= worst) ? d : worst; /* NaN counts as the largest distance */
            largest = fmax(largest, fabs((double)a->logits[s][i]));
        }
    printf("  largest distance of a logit from one rank: %.2g (logits up to %.3g)\n", worst,
           largest);
    return !(worst <= MAX_DISTANCE);
}

static uint32_t check_way(const char *model, const struct way *w, uint64_t seed,
                          const struct run *base)
{
    struct run r = {0};
    if (!open_run(&r, model, w))
        return 0;
    begin(&r, seed);
    run_sequences(&r, w);
    uint32_t n_bad = base->engine->tp == w->tp ? compare(base, &r, w) : check_distance(base, &r);
    close_run(&r);
    return n_bad;
}

static uint32_t check_isa(const char *model, enum cpu_isa isa, uint32_t tp, struct run *base)
{
    const struct way one = {"alone, whole", 1, 1024, 0, false, isa, tp, false, false, 0, 0, true};
    const struct way ways[] = {
        {"another place in memory", 1, 1024, 0, false, isa, tp, false, false, 0, 0, true},
        {"two threads", 2, 1024, 0, false, isa, tp, true, false, 0, 0, false},
        {"three threads, together", 3, 2048, 0, true, isa, tp, false, false, 0, 0, false},
        {"chunks of 1", 2, 64, 1, true, isa, tp, false, false, 0, 0, false},
        {"chunks of 5", 1, 64, 5, true, isa, tp, true, false, 0, 0, false},
        {"chunks of 64, passes of 48", 2, 48, 64, true, isa, tp, false, false, 0, 0, false},
        {"without adapters", 1, 1024, 0, true, isa, tp, false, true, 0, 0, false},
        {"of twice as many ranks", 2, 1024, 0, true, isa, tp, false, false, 0, 2 * tp, false},
        {"ranks turned", 1, 64, 0, true, isa, tp, true, false, 1, 0, false},
        {"ranks turned back", 2, 1024, 0, true, isa, tp, false, false, 2, 0, false},
        {"one rank", 1, 1024, 0, false, isa, 1, false, false, 0, 0, false}};
    uint32_t n_bad = 0, n_ways = sizeof ways / sizeof ways[0] - (tp == 1 ? 3 : 0);
    if (!open_run(base, model, &one))
        return 1;
    begin(base, 1);
    run_sequences(base, &one);
    for (uint32_t i = 0; i < n_ways; i++)
        n_bad += check_way(model, &ways[i], 100 + i, base);
    printf("%s: %s, tp %u: %u ways, %u differences\n", model, cpu_isa_name(isa), tp, n_ways, n_bad);
    return n_bad;
}

static uint32_t check_model(const char *model, bool scalar, uint32_t tp)
{
    uint32_t n_bad = 0;
    struct run runs[CPU_ISA_COUNT] = {0};
    for (enum cpu_isa isa = scalar ? CPU_ISA_SCALAR : CPU_ISA_FUSED; isa <= cpu_isa_best(); isa++)
        n_bad += check_isa(model, isa, tp, &runs[isa]);
    if (cpu_isa_best() > CPU_ISA_FUSED) {
        const struct way w = {.name = "AVX-512 against AVX2"};
        n_bad += compare(&runs[CPU_ISA_FUSED], &runs[CPU_ISA_FUSED + 1], &w);
    }
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++)
        if (runs[i].engine)
            close_run(&runs[i]);
    return n_bad;
}

int main(int argc, char **argv)
{
    uint32_t n_models = 0, n_bad = 0, tp = 1;
    char cache[PATH_MAX], demo[PATH_MAX * 2];
    model_cache_dir(getenv("COX_CACHE"), getenv("HOME"), cache, sizeof cache);
    snprintf(demo, sizeof demo, "%s/models/demo/gemma-3-270m-q4_k_m.gguf", cache);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tp") == 0 && i + 1 < argc) {
            tp = (uint32_t)strtoul(argv[++i], NULL, 10);
            continue;
        }
        if (strcmp(argv[i], "--kv") == 0 && i + 1 < argc) {
            kv_dtype = golden_kv_dtype(argv[++i]);
            kv_set = true;
            continue;
        }
        if (strcmp(argv[i], "--activations") == 0 && i + 1 < argc) {
            activations =
                strcmp(argv[++i], "narrow") == 0 ? CPU_ACTIVATIONS_NARROW : CPU_ACTIVATIONS_F32;
            continue;
        }
        bool is_demo = strcmp(argv[i], "demo") == 0;
        const char *model = is_demo ? demo : argv[i];
        if (access(model, R_OK) != 0) {
            printf("SKIPPED: there is no %s\n", model);
            continue;
        }
        /* the scalar level runs only on small models, because it takes minutes on a large model
         * and has the same source as the others */
        n_bad += check_model(model, !is_demo, tp);
        n_models++;
    }
    if (n_models == 0)
        return 77;
    printf("%u models, %u differences\n", n_models, n_bad);
    return n_bad > 0;
}
