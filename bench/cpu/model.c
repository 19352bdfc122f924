/* Runs one rank of the CPU device for bench/cpu-peers, by commands on stdin. Plans go directly
 * to the executor, so the measured work is that of llama_decode. Times are wall-clock times;
 * sampling is greedy; the KV cache has the model's default dtype. Prompts of streams are not
 * timed. Each command is answered by a line of JSON.
 * Usage: bench_cpu_model [MODEL THREADS [auto|scalar|avx2|avx512|neon [LONGEST]]]
 * LONGEST is the maximum length of a sequence in tokens (default 2048). Commands, one a line:
 *   info                             describe the device and the model
 *   read THREADS                     bytes/s of reading memory on huge pages
 *   prompt TOKENS                    seconds of one prompt; its last position is sampled
 *   decode STREAMS STEPS PROMPT      seconds of STEPS steps of a token for each stream
 *   greedy TOKENS ID...              the tokens sampled after these
 * For long contexts (bench/long-context), where computing the prompt would take minutes:
 *   fill POSITION                    made-up keys and values before POSITION; no prompt is computed
 *   chunk TOKENS POSITION            seconds of one pass over TOKENS prompt tokens from POSITION on
 *   decode-at STEPS POSITION         seconds of STEPS steps of a stream from POSITION on
 *   linears ROWS [KEPT]              seconds and FLOPs of all matrix products, KEPT rows at the end
 *   attention ROWS POSITION LAYERS   seconds and FLOPs of attention alone, in LAYERS layers */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/count.h"
#include "bench/cpu/parts.h"
#include "bench/seconds.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "kernels/cpu/cpu.h"
#include "worker/executor/device/open.h"
#include "worker/executor/state.h"

enum { BLOCK = 16, MAX_STREAMS = 64, MAX_IDS = 40960, MAX_GROUPS = 2, MAX_READERS = 64 };
enum { MAX_THREADS = 1024 };
enum { DEFAULT_IDS = 2048 };
enum { TABLE = MAX_IDS / BLOCK, N_BLOCKS = 4096 };
#define READ_BYTES ((size_t)2 << 30)

struct stream {
    uint32_t ids[MAX_IDS], n_prompt, n_ids, n_run;
    uint32_t blocks[TABLE], n_blocks;
    bool entered;
};

static struct stream streams[MAX_STREAMS];
static struct executor *executor;
static struct arena arena;
static uint64_t step_of_epoch;
static uint32_t max_ids = DEFAULT_IDS; /* maximum length of a sequence in tokens */

static void die(const char *what, const char *text)
{
    fprintf(stderr, "bench_cpu_model: %s: %s\n", what, text);
    exit(1);
}

/* ---- the executor ---- */

static struct executor *open_model(const char *model, uint32_t threads, const char *isa)
{
    static char cache[4096];
    struct worker_options o = {.model = model,
                               .cache_dir = cache,
                               .device = WORKER_DEVICE_CPU,
                               .tp = 1,
                               .pp = 1,
                               .threads = threads,
                               .block_size = BLOCK,
                               .num_gpu_blocks_override = N_BLOCKS,
                               .max_model_len = max_ids};
    struct executor *e;
    struct error err = {0};
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    /* `names` holds the values of --cpu-isa. */
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(isa, names[i]) == 0)
            o.cpu_isa = i + 1;
    if (o.cpu_isa == 0 && strcmp(isa, "auto") != 0)
        die(isa, "no such instruction set");
    if (executor_open(&o, &e, &err) != STATUS_OK)
        die("open", err.text);
    return e;
}

static void join(struct executor *e)
{
    static const uint32_t n_blocks[MAX_GROUPS] = {N_BLOCKS, N_BLOCKS};
    const struct executor_info *i = e->ops->info(e);
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n_id = sizeof id;
    struct error err = {0};
    if (i->limits.n_kv_groups > MAX_GROUPS)
        die("open", "more KV groups than this program knows");
    if (e->ops->make_comm_id(e, id, &n_id, &err) != STATUS_OK)
        die("id", err.text);
    struct executor_comm c = {.term_epoch = 1,
                              .tp = 1,
                              .pp = 1,
                              .isa_level = i->isa_level,
                              .n_blocks = {n_blocks, i->limits.n_kv_groups},
                              .id = {id, n_id}};
    if (e->ops->join_comm(e, &c, &err) != STATUS_OK)
        die("join", err.text);
}

/* Runs a step of all streams, each with its prompt or with the token that it sampled last. */
static void run_step(uint32_t n)
{
    struct plan_admit admits[MAX_STREAMS];
    struct plan_run runs[MAX_STREAMS];
    struct plan_blocks tables[MAX_STREAMS][MAX_GROUPS];
    uint32_t n_groups = executor->ops->info(executor)->limits.n_kv_groups;
    struct msg_plan p = {.step = ++step_of_epoch, .admits = admits, .runs = runs, .n_runs = n};
    for (uint32_t i = 0; i < n; i++) {
        struct stream *s = &streams[i];
        for (uint32_t g = 0; g < n_groups; g++)
            tables[i][g] = (struct plan_blocks){.i_group = g, .ids = {s->blocks, s->n_blocks}};
        if (!s->entered)
            admits[p.n_admits++] = (struct plan_admit){.slot = i,
                                                       .n_prompt = s->n_prompt,
                                                       .ids = {s->ids, s->n_prompt},
                                                       .sampling = {.top_p = 1,
                                                                    .repetition_penalty = 1,
                                                                    .max_tokens = max_ids,
                                                                    .n_logprobs = -1,
                                                                    .n_prompt_logprobs = -1}};
        runs[i] = (struct plan_run){.slot = i,
                                    .start = s->n_run,
                                    .n_tokens = s->n_ids - s->n_run,
                                    .sample = true,
                                    .blocks = tables[i],
                                    .n_blocks = s->entered ? 0 : n_groups};
        s->entered = true;
    }
    struct msg_result r;
    struct error err = {0};
    arena_reset(&arena);
    if (executor->ops->step(executor, &p, &arena, &r, &err) != STATUS_OK)
        die("step", err.text);
    if (r.n_items != n)
        die("step", "a stream sampled nothing");
    for (uint32_t i = 0; i < n; i++) {
        struct stream *s = &streams[r.items[i].slot];
        s->n_run = s->n_ids;
        s->ids[s->n_ids++] = r.items[i].ids.ptr[0];
    }
}

/* Starts n streams with n_prompt ids each and KV blocks for n_more. */
static void enter(uint32_t n, uint32_t n_prompt, uint32_t n_more)
{
    uint32_t n_blocks = (n_prompt + n_more + BLOCK) / BLOCK;
    uint32_t n_vocab = executor->ops->info(executor)->limits.vocab_size;
    struct error err = {0};
    if (n == 0 || n > MAX_STREAMS || n_prompt == 0 || n_prompt + n_more >= max_ids ||
        n * n_blocks > N_BLOCKS)
        die("enter", "that many streams or tokens do not fit");
    if (executor->ops->reset(executor, &err) != STATUS_OK)
        die("reset", err.text);
    for (uint32_t i = 0; i < n; i++) {
        struct stream *s = &streams[i];
        *s = (struct stream){.n_prompt = n_prompt, .n_ids = n_prompt, .n_blocks = n_blocks};
        for (uint32_t k = 0; k < n_prompt; k++) /* cpu_llama.py and cpu_vllm.py make the same ids */
            s->ids[k] = (uint32_t)((k * 7919ull + i * 104729ull + 13) % n_vocab);
        for (uint32_t b = 0; b < n_blocks; b++)
            s->blocks[b] = i * n_blocks + b;
    }
}

static void info(void)
{
    const struct executor_info *i = executor->ops->info(executor);
    const struct engine *e = ((struct executor_model *)executor)->engine;
    printf(
        "{\"device\": \"%.*s\", \"kv\": \"%s\", \"vocab\": %u, \"weights\": %llu, \"layers\": %u, "
        "\"kv_token_bytes\": %llu}\n",
        (int)i->device_name.len, i->device_name.ptr, dtype_traits(e->kv_dtype).name,
        i->limits.vocab_size, (unsigned long long)i->weights_bytes, e->config.n_layers,
        (unsigned long long)e->shapes[0].block_bytes[0] / BLOCK);
}

static void prompt(uint32_t n)
{
    enter(1, n, 1);
    double begin = bench_seconds(CLOCK_MONOTONIC);
    run_step(1);
    printf("{\"seconds\": %.9f, \"tokens\": %u}\n", bench_seconds(CLOCK_MONOTONIC) - begin, n);
}

static void decode(uint32_t n_streams, uint32_t n_steps, uint32_t n_prompt)
{
    enter(n_streams, n_prompt, n_steps + 2);
    run_step(n_streams);
    run_step(n_streams); /* the first step of each kind allocates buffers, so it is not measured */
    double begin = bench_seconds(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < n_steps; i++)
        run_step(n_streams);
    printf("{\"seconds\": %.9f, \"tokens\": %u}\n", bench_seconds(CLOCK_MONOTONIC) - begin,
           n_streams * n_steps);
}

static void greedy(uint32_t n, char *ids)
{
    static uint32_t given[MAX_IDS];
    uint32_t n_given = 0;
    for (char *word = strtok(ids, " "); word && n_given < MAX_IDS; word = strtok(NULL, " "))
        given[n_given++] = (uint32_t)strtoul(word, NULL, 10);
    enter(1, n_given, n);
    memcpy(streams[0].ids, given, n_given * sizeof *given);
    for (uint32_t i = 0; i < n; i++)
        run_step(1);
    printf("{\"ids\": [");
    for (uint32_t i = 0; i < n; i++)
        printf("%s%u", i ? ", " : "", streams[0].ids[n_given + i]);
    printf("]}\n");
}

/* ---- long contexts ---- */

static struct engine *engine(void)
{
    return ((struct executor_model *)executor)->engine;
}

static void fill(uint32_t position)
{
    const char *why = cpu_parts_fill(engine(), (position + BLOCK - 1) / BLOCK);
    if (why)
        die("fill", why);
    printf("{\"filled\": %u}\n", position);
}

/* Starts a stream whose first tokens already have keys and values in the KV cache, computed or
 * made up. */
static void enter_at(uint32_t position, uint32_t n, uint32_t n_more)
{
    enter(1, position + n, n_more);
    streams[0].n_run = position;
}

static void chunk(uint32_t n, uint32_t position)
{
    enter_at(position, n, 1);
    double begin = bench_seconds(CLOCK_MONOTONIC);
    run_step(1);
    printf("{\"seconds\": %.9f, \"tokens\": %u}\n", bench_seconds(CLOCK_MONOTONIC) - begin, n);
}

static void decode_at(uint32_t n_steps, uint32_t position)
{
    enter_at(position, 1, n_steps + 1);
    run_step(1);
    double begin = bench_seconds(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < n_steps; i++)
        run_step(1);
    printf("{\"seconds\": %.9f, \"tokens\": %u}\n", bench_seconds(CLOCK_MONOTONIC) - begin,
           n_steps);
}

static void linears(uint32_t n_rows, uint32_t n_kept)
{
    struct part_time t = cpu_parts_linears(engine(), n_rows, n_kept);
    printf("{\"seconds\": %.9f, \"flops\": %.0f}\n", t.seconds, t.flops);
}

static void attention(uint32_t n_rows, uint32_t position, uint32_t n_layers)
{
    uint32_t n_done;
    enter(1, position + n_rows, 1);
    struct part_time t =
        cpu_parts_attention(engine(), n_rows, position, streams[0].blocks, n_layers, &n_done);
    printf("{\"seconds\": %.9f, \"flops\": %.0f, \"layers\": %u}\n", t.seconds, t.flops, n_done);
}

/* ---- the memory's bandwidth ---- */

typedef uint64_t lanes __attribute__((vector_size(64)));

struct reader {
    pthread_t thread;
    const lanes *from;
    size_t n;
    pthread_barrier_t *barrier;
    double begin, end;
    uint64_t sum;
};

#if defined __x86_64__
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static uint64_t
sum_of(const lanes *from, size_t n)
{
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 4 <= n; i += 4) {
        a += from[i];
        b += from[i + 1];
        c += from[i + 2];
        d += from[i + 3];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

static void *run_reader(void *arg)
{
    struct reader *r = arg;
    pthread_barrier_wait(r->barrier);
    r->begin = bench_seconds(CLOCK_MONOTONIC);
    r->sum = sum_of(r->from, r->n);
    r->end = bench_seconds(CLOCK_MONOTONIC);
    return NULL;
}

static const lanes *memory_to_read(void)
{
    static char *memory;
    if (memory)
        return (const lanes *)memory;
    memory = mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap", "no memory");
    (void)madvise(memory, READ_BYTES, MADV_HUGEPAGE);
    memset(memory, 1, READ_BYTES); /* the kernel maps all unwritten pages to one page of zeros */
    return (const lanes *)memory;
}

static void read_memory(uint32_t n)
{
    struct reader readers[MAX_READERS];
    const lanes *from = memory_to_read();
    pthread_barrier_t barrier;
    double begin = HUGE_VAL, end = 0;
    uint64_t sum = 0;
    if (n == 0 || n > MAX_READERS)
        die("read", "that many threads are not supported");
    pthread_barrier_init(&barrier, NULL, n);
    for (uint32_t i = 0; i < n; i++) {
        size_t part = READ_BYTES / sizeof *from / n;
        readers[i] = (struct reader){.from = from + i * part, .n = part, .barrier = &barrier};
        if (pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]) != 0)
            die("read", "no thread");
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        begin = readers[i].begin < begin ? readers[i].begin : begin;
        end = readers[i].end > end ? readers[i].end : end;
        sum += readers[i].sum;
    }
    pthread_barrier_destroy(&barrier);
    printf("{\"bytes_per_second\": %.0f, \"sum\": %llu}\n", (double)READ_BYTES / (end - begin),
           (unsigned long long)sum);
}

static void answer(char *line)
{
    unsigned a = 0, b = 0, c = 0;
    int at = 0;
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "read %u", &a) == 1)
        read_memory(a);
    else if (!executor)
        die(line, "there is no model");
    else if (strcmp(line, "info") == 0)
        info();
    else if (sscanf(line, "prompt %u", &a) == 1)
        prompt(a);
    else if (sscanf(line, "decode %u %u %u", &a, &b, &c) == 3)
        decode(a, b, c);
    else if (sscanf(line, "fill %u", &a) == 1)
        fill(a);
    else if (sscanf(line, "chunk %u %u", &a, &b) == 2)
        chunk(a, b);
    else if (sscanf(line, "decode-at %u %u", &a, &b) == 2)
        decode_at(a, b);
    else if (sscanf(line, "linears %u %u", &a, &b) == 2 && b <= a)
        linears(a, b);
    else if (sscanf(line, "linears %u", &a) == 1)
        linears(a, a);
    else if (sscanf(line, "attention %u %u %u", &a, &b, &c) == 3)
        attention(a, b, c);
    else if (sscanf(line, "greedy %u %n", &a, &at) == 1)
        greedy(a, line + at);
    else
        die(line, "no such command");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[MAX_IDS * 8];
    log_init("bench", LOG_LEVEL_COUNT, LOG_LOGFMT);
    arena_init(&arena, 0);
    if (argc == 2 || argc > 5) {
        fprintf(stderr,
                "usage: %s [MODEL THREADS [LEVEL [LONGEST]]] (bench/cpu/model.c says more)\n",
                argv[0]);
        return 2;
    }
    if (argc > 4)
        max_ids = count_argument(argv, 4, "LONGEST", 2, MAX_IDS);
    if (argc > 2) {
        uint32_t threads = count_argument(argv, 2, "THREADS", 1, MAX_THREADS);
        executor = open_model(argv[1], threads, argc > 3 ? argv[3] : "auto");
        join(executor);
    }
    while (fgets(line, sizeof line, stdin))
        answer(line);
    if (executor)
        executor->ops->close(executor);
    arena_fini(&arena);
    return 0;
}
