/* How long a GPU's worker takes from nothing to its first token with a checkpoint that is in the
 * page cache, beside what the link to the device carries in the same run. The checkpoint has the
 * names and shapes of a Llama's and no numbers: a file with a header and a hole, read once before
 * the clock begins, so that its pages are there. The log's lines tell where the time goes.
 *
 * Usage: cuda_ready_bench [SHAPE_FOLDER [FOLDER]]: of bench/models/llama31_8b, written to
 * build/gpu-ready (16 GB of page cache, nothing on the disk). Exit status 77 without a device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/model_info.h"
#include "kernels/cuda/cuda_ops.h"
#include "worker/executor_model.h"

enum { N_ROUNDS = 3, MAX_GROUPS = 8, BLOCK = 16, MODEL_LEN = 8192 };
#define LINK_BYTES (1ull << 30)

static void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "cuda_ready_bench: %s: %s: %s\n", what, status_name(s), err->text);
    exit(s == STATUS_UNSUPPORTED ? 77 : 1);
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "cuda_ready_bench: %s: %s: %s\n", path, what, strerror(errno));
    exit(1);
}

/* ---- the checkpoint ---- */

struct header {
    struct strbuf text;
    uint64_t end; /* of the tensors so far */
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

/* What the program of the shape loads. Only a Llama's tensors are matrices of one operator each. */
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

/* Every page of it once. */
static void warm(const char *path)
{
    struct stat st;
    char *bytes = mem_array(1 << 20, 1);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0)
        die("open", path);
    while (read(fd, bytes, 1 << 20) > 0)
        ;
    close(fd);
    mem_free(bytes);
}

/* Returns the length of sequences to serve. */
static uint32_t make_checkpoint(const char *shape, const char *folder, const char *cache)
{
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
    warm(to);
    strbuf_fini(&h.text);
    snprintf(from, sizeof from, "%s/config.json", shape);
    snprintf(to, sizeof to, "%s/config.json", folder);
    copy_file(from, to);
    return length;
}

/* ---- measuring ---- */

/* Bytes per second from pinned memory to the device. */
static double link_rate(void)
{
    struct error err = {0};
    struct gpu_device *d;
    struct gpu_stream *s;
    void *host, *device;
    must(gpu_device_open(0, &d, &err), &err, "device");
    must(gpu_stream_new(d, &s, &err), &err, "stream");
    must(gpu_host_alloc(d, LINK_BYTES, &host, &err), &err, "pinned memory");
    must(gpu_alloc(d, LINK_BYTES, &device, &err), &err, "memory");
    memset(host, 1, LINK_BYTES);
    double best = 0;
    for (int i = 0; i < 5; i++) {
        uint64_t begin = clock_mono_ns();
        must(gpu_copy_to_device(s, device, host, LINK_BYTES, &err), &err, "copy");
        must(gpu_stream_sync(s, &err), &err, "copy");
        double rate = (double)LINK_BYTES * 1e9 / (double)(clock_mono_ns() - begin);
        best = rate > best ? rate : best;
    }
    gpu_release(d, device);
    gpu_host_release(d, host);
    gpu_stream_free(s);
    gpu_device_close(d);
    return best;
}

/* A prompt of one token and what comes behind it. */
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
    const struct plan_admit admit = {
        .n_prompt = 1,
        .ids = {&id, 1},
        .sampling = {.repetition_penalty = 1, .top_p = 1, .max_tokens = 1, .n_logprobs = -1}};
    const struct plan_run run = {
        .blocks = tables, .n_blocks = info->limits.n_kv_groups, .n_tokens = 1, .sample = true};
    const struct msg_plan plan = {
        .step = 1, .admits = &admit, .n_admits = 1, .runs = &run, .n_runs = 1};
    arena_init(&arena, 0);
    must(e->ops->step(e, &plan, &arena, &result, &err), &err, "step");
    arena_fini(&arena);
}

int main(int argc, char **argv)
{
    const char *shape = argc > 1 ? argv[1] : "bench/models/llama31_8b";
    const char *folder = argc > 2 ? argv[2] : "build/gpu-ready";
    char cache[4096];
    double opens[N_ROUNDS], readies[N_ROUNDS], weights = 0;
    struct gpu_info info;
    struct error err = {0};
    must(gpu_info(0, &info, &err), &err, "device");
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    log_init("bench", LOG_LEVEL_COUNT, LOG_LOGFMT);
    uint32_t length = make_checkpoint(shape, folder, cache);
    double rate = link_rate();
    log_init("bench", LOG_INFO, LOG_LOGFMT);
    const struct worker_options o = {.model = folder,
                                     .cache_dir = cache,
                                     .device = WORKER_DEVICE_CUDA,
                                     .load_format = WORKER_LOAD_SAFETENSORS,
                                     .block_size = BLOCK,
                                     .gpu = -1,
                                     .gpu_memory_utilization = 0.92,
                                     .max_model_len = length,
                                     .tp = 1,
                                     .pp = 1};
    for (int i = 0; i < N_ROUNDS; i++) {
        struct executor *e;
        uint64_t begin = clock_mono_ns();
        must(executor_open(&o, &e, &err), &err, "open");
        opens[i] = (double)(clock_mono_ns() - begin) / 1e9;
        first_token(e);
        readies[i] = (double)(clock_mono_ns() - begin) / 1e9;
        weights = (double)e->ops->info(e)->weights_bytes;
        printf(
            "round %d: open %.2f s (%.1f GB/s of weights, %.2f of the link), first token %.2f s\n",
            i + 1, opens[i], weights / opens[i] / 1e9, weights / opens[i] / rate, readies[i]);
        fflush(stdout);
        e->ops->close(e);
    }
    double best = readies[0];
    for (int i = 1; i < N_ROUNDS; i++)
        best = readies[i] < best ? readies[i] : best;
    printf("device: %s, link %.1f GB/s, %.2f GB of weights\n", info.name, rate / 1e9,
           weights / 1e9);
    printf("ready with a first token after %.2f s at best, %.2f s in the first round (bar 5)\n",
           best, readies[0]);
    return 0;
}
