/* Measures how long a GPU worker takes from its start to its first token, with a checkpoint in
 * the page cache. The same run measures the rate of the link to the device for comparison
 * (ceilings.h). The bars are in bars.h. The checkpoint has the names and shapes of a Llama model
 * and no numbers: a file with a header and a hole. The bench reads the checkpoint once before
 * the clock starts, and mincore checks that its pages are in memory.
 *
 * ready: the time from the start of a process, which has not called the driver, to the first
 * token for a prompt of one token. Each round is a separate process, as a worker's start is. The
 * figure is the median of the rounds.
 *
 * link: bytes of the weights on the device, divided by the seconds of reading them, as a
 * fraction of a pinned copy's rate. Only loading counts, without opening files and allocating
 * memory. The figure is the median of the rounds.
 *
 * Usage: cuda_ready_bench [SHAPE_FOLDER [FOLDER]] [--seconds N] Default:
 * bench/models/llama31_8b, written to build/gpu-ready (16 GB of page cache, nothing on the
 * disk). Only this shape is judged. Exit status: bars.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/gpu/ceilings.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "worker/engine/engine.h"
#include "worker/executor/device/open.h"
#include "worker/executor/state.h"

enum { N_ROUNDS = 3, MAX_GROUPS = 8, BLOCK = 16, MODEL_LEN = 8192 };
#define JUDGED_SHAPE "bench/models/llama31_8b"

static void die(const char *what, const char *path)
{
    fprintf(stderr, "cuda_ready_bench: %s: %s: %s\n", path, what, strerror(errno));
    exit(1);
}

/* ---- the checkpoint ---- */

struct header {
    struct strbuf text;
    uint64_t end; /* offset in bytes behind the tensors added so far */
};

static void add_tensor(struct header *h, const char *name, uint32_t n, uint32_t k)
{
    const uint64_t end = h->end + 2ull * n * (k ? k : 1);
    char shape[32];
    snprintf(shape, sizeof shape, k ? "%u,%u" : "%u", n, k);
    strbuf_printf(
        &h->text, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
        h->end > 0 ? "," : "{", name, shape, (unsigned long long)h->end, (unsigned long long)end);
    h->end = end;
}

static void add_norm(struct header *h, const struct op *o)
{
    char name[TENSOR_NAME_MAX];
    tensor_name_format(&o->norm.name, MODEL_HF, o->layer, 0, name);
    add_tensor(h, name, o->norm.dim, 0);
}

/* Adds the tensors that the shape's program loads. Requires a Llama shape, where each tensor is
 * one operator's matrix. */
static void add_program(struct header *h, const struct program *p)
{
    char name[TENSOR_NAME_MAX];
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct op_weight *w = &p->weights[i];
        tensor_name_format(&w->name, MODEL_HF, w->layer, w->expert, name);
        add_tensor(h, name, w->n, w->k);
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == OP_NORM)
            add_norm(h, &p->ops[i]);
    add_norm(h, &p->final_norm);
}

static void write_checkpoint(const char *path, struct header *h)
{
    strbuf_append_c(&h->text, "}");
    while (h->text.len % 8)
        strbuf_append_c(&h->text, " ");
    uint64_t n = h->text.len;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, &n, sizeof n) != sizeof n ||
        write(fd, h->text.ptr, h->text.len) != (ssize_t)h->text.len ||
        ftruncate(fd, (off_t)(sizeof n + h->text.len + h->end)) != 0)
        die("write", path);
    close(fd);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!in || !out)
        die("copy", in ? to : from);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    if (n == sizeof bytes || fwrite(bytes, 1, n, out) != n)
        die("copy", to);
    fclose(in);
    fclose(out);
}

/* Reads every page of the file once. Returns the fraction of its pages that is in memory
 * afterwards. */
static double warm(const char *path)
{
    struct stat st;
    char *bytes = mem_array(1 << 20, 1);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0)
        die("open", path);
    while (read(fd, bytes, 1 << 20) > 0)
        ;
    mem_free(bytes);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = ((size_t)st.st_size + page - 1) / page;
    unsigned char *there = mem_array(n, 1);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || mincore(map, (size_t)st.st_size, there) != 0)
        die("mincore", path);
    size_t n_there = 0;
    for (size_t i = 0; i < n; i++)
        n_there += there[i] & 1;
    munmap(map, (size_t)st.st_size);
    mem_free(there);
    close(fd);
    return (double)n_there / (double)n;
}

/* Writes the checkpoint; returns the length of sequences to serve. */
static uint32_t make_checkpoint(const char *shape, const char *folder, const char *cache)
{
    double there;
    struct error err = {0};
    struct engine *e;
    struct header h = {.end = 0};
    char from[4096], to[4096];
    const struct engine_setup s = {.model = shape,
                                   .cache_dir = cache,
                                   .load_format = WORKER_LOAD_DUMMY,
                                   .tp = 1,
                                   .isa_level = -1,
                                   .block_tokens = BLOCK};
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        die("mkdir", folder);
    must(engine_measure(&s, &e, &err), &err, shape);
    strbuf_init(&h.text, 0);
    add_program(&h, e->program);
    uint32_t length = e->max_model_len < MODEL_LEN ? e->max_model_len : MODEL_LEN;
    engine_close(e);
    snprintf(to, sizeof to, "%s/model.safetensors", folder);
    write_checkpoint(to, &h);
    there = warm(to);
    if (there < 0.999)
        printf("only %.0f %% of %s are in the page cache: what follows is the disk's as well\n",
               there * 100, to);
    strbuf_fini(&h.text);
    snprintf(from, sizeof from, "%s/config.json", shape);
    snprintf(to, sizeof to, "%s/config.json", folder);
    copy_file(from, to);
    return length;
}

/* ---- measuring ---- */

/* Runs a prompt of one token until its first token. */
static void first_token(struct executor *e)
{
    struct error err = {0};
    struct msg_result result;
    struct arena arena;
    const struct executor_info *info = e->ops->info(e);
    uint32_t counts[MAX_GROUPS], id = 1, block = 0, n_id = COMM_ID_MAX_BYTES;
    uint8_t comm_id[COMM_ID_MAX_BYTES];
    struct plan_blocks tables[MAX_GROUPS];
    for (uint32_t g = 0; g < info->limits.n_kv_groups; g++) {
        counts[g] = info->limits.kv_groups[g].n_blocks;
        tables[g] = (struct plan_blocks){.i_group = g, .ids = {&block, 1}};
    }
    must(e->ops->make_comm_id(e, comm_id, &n_id, &err), &err, "id");
    const struct executor_comm comm = {.term_epoch = 1,
                                       .tp = 1,
                                       .pp = 1,
                                       .isa_level = info->isa_level,
                                       .n_blocks = {counts, info->limits.n_kv_groups},
                                       .id = {comm_id, n_id}};
    must(e->ops->join_comm(e, &comm, &err), &err, "join");
    const struct plan_admit admit = {.n_prompt = 1,
                                     .ids = {&id, 1},
                                     .sampling = {.repetition_penalty = 1,
                                                  .top_p = 1,
                                                  .max_tokens = 1,
                                                  .n_logprobs = -1,
                                                  .n_prompt_logprobs = -1}};
    const struct plan_run run = {
        .blocks = tables, .n_blocks = info->limits.n_kv_groups, .n_tokens = 1, .sample = true};
    const struct msg_plan plan = {
        .step = 1, .admits = &admit, .n_admits = 1, .runs = &run, .n_runs = 1};
    arena_init(&arena, 0);
    must(e->ops->step(e, &plan, &arena, &result, &err), &err, "step");
    arena_fini(&arena);
}

/* `round` holds the figures of one round, in memory that its process shares with the parent. */
struct round {
    /* open, ready, load: seconds; weights: bytes; link: bytes per second */
    double open, ready, load, weights, link;
    bool is_emulated;
};
struct job {
    const char *folder, *cache;
    uint32_t max_len;
    struct round *out;
};

static void measure_link(const struct job *j)
{
    struct ceilings c;
    ceilings_open(&c, "cuda_ready_bench");
    j->out->is_emulated = c.is_emulated;
    j->out->link = ceilings_link_rate(&c);
    printf("link: %.1f GB/s from pinned memory\n", j->out->link / 1e9);
    ceilings_close(&c);
}

static void measure_round(const struct job *j)
{
    struct executor *x;
    struct error err = {0};
    const struct worker_options o = {.model = j->folder,
                                     .cache_dir = j->cache,
                                     .device = WORKER_DEVICE_CUDA,
                                     .load_format = WORKER_LOAD_SAFETENSORS,
                                     .block_size = BLOCK,
                                     .gpu = -1,
                                     .gpu_memory_utilization = 0.92,
                                     .max_model_len = j->max_len,
                                     .tp = 1,
                                     .pp = 1};
    log_init("bench", LOG_INFO, LOG_LOGFMT);
    uint64_t begin = clock_mono_ns();
    must(executor_open(&o, &x, &err), &err, "open");
    j->out->open = (double)(clock_mono_ns() - begin) / 1e9;
    first_token(x);
    j->out->ready = (double)(clock_mono_ns() - begin) / 1e9;
    const struct engine *e = ((struct executor_model *)x)->engine;
    j->out->load = (double)e->load_ns / 1e9;
    j->out->weights = (double)x->ops->info(x)->weights_bytes;
    printf("ready after %.2f s: files and sizes %.2f, KV cache %.2f, weights %.2f (%.1f GB/s), the "
           "rest of opening %.2f (driver, libraries), first token %.2f\n",
           j->out->ready, (double)e->measure_ns / 1e9, (double)e->kv_ns / 1e9, j->out->load,
           j->out->weights / j->out->load / 1e9,
           j->out->open - (double)(e->measure_ns + e->kv_ns + e->load_ns) / 1e9,
           j->out->ready - j->out->open);
    x->ops->close(x);
}

/* Runs fn in a separate process. The parent never calls the driver, so every round must
 * initialise the driver. Ends the program when the child failed. */
static void run_alone(void (*fn)(const struct job *), const struct job *j)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        fn(j);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        die("fork", j->folder);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : BARS_BELOW);
}

static void judge(struct bars *b, const struct round *rounds, uint32_t n, bool is_judged)
{
    double readies[N_ROUNDS], parts[N_ROUNDS];
    for (uint32_t i = 0; i < n; i++) {
        readies[i] = rounds[i].ready;
        parts[i] = rounds[i].weights / rounds[i].load / rounds[0].link;
    }
    bars_figure(b, "8B of bfloat16 from the page cache to its first token", "s",
                ceilings_median(readies, n), is_judged ? BAR_AT_MOST : BAR_NONE, BAR_READY_SECONDS);
    bars_figure(b, "its weights read", "of the link's rate", ceilings_median(parts, n),
                is_judged ? BAR_AT_LEAST : BAR_NONE, BAR_LINK);
}

int main(int argc, char **argv)
{
    const char *names[2] = {JUDGED_SHAPE, "build/gpu-ready"};
    uint32_t n_names = 0, n_rounds = 0;
    double seconds = 0, last = 0;
    char cache[4096];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            seconds = strtod(argv[++i], NULL);
        } else if (argv[i][0] != '-' && n_names < 2) {
            names[n_names++] = argv[i];
        } else {
            fprintf(stderr, "usage: cuda_ready_bench [SHAPE_FOLDER [FOLDER]] [--seconds N]\n");
            return 2;
        }
    }
    struct round *rounds = mmap(NULL, sizeof *rounds * N_ROUNDS, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rounds == MAP_FAILED)
        die("mmap", "rounds");
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    struct job j = {.folder = names[1], .cache = cache, .out = rounds};
    run_alone(measure_link, &j);
    struct bars b;
    bars_open(&b, "cuda_ready_bench", rounds[0].is_emulated, seconds);
    j.max_len = make_checkpoint(names[0], names[1], cache);
    while (n_rounds < N_ROUNDS && (n_rounds == 0 || bars_seconds_left(&b) > 1.5 * last)) {
        j.out = &rounds[n_rounds];
        run_alone(measure_round, &j);
        last = rounds[n_rounds++].ready;
    }
    judge(&b, rounds, n_rounds, strcmp(names[0], JUDGED_SHAPE) == 0);
    return (int)bars_close(&b);
}
