/* Compares one stage of two threads with two stages of one thread each (and with two ranks), for
 * a prompt in chunks and for streams that decode. Plans are passed directly to the executors as
 * fast as these accept them, as from a head with any number of steps in flight. Both wall-clock
 * time and CPU time of the process are measured; rounds are interleaved, figures are medians.
 * The waiting of a stage is only in the wall-clock time; the cost of small passes is in both
 * times. With "dummy" the weights are random, and MODEL is a folder with a config.json. With
 * ROW_US every row sleeps that long in each layer. With a small model nothing else takes time,
 * so the machine may be busy. The first line then has one thread's time, and two stages can be
 * twice as fast. Usage: bench_stages [MODEL [ROUNDS [weights|dummy [ROW_US]]]] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/count.h"
#include "common/base/log.h"
#include "common/base/order.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "worker/executor/device/open.h"
#include "worker/executor/state.h"
#include "worker/runner/state.h"

enum {
    BLOCK = 16,
    MAX_RANKS = 2,
    MAX_STREAMS = 64,
    MAX_ROUNDS = 15,
    N_PROMPT = 512,
    CHUNK = 128,
    N_SHORT = 16,
    N_SAMPLED = 24,
    STREAM_BLOCKS = (N_SHORT + N_SAMPLED + BLOCK - 1) / BLOCK,
    N_BLOCKS = MAX_STREAMS * STREAM_BLOCKS + N_PROMPT / BLOCK,
    MAX_GROUPS = 2
};

static const struct shape {
    uint32_t tp, pp, threads;
} shapes[] = {{1, 1, 2}, {2, 1, 1}, {1, 2, 1}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const struct way {
    const char *name;
    /* pass_rows: most rows of a pass; 0 = as many as the engine takes */
    uint32_t i_shape, pass_rows;
} ways[] = {
    {"one rank, two threads", 0, 0},
    {"two ranks", 1, 0},
    {"two stages", 2, 0},
    {"two stages, passes of 64 rows", 2, 64},
    {"two stages, passes of 32 rows", 2, 32},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* `works` lists the streams of each kind of work; 0 = the prompt. */
static const uint32_t works[] = {0, 1, 8, 32, 64};
enum { N_WORKS = sizeof works / sizeof *works };

struct plans {
    struct msg_plan plans[N_SAMPLED + N_PROMPT / CHUNK];
    struct plan_admit admits[MAX_STREAMS];
    struct plan_run runs[N_SAMPLED + N_PROMPT / CHUNK][MAX_STREAMS];
    struct plan_blocks tables[MAX_STREAMS][MAX_GROUPS];
    uint32_t ids[N_PROMPT], blocks[MAX_STREAMS][N_PROMPT / BLOCK];
    uint32_t n, n_tokens;
};

struct rank {
    struct executor *executor;
    /* communicator that the thread joins; NULL = the thread runs `plans` */
    const struct executor_comm *comm;
    const struct plans *plans;
    struct arena arena;
    pthread_t thread;
};

struct group {
    struct rank ranks[MAX_RANKS];
    uint32_t n_ranks;
};

static void die(const char *what, const char *text)
{
    fprintf(stderr, "bench_stages: %s: %s\n", what, text);
    exit(1);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    const struct executor_ops *ops = r->executor->ops;
    struct msg_result result;
    struct error err = {0};
    if (r->comm && ops->join_comm(r->executor, r->comm, &err) != STATUS_OK)
        die("join", err.text);
    for (uint32_t i = 0; !r->comm && i < r->plans->n; i++) {
        arena_reset(&r->arena);
        if (ops->step(r->executor, &r->plans->plans[i], &r->arena, &result, &err) != STATUS_OK)
            die("step", err.text);
    }
    if (!r->comm && ops->reset(r->executor, &err) != STATUS_OK)
        die("reset", err.text);
    return NULL;
}

/* ---- rows that sleep ---- */

static uint32_t row_us;
static struct ops sleepy;
static void (*real_attention)(struct device *d, const struct attention_params *p);

static void sleep_and_attend(struct device *d, const struct attention_params *p)
{
    uint64_t us = (uint64_t)row_us * p->n_rows;
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    (void)nanosleep(&t, NULL);
    real_attention(d, p);
}

static void make_sleepy(struct runner *r)
{
    sleepy = *r->ops;
    real_attention =
        r->ops->math.attention == sleep_and_attend ? real_attention : r->ops->math.attention;
    sleepy.math.attention = sleep_and_attend;
    r->ops = &sleepy;
}

static double run_group(struct group *g)
{
    double begin = seconds_of(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < g->n_ranks; i++)
        if (pthread_create(&g->ranks[i].thread, NULL, run_rank, &g->ranks[i]) != 0)
            die("thread", "none");
    for (uint32_t i = 0; i < g->n_ranks; i++)
        pthread_join(g->ranks[i].thread, NULL);
    return seconds_of(CLOCK_MONOTONIC) - begin;
}

/* ---- ranks ---- */

static void open_group(struct group *g, const struct shape *shape,
                       const struct worker_options *like)
{
    struct error err = {0};
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n_id = sizeof id;
    static const uint32_t n_blocks[MAX_GROUPS] = {N_BLOCKS, N_BLOCKS};
    struct executor_comm comms[MAX_RANKS];
    struct str addresses[MAX_RANKS];
    g->n_ranks = shape->tp * shape->pp;
    for (uint32_t i = 0; i < g->n_ranks; i++) {
        struct worker_options o = *like;
        o.tp = shape->tp;
        o.pp = shape->pp;
        o.threads = shape->threads;
        o.ordinal = i;
        arena_init(&g->ranks[i].arena, 0);
        if (executor_open(&o, &g->ranks[i].executor, &err) != STATUS_OK)
            die("open", err.text);
        if (row_us > 0)
            make_sleepy(((struct executor_model *)g->ranks[i].executor)->engine->runner);
    }
    struct executor *first = g->ranks[0].executor;
    if (first->ops->make_comm_id(first, id, &n_id, &err) != STATUS_OK)
        die("id", err.text);
    for (uint32_t i = 0; i < g->n_ranks; i++) {
        const struct executor_info *info = first->ops->info(g->ranks[i].executor);
        addresses[i] = info->comm_address;
        comms[i] = (struct executor_comm){.term_epoch = 1,
                                          .tp = shape->tp,
                                          .pp = shape->pp,
                                          .rank = i % shape->tp,
                                          .stage = i / shape->tp,
                                          .isa_level = info->isa_level,
                                          .addresses = addresses,
                                          .n_addresses = g->n_ranks,
                                          .n_blocks = {n_blocks, info->limits.n_kv_groups},
                                          .id = {id, n_id}};
        g->ranks[i].comm = &comms[i];
    }
    (void)run_group(g);
    for (uint32_t i = 0; i < g->n_ranks; i++)
        g->ranks[i].comm = NULL;
}

static void set_pass_rows(struct group *g, uint32_t n)
{
    for (uint32_t i = 0; i < g->n_ranks; i++) {
        struct executor_model *x = (struct executor_model *)g->ranks[i].executor;
        batch_fini(&x->batch);
        batch_init(&x->batch, n ? n : x->engine->pass_rows, x->engine->program->n_kv_groups);
        batch_set_stages(&x->batch, n ? 1 : x->place.pp);
    }
}

/* ---- plans ---- */

static void add_stream(struct plans *p, uint32_t i, uint32_t n_ids, uint32_t n_groups)
{
    p->admits[i] = (struct plan_admit){.slot = i,
                                       .n_prompt = n_ids,
                                       .ids = {p->ids, n_ids},
                                       .sampling = {.repetition_penalty = 1,
                                                    .max_tokens = N_SAMPLED,
                                                    .n_logprobs = -1,
                                                    .n_prompt_logprobs = -1}};
    uint32_t n = (n_ids + N_SAMPLED + BLOCK - 1) / BLOCK;
    n = n_ids == N_PROMPT ? N_PROMPT / BLOCK : n;
    for (uint32_t b = 0; b < n; b++)
        p->blocks[i][b] =
            n_ids == N_PROMPT ? MAX_STREAMS * STREAM_BLOCKS + b : i * STREAM_BLOCKS + b;
    for (uint32_t g = 0; g < n_groups; g++)
        p->tables[i][g] = (struct plan_blocks){.i_group = g, .ids = {p->blocks[i], n}};
}

static struct plan_run run_of_prompt(const struct plans *p, uint32_t step)
{
    return (struct plan_run){.blocks = p->tables[0], .start = step * CHUNK, .n_tokens = CHUNK};
}

static struct plan_run run_of_stream(const struct plans *p, uint32_t i, uint32_t step)
{
    return (struct plan_run){.slot = i,
                             .blocks = p->tables[i],
                             .sample = true,
                             .start = step == 0 ? 0 : N_SHORT + step - 1,
                             .n_tokens = step == 0 ? N_SHORT : 1};
}

/* Makes the plans of one prompt, which samples nothing, or of streams that sample. */
static void make_plans(struct plans *p, uint32_t n_streams, const struct sequences_limits *l)
{
    uint32_t n_ids = n_streams ? N_SHORT : N_PROMPT, n_runs = n_streams ? n_streams : 1;
    *p = (struct plans){.n = n_streams ? N_SAMPLED : N_PROMPT / CHUNK,
                        .n_tokens = n_streams ? n_streams * N_SAMPLED : N_PROMPT};
    for (uint32_t k = 0; k < N_PROMPT; k++)
        p->ids[k] = (k * 7919 + 13) % l->vocab_size;
    for (uint32_t i = 0; i < n_runs; i++)
        add_stream(p, i, n_ids, l->n_kv_groups);
    for (uint32_t step = 0; step < p->n; step++) {
        p->plans[step] = (struct msg_plan){.step = step + 1,
                                           .admits = p->admits,
                                           .n_admits = step == 0 ? n_runs : 0,
                                           .runs = p->runs[step],
                                           .n_runs = n_runs};
        for (uint32_t i = 0; i < n_runs; i++)
            p->runs[step][i] = n_streams ? run_of_stream(p, i, step) : run_of_prompt(p, step);
        for (uint32_t i = 0; i < n_runs; i++)
            p->runs[step][i].n_blocks = step == 0 ? l->n_kv_groups : 0;
    }
}

/* ---- measuring ---- */

static double seconds[N_WAYS][MAX_ROUNDS], cpu[N_WAYS][MAX_ROUNDS];

/* Measures all layouts with one kind of work, in turns; the first round is not counted. */
static void measure(struct group *groups, struct plans *plans, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds + 1; round++)
        for (uint32_t i = 0; i < N_WAYS; i++) {
            struct group *g = &groups[ways[i].i_shape];
            set_pass_rows(g, ways[i].pass_rows);
            for (uint32_t r = 0; r < g->n_ranks; r++)
                g->ranks[r].plans = plans;
            double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID), took = run_group(g);
            if (round == 0)
                continue;
            seconds[i][round - 1] = took;
            cpu[i][round - 1] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin;
        }
}

static void print_figures(uint32_t n_streams, const struct plans *plans, uint32_t rounds)
{
    if (n_streams == 0)
        printf("a prompt of %d tokens in steps of %d\n", N_PROMPT, CHUNK);
    else
        printf("%u streams, %d tokens each\n", n_streams, N_SAMPLED);
    for (uint32_t i = 0; i < N_WAYS; i++) {
        qsort(seconds[i], rounds, sizeof seconds[i][0], order_doubles);
        qsort(cpu[i], rounds, sizeof cpu[i][0], order_doubles);
        printf("  %-30s %8.1f tokens/s (%.1f ... %.1f), %8.1f by CPU time\n", ways[i].name,
               plans->n_tokens / seconds[i][rounds / 2], plans->n_tokens / seconds[i][rounds - 1],
               plans->n_tokens / seconds[i][0], plans->n_tokens / cpu[i][rounds / 2]);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct group groups[N_SHAPES];
    static struct plans plans;
    uint32_t rounds = argc > 2 ? count_argument(argv, 2, "ROUNDS", 1, MAX_ROUNDS) : 5;
    char cache[4096];
    const struct worker_options o = {.model = argc > 1 ? argv[1] : "demo-base",
                                     .cache_dir = cache,
                                     .device = WORKER_DEVICE_CPU,
                                     .load_format = argc > 3 && strcmp(argv[3], "dummy") == 0
                                                        ? WORKER_LOAD_DUMMY
                                                        : WORKER_LOAD_AUTO,
                                     .comm_host = "127.0.0.1",
                                     .block_size = BLOCK,
                                     .num_gpu_blocks_override = N_BLOCKS,
                                     .max_model_len = N_PROMPT + BLOCK};
    log_init("bench", LOG_LEVEL_COUNT, LOG_LOGFMT);
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    row_us = argc > 4 ? count_argument(argv, 4, "ROW_US", 0, 1000000) : 0;
    for (uint32_t i = 0; i < N_SHAPES; i++)
        open_group(&groups[i], &shapes[i], &o);
    const struct executor *first = groups[0].ranks[0].executor;
    for (uint32_t w = 0; w < N_WORKS; w++) {
        make_plans(&plans, works[w], &first->ops->info(first)->limits);
        measure(groups, &plans, rounds);
        print_figures(works[w], &plans, rounds);
    }
    return 0;
}
