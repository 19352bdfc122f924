/* Implements gateway_load, the lean client of bench/gateway. One thread with epoll runs a number
 * of streams. Each stream sends its next request when its answer has ended. Every answer is
 * checked: the status, the chunks and the [DONE], and over the null worker each token against
 * its rule (docs/develop/null-worker.md). A lost, repeated or reordered token ends the program.
 * Rates count events with text.
 *
 *   gateway_load --port N [--host 127.0.0.1] [--path /v1/completions] [--model NAME]
 *                [--streams 64] [--tokens 128] [--warm 1] [--seconds 5] [--pids NAME=PID,...]
 *                [--any] [--hold] [--step-log FILE]
 *   --any: the text is that of a real model; events that have text are counted. --hold: open the
 * streams, wait until each has a token, print the memory of --pids before and after, and end.
 *
 * Prints one JSON object: events/s, and microseconds of CPU per event of itself and of --pids. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <dirent.h>

#include "bench/die.h"
#include "bench/gateway_load/stream.h"
#include "bench/gateway_load/trace.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { BATCH = 256, PIDS_MAX = 16, OPEN_AT_ONCE = 32, BEGIN_S = 120 };

struct process {
    char name[32];
    int pid;
    uint64_t cpu_ns, rss_bytes; /* CPU time and resident memory at the beginning of the run */
};

struct processes {
    struct process items[PIDS_MAX];
    uint32_t n;
};

/* ---- resource use of processes ---- */

static void read_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
}

/* Returns the CPU time of all threads of a process, in ns. A thread that has ended is not
 * counted; the measured processes end no threads. */
static uint64_t cpu_ns(int pid)
{
    char path[300], text[128];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *d = opendir(path);
    if (!d)
        bench_die("no process %d: %s", pid, strerror(errno));
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/schedstat", pid, e->d_name);
        read_file(path, text, sizeof text);
        sum += strtoull(text, NULL, 10);
    }
    closedir(d);
    return sum;
}

static uint64_t rss_bytes(int pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    read_file(path, text, sizeof text);
    const char *at = strstr(text, "VmRSS:");
    return at ? strtoull(at + 6, NULL, 10) * 1024 : 0;
}

static struct processes parse_pids(const char *list)
{
    struct processes all = {0};
    for (const char *at = list; at && *at;) {
        const char *eq = strchr(at, '=');
        char *end = NULL;
        if (!eq || eq - at >= (ptrdiff_t)sizeof all.items->name || all.n == PIDS_MAX)
            bench_die("--pids %s: NAME=PID,NAME=PID is wanted", list);
        struct process *p = &all.items[all.n++];
        memcpy(p->name, at, (size_t)(eq - at));
        p->pid = (int)strtol(eq + 1, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    return all;
}

static void mark(struct processes *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        all->items[i].cpu_ns = cpu_ns(all->items[i].pid);
        all->items[i].rss_bytes = rss_bytes(all->items[i].pid);
    }
}

/* ---- the run ---- */

static void turn(struct load *l, int timeout_ms)
{
    struct epoll_event ready[BATCH];
    int n = epoll_wait(l->epoll, ready, BATCH, timeout_ms);
    if (n < 0 && errno != EINTR)
        bench_die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        load_stream_read(l, ready[i].data.u32);
}

static void open_streams(struct load *l)
{
    for (uint32_t i = 0; i < l->o.n_streams; i++) {
        load_stream_open(l, i);
        if (i % OPEN_AT_ONCE == 0)
            turn(l, 0);
    }
    uint64_t end = clock_mono_ns() + BEGIN_S * NS_PER_S;
    while (l->n_begun < l->o.n_streams) {
        turn(l, 100);
        if (clock_mono_ns() > end)
            bench_die("after %d s %u of %u streams have a token", BEGIN_S, l->n_begun,
                      l->o.n_streams);
    }
}

static void run_until(struct load *l, double seconds)
{
    uint64_t end = clock_mono_ns() + (uint64_t)(seconds * 1e9);
    while (clock_mono_ns() < end)
        turn(l, 10);
}

static void print_hold(const struct load *l, const struct processes *all)
{
    printf("{\"streams\":%u,\"bytes_per_stream\":{", l->o.n_streams);
    for (uint32_t i = 0; i < all->n; i++) {
        double more = (double)rss_bytes(all->items[i].pid) - (double)all->items[i].rss_bytes;
        printf("%s\"%s\":%.0f", i ? "," : "", all->items[i].name, more / l->o.n_streams);
    }
    printf("}}\n");
}

static void measure(struct load *l, struct processes *all)
{
    run_until(l, l->o.warm_s);
    mark(all);
    struct processes self = {.n = 1, .items = {{.name = "client", .pid = (int)getpid()}}};
    mark(&self);
    uint64_t begin = clock_mono_ns(), n_events = l->n_events, n_reads = l->n_reads;
    uint64_t n_bytes = l->n_bytes, n_tokens = l->n_tokens;
    l->recording = l->o.step_log != NULL;
    run_until(l, l->o.seconds);
    l->recording = false;
    double s = (double)(clock_mono_ns() - begin) / 1e9, n = (double)(l->n_events - n_events);
    double sum = (double)(cpu_ns(self.items->pid) - self.items->cpu_ns) / 1e3 / n;
    double per_event = (double)(l->n_tokens - n_tokens) / n;
    /* the requests ignore EOS, so each answer has all its tokens */
    if (l->o.any && l->n_ended_events > 0)
        per_event = (double)l->n_answers * l->o.n_tokens / (double)l->n_ended_events;
    printf("{\"streams\":%u,\"seconds\":%.3f,\"events_per_s\":%.0f,\"tokens_per_s\":%.0f,\"tokens_"
           "per_event\":%.3f,"
           "\"events_per_read\":%.2f,"
           "\"bytes_per_event\":%.1f,\"answers\":%llu,\"us_per_event\":{\"client\":%.3f",
           l->o.n_streams, s, n / s, n / s * per_event, per_event,
           n / (double)(l->n_reads - n_reads), (double)(l->n_bytes - n_bytes) / n,
           (unsigned long long)l->n_answers, sum);
    for (uint32_t i = 0; i < all->n; i++) {
        double us = (double)(cpu_ns(all->items[i].pid) - all->items[i].cpu_ns) / 1e3 / n;
        sum += us;
        printf(",\"%s\":%.3f", all->items[i].name, us);
    }
    printf(",\"all\":%.3f}", sum);
    if (l->o.step_log) {
        usleep(500 * 1000); /* waits for the head, which writes its log ten times a second */
        load_trace_print(l);
    }
    printf("}\n");
}

/* ---- options ---- */

static const struct option long_options[] = {
    {"port", 1, NULL, 'p'},
    {"host", 1, NULL, 'h'},
    {"path", 1, NULL, 'P'},
    {"model", 1, NULL, 'm'},
    {"streams", 1, NULL, 's'},
    {"tokens", 1, NULL, 't'},
    {"warm", 1, NULL, 'w'},
    {"seconds", 1, NULL, 'd'},
    {"pids", 1, NULL, 'i'},
    {"any", 0, NULL, 'a'},
    {"hold", 0, NULL, 'H'},
    {"step-log", 1, NULL, 'l'},
    {0},
};

static struct load_options parse(int argc, char **argv)
{
    struct load_options o = {.host = "127.0.0.1",
                             .path = "/v1/completions",
                             .n_streams = 64,
                             .n_tokens = 128,
                             .warm_s = 1,
                             .seconds = 5};
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case 'p':
            o.port = atoi(optarg);
            break;
        case 'h':
            o.host = optarg;
            break;
        case 'P':
            o.path = optarg;
            break;
        case 'm':
            o.model = optarg;
            break;
        case 's':
            o.n_streams = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            o.n_tokens = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            o.warm_s = atof(optarg);
            break;
        case 'd':
            o.seconds = atof(optarg);
            break;
        case 'i':
            o.pids = optarg;
            break;
        case 'a':
            o.any = true;
            break;
        case 'H':
            o.hold = true;
            break;
        case 'l':
            o.step_log = optarg;
            break;
        default:
            exit(2);
        }
    }
    if (o.port <= 0 || o.port > 65535 || o.n_streams == 0 || o.n_tokens == 0 || optind != argc)
        bench_die(
            "--port, and numbers above 0, are wanted: see the head of bench/gateway_load/main.c");
    return o;
}

int main(int argc, char **argv)
{
    struct load l = {.o = parse(argc, argv)};
    struct processes all = parse_pids(l.o.pids);
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    l.streams = mem_array(l.o.n_streams, sizeof *l.streams);
    l.buffer = mem_alloc(2 * LOAD_READ_BYTES);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l.epoll < 0)
        bench_die("epoll: %s", strerror(errno));
    mark(&all);
    open_streams(&l);
    if (l.o.hold)
        print_hold(&l, &all);
    else
        measure(&l, &all);
    return 0;
}
