/* Provides the server of `cox bench throughput` and `cox bench latency`: a private cluster, or a
 * running server.
 * `bench_offline_command` parses the options and calls `bench_offline_run`. That function starts
 * the cluster through cli/batch/cluster.h (or connects to --base-url), calls `prepare` for the
 * prompts, calls `measure`, and ends the cluster.
 * Invariants: the cluster ends in every case, also after an error or a signal. The benchmark
 * chooses ports that are free at that time, and `cox up` checks them again. Only one thread
 * calls these functions. */
#include "cli/bench/engine.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/batch/engine_words.h"
#include "cli/bench/interrupt.h"
#include "cli/pull/options.h"
#include "common/base/mem.h"
#include "common/base/random.h"

enum {
    PORT_FROM = 20000,
    PORT_TO = 32000,
    PORT_TRIES = 200,
    OWN_WORDS = 10,
    MAX_WORKERS = 4096,
    UP_WORDS_MAX = 256, /* most words behind `--` */
    /* longest wait in seconds for the server at --base-url, which may still be starting */
    READY_S = 60
};

const char *const bench_engine_names[BENCH_ENGINE_FLAGS] = {
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--device",
    "--dtype",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--gpu-memory-utilization",
    "--kv-cache-dtype",
    "--quantization",
    "--load-format",
    "--threads",
    "--speculative-config",
};

static bool is_free(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool is = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Returns the first of n adjacent ports that are free now; 0 = none were found. `cox up` checks
 * them again. */
static int free_ports(int n)
{
    for (int i = 0; i < PORT_TRIES; i++) {
        int first = PORT_FROM + (int)(random_secure_u64() % (uint64_t)(PORT_TO - PORT_FROM - n));
        int k = 0;
        while (k < n && is_free(first + k))
            k++;
        if (k == n)
            return first;
    }
    return 0;
}

/* Returns the number of workers, TP x PP x DP, at most MAX_WORKERS. A value that is not a number
 * counts as 1. `cox up` reports it. */
static int n_workers(const struct bench_engine_options *o)
{
    long n = 1;
    for (int i = 0; i < 3; i++) {
        long v = o->flags[i] ? strtol(o->flags[i], NULL, 10) : 1;
        n *= v > 0 && v < MAX_WORKERS ? v : 1;
        n = n < MAX_WORKERS ? n : MAX_WORKERS;
    }
    return (int)n;
}

static enum status start(struct batch_cluster *c, struct bench_engine_options *o,
                         const char *const *extra, const struct option_list *words,
                         struct error *err)
{
    char ports[3][12]; // holds any int, which gcc 14 cannot rule out
    size_t n = 0, n_extra = 0;
    int first = free_ports(2 + n_workers(o));
    if (first == 0)
        return error_set(err, STATUS_LIMIT,
                         "cannot start a cluster: too few ports between %d and %d are free. Stop "
                         "other programs that use them",
                         PORT_FROM, PORT_TO);
    while (extra && extra[n_extra])
        n_extra++;
    const char **args =
        mem_array(2 * BENCH_ENGINE_FLAGS + OWN_WORDS + n_extra + words->n_items, sizeof *args);
    for (int i = 0; i < 3; i++)
        snprintf(ports[i], sizeof ports[i], "%d", first + i);
    const char *const own[] = {"--head-port",        ports[0], "--admin-port", ports[1],
                               "--worker-http-port", ports[2], "--log-level",  "warn"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        args[n++] = own[i];
    for (int i = 0; i < BENCH_ENGINE_FLAGS; i++) {
        if (!o->flags[i])
            continue;
        args[n++] = bench_engine_names[i];
        args[n++] = o->flags[i];
    }
    for (size_t i = 0; i < n_extra; i++)
        args[n++] = extra[i];
    for (size_t i = 0; i < words->n_items; i++)
        args[n++] = words->items[i];
    enum status s = batch_cluster_start(c, "bench", o->access.model, args, n, err);
    mem_free(args);
    return c->has_not_come ? bench_fetch_status(s, err) : s;
}

/* Returns STATUS_INVALID, which means a usage error (exit code 2), when the user must change the
 * model's name or the token. Otherwise returns `s`. */
enum status bench_fetch_status(enum status s, struct error *err)
{
    return s != STATUS_OK && pull_exit_code(s) == EXIT_USAGE ? (err->status = STATUS_INVALID) : s;
}

enum status bench_engine_start(struct batch_cluster *c, struct bench_engine_options *o,
                               const char *const *extra, const struct option_list *words,
                               struct error *err)
{
    *c = (struct batch_cluster){0};
    if (o->access.gateway.url || o->access.gateway.uds) {
        if (words->n_items > 0)
            return error_set(err, STATUS_INVALID,
                             "%s is an option of `cox up`, which starts a cluster, but --base-url "
                             "names a running one. Remove one of the two",
                             words->items[0]);
        for (int i = 0; i < BENCH_ENGINE_FLAGS; i++)
            if (o->flags[i])
                return error_set(err, STATUS_INVALID,
                                 "%s applies only to a cluster that the benchmark starts, but "
                                 "--base-url names a running one. Remove one of the two",
                                 bench_engine_names[i]);
        return STATUS_OK;
    }
    if (!o->access.model)
        return error_set(err, STATUS_INVALID,
                         "no model to measure: give --model MODEL to start a cluster for it, or "
                         "--base-url URL of a running server");
    if (o->access.gateway.api_key && setenv("COX_API_KEY", o->access.gateway.api_key, 1) != 0)
        return error_set(err, STATUS_LIMIT,
                         "cannot pass --api-key to the cluster: there is no memory for one more "
                         "environment variable");
    TRY(start(c, o, extra, words, err));
    bench_catch_signals(); /* the start of the cluster has replaced the signal handlers */
    o->access.gateway.uds = c->uds;
    o->access.gateway.url = "http://localhost";
    /* `model` may be a path or a reference; the server reports the served name */
    o->access.model = NULL;
    return STATUS_OK;
}

static void set_fields(json_t *fields, int64_t n, double temperature)
{
    json_object_set_new(fields, "temperature", json_real(temperature));
    json_object_set_new(fields, "ignore_eos", json_true());
    if (n > 1)
        json_object_set_new(fields, "n", json_integer(n));
}

enum status bench_offline_run(const struct bench_offline *b, struct bench_engine_options *engine,
                              const struct option_list *words, struct error *err)
{
    struct batch_cluster cluster;
    struct bench_target target = {0};
    struct bench_prompts prompts = {0};
    bench_catch_signals();
    enum status s = bench_engine_start(&cluster, engine, b->extra, words, err);
    if (s == STATUS_OK)
        s = bench_connect(&target, &engine->access, NULL, b->is_chat, -READY_S, b->owner, err);
    if (s == STATUS_OK) {
        set_fields(target.fields, b->n, b->temperature);
        s = b->prepare(b->options, &target, &prompts, err);
    }
    if (s == STATUS_OK)
        s = b->measure(b->options, &target, &prompts, err);
    batch_cluster_end(&cluster);
    bench_prompts_fini(&prompts);
    bench_target_close(&target);
    return s;
}

int bench_offline_command(int argc, char **argv, struct command_line line, void *options,
                          enum status (*run)(void *options, const struct option_list *words,
                                             struct error *err))
{
    struct config_result res;
    struct error err = {0};
    int code;
    line.max_positional = UP_WORDS_MAX;
    char **words = engine_words_move(line.specs, line.n_specs, argc, argv, &argc);
    if (command_parse(&line, argc, words, options, &res, &code)) {
        enum status s = run(options, &res.positional, &err);
        code = s == STATUS_OK ? EXIT_FINE : bench_fail(argv[0], s, &err);
    }
    config_fini(&res);
    mem_free(words);
    return code;
}
