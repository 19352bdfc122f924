/* Measures tokens a second of one rank with and without draft tokens, by streams and draft
 * tokens. Plans are passed directly to the executor, one step at a time, so that only the device
 * is measured: one kernel thread and its CPU time, which also works on a busy machine. There are
 * two kinds of prompt: a file to be written again, whose text is a good draft, and prose, where
 * n-grams are mostly wrong. When DRAFT is given, that model drafts. When DRAFT is the same model
 * as MODEL, its drafts are always right, and the figures show the cost of its passes. A gain
 * needs a much smaller model with MODEL's vocabulary.
 * Usage, from the source folder: bench_speculation [MODEL [ROUNDS [DRAFT]]] */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/count.h"
#include "bench/seconds.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "text/text.h"
#include "worker/executor/device/open.h"
#include "worker/executor/executor.h"

enum { MAX_STREAMS = 8, N_SAMPLED = 48, MAX_ROUNDS = 9, TABLE = 64, BLOCK = 16, CHUNK = 1200 };

static const uint32_t streams_of[] = {1, 2, 4, 8}, drafts_of[] = {0, 1, 2, 4, 8};
enum {
    N_STREAMS = sizeof streams_of / sizeof streams_of[0],
    N_DRAFTS = sizeof drafts_of / sizeof drafts_of[0]
};

static const char *const files[MAX_STREAMS] = {
    "worker/sequences/batch.c", "worker/sampling/candidates.c",
    "worker/sampling/draw.c",   "worker/setup/options.c",
    "worker/sequences/ngram.c", "worker/executor/executor.c",
    "worker/weights/loader.c",  "worker/kv/store.c"};
static const char *const openings[MAX_STREAMS] = {
    "The harbour was quiet that morning, and the old pilot",
    "A good soup begins with onions. Cut them small and",
    "In the seventeenth century, merchants of Amsterdam",
    "My grandmother used to say that the mountains",
    "The theory of plate tectonics explains why",
    "When the orchestra stopped, nobody in the hall",
    "To repair a bicycle wheel you need patience and",
    "The city council met on Tuesday to discuss"};

struct stream {
    uint32_t ids[TABLE * BLOCK], n_prompt, n_ids, n_run;
    bool entered;
};

struct sample {
    double seconds[MAX_ROUNDS];
    uint64_t n_steps, n_drafted, n_sampled;
};

static struct stream streams[MAX_STREAMS];
static struct executor *executor;
static struct text_tokenizer *tokenizer;
static uint64_t step;

static void die(const char *what, const char *text)
{
    fprintf(stderr, "bench_speculation: %s: %s\n", what, text);
    exit(1);
}

static void encode(struct stream *s, const char *text)
{
    uint32_t *ids;
    size_t n;
    char err[TEXT_ERR_MAX];
    if (text_encode(tokenizer, text, strlen(text), true, TABLE * BLOCK - N_SAMPLED, &ids, &n, err))
        die("encode", err);
    memcpy(s->ids, ids, n * sizeof *ids);
    s->n_prompt = (uint32_t)n;
    text_free(ids);
}

static void prompt(uint32_t i, bool repeats)
{
    static char code[CHUNK + 1], text[2 * CHUNK];
    if (!repeats) {
        encode(&streams[i], openings[i]);
        return;
    }
    FILE *f = fopen(files[i], "r");
    if (!f)
        die(files[i], "run it in the source folder");
    code[fread(code, 1, CHUNK, f)] = '\0';
    fclose(f);
    snprintf(text, sizeof text, "Here is a file:\n```c\n%s```\nThe same file again:\n```c\n%.60s",
             code, code);
    encode(&streams[i], text);
}

static void run_step(uint32_t n, uint32_t n_draft, struct arena *arena, struct sample *out)
{
    struct plan_admit admits[MAX_STREAMS];
    struct plan_run runs[MAX_STREAMS];
    struct plan_blocks tables[MAX_STREAMS][2];
    uint32_t blocks[MAX_STREAMS][TABLE];
    const struct sequences_limits *l = &executor->ops->info(executor)->limits;
    struct msg_plan p = {.step = ++step, .admits = admits, .runs = runs};
    for (uint32_t i = 0; i < n; i++) {
        struct stream *s = &streams[i];
        bool enters = !s->entered;
        s->entered = true;
        if (s->n_ids >= s->n_prompt + N_SAMPLED)
            continue;
        for (uint32_t b = 0; b < TABLE; b++)
            blocks[i][b] = i * TABLE + b;
        for (uint32_t g = 0; g < l->n_kv_groups; g++)
            tables[i][g] = (struct plan_blocks){.i_group = g, .ids = {blocks[i], TABLE}};
        if (enters)
            admits[p.n_admits++] = (struct plan_admit){.slot = i,
                                                       .n_prompt = s->n_prompt,
                                                       .n_computed = s->n_run,
                                                       .ids = {s->ids, s->n_prompt},
                                                       .sampling = {.repetition_penalty = 1,
                                                                    .max_tokens = N_SAMPLED,
                                                                    .n_logprobs = -1,
                                                                    .n_prompt_logprobs = -1}};
        runs[p.n_runs++] = (struct plan_run){.slot = i,
                                             .start = s->n_run,
                                             .n_tokens = s->n_ids - s->n_run,
                                             .n_draft = enters ? 0 : n_draft,
                                             .sample = true,
                                             .blocks = tables[i],
                                             .n_blocks = enters ? l->n_kv_groups : 0};
    }
    struct msg_result r;
    struct error err = {0};
    arena_reset(arena);
    if (executor->ops->step(executor, &p, arena, &r, &err) != STATUS_OK)
        die("step", err.text);
    out->n_steps++;
    out->n_drafted += r.n_drafted;
    for (uint32_t i = 0; i < r.n_items; i++) {
        struct stream *s = &streams[r.items[i].slot];
        for (uint32_t k = 0; k < r.items[i].ids.n; k++)
            s->ids[s->n_ids++] = r.items[i].ids.ptr[k];
        s->n_run = s->n_ids - 1;
        out->n_sampled += r.items[i].ids.n;
    }
}

static bool done(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (streams[i].n_ids < streams[i].n_prompt + N_SAMPLED)
            return false;
    return true;
}

/* Restarts the streams at the prompt's last id; the ids before it stay in the blocks. */
static void enter(uint32_t n, bool computed)
{
    struct error err = {0};
    if (executor->ops->reset(executor, &err) != STATUS_OK)
        die("reset", err.text);
    for (uint32_t i = 0; i < n; i++) {
        streams[i].n_ids = streams[i].n_prompt;
        streams[i].n_run = computed ? streams[i].n_prompt - 1 : 0;
        streams[i].entered = false;
    }
}

static double run_streams(uint32_t n, uint32_t n_draft, struct arena *arena, struct sample *out)
{
    enter(n, true);
    double begin = bench_seconds(CLOCK_PROCESS_CPUTIME_ID);
    while (!done(n))
        run_step(n, n_draft, arena, out);
    return bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
}

static void measure(bool repeats, uint32_t rounds, struct arena *arena)
{
    struct sample ignored = {0};
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        prompt(i, repeats);
    enter(MAX_STREAMS, false);
    run_step(MAX_STREAMS, 0, arena, &ignored);
    for (uint32_t s = 0; s < N_STREAMS; s++) {
        struct sample samples[N_DRAFTS] = {{{0}, 0, 0, 0}};
        for (uint32_t round = 0; round < rounds; round++)
            for (uint32_t k = 0; k < N_DRAFTS; k++)
                samples[k].seconds[round] =
                    run_streams(streams_of[s], drafts_of[k], arena, &samples[k]);
        for (uint32_t k = 0; k < N_DRAFTS; k++) {
            struct sample *x = &samples[k];
            double n_tokens = (double)x->n_sampled / rounds;
            qsort(x->seconds, rounds, sizeof x->seconds[0], order_doubles);
            printf(
                "%-6s %u streams, %u draft tokens: %7.1f tokens/s (%.1f ... %.1f), %5.2f tokens a "
                "step and stream, %5.2f ms a step, %llu draft tokens run\n",
                repeats ? "repeat" : "prose", streams_of[s], drafts_of[k],
                n_tokens / x->seconds[rounds / 2], n_tokens / x->seconds[rounds - 1],
                n_tokens / x->seconds[0], (double)x->n_sampled / (double)x->n_steps / streams_of[s],
                1e3 * x->seconds[rounds / 2] * rounds / (double)x->n_steps,
                (unsigned long long)(x->n_drafted / rounds));
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    const struct worker_options o = {
        .model = argc > 1 ? argv[1] : "demo-base",
        .device = WORKER_DEVICE_CPU,
        .tp = 1,
        .pp = 1,
        .threads = 1,
        .block_size = BLOCK,
        .num_gpu_blocks_override = MAX_STREAMS * TABLE,
        .max_model_len = TABLE * BLOCK,
        .speculation = {.n_tokens = SPECULATION_MAX_TOKENS, .model = argc > 3 ? argv[3] : NULL}};
    struct worker_options own = o;
    uint32_t rounds = argc > 2 ? count_argument(argv, 2, "ROUNDS", 1, MAX_ROUNDS) : 3, n_id = 512;
    char cache[4096], err_text[TEXT_ERR_MAX];
    uint8_t id[512];
    struct error err = {0};
    struct model_info info;
    struct arena arena;
    log_init("bench", LOG_LEVEL_COUNT, LOG_LOGFMT);
    arena_init(&arena, 0);
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    own.cache_dir = cache;
    if (executor_open(&own, &executor, &err) != STATUS_OK ||
        model_info_open(own.model, cache, &info, &err) != STATUS_OK)
        die("open", err.text);
    if (text_tokenizer_open(info.path, cache, &tokenizer, err_text))
        die("tokenizer", err_text);
    const uint32_t n_blocks[2] = {MAX_STREAMS * TABLE, MAX_STREAMS * TABLE};
    const struct executor_info *i = executor->ops->info(executor);
    assert(i->limits.n_kv_groups <= 2);
    if (executor->ops->make_comm_id(executor, id, &n_id, &err) != STATUS_OK ||
        executor->ops->join_comm(
            executor,
            &(struct executor_comm){.term_epoch = 1,
                                    .tp = 1,
                                    .pp = 1,
                                    .isa_level = i->isa_level,
                                    .n_blocks = {n_blocks, i->limits.n_kv_groups},
                                    .id = {id, n_id}},
            &err) != STATUS_OK)
        die("join", err.text);
    printf("%.*s\n", (int)i->device_name.len, i->device_name.ptr);
    fflush(stdout);
    measure(true, rounds, &arena);
    measure(false, rounds, &arena);
    executor->ops->close(executor);
    text_tokenizer_free(tokenizer);
    model_info_fini(&info);
    arena_fini(&arena);
    return 0;
}
