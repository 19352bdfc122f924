#include "cli/bench/engine.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/random.h"

enum { PORT_FROM = 20000, PORT_TO = 32000, PORT_TRIES = 200, OWN_WORDS = 10, MAX_WORKERS = 4096 };

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

/* The first of n ports side by side that nobody has now; `cox up` looks again. */
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

/* TP x PP x DP; what is no number cox up will say. */
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
    char ports[3][8];
    size_t n = 0, n_extra = 0;
    int first = free_ports(2 + n_workers(o));
    if (first == 0)
        return error_set(err, STATUS_LIMIT, "no free ports between %d and %d for a cluster",
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
    enum status s = batch_cluster_start(c, o->access.model, args, n, err);
    mem_free(args);
    return s;
}

enum status bench_engine_start(struct batch_cluster *c, struct bench_engine_options *o,
                               const char *const *extra, const struct option_list *words,
                               struct error *err)
{
    *c = (struct batch_cluster){0};
    if (o->access.gateway.url || o->access.gateway.uds) {
        if (words->n_items > 0)
            return error_set(err, STATUS_INVALID,
                             "%s: options of cox up start a cluster, and --base-url names one that "
                             "runs: give one of them",
                             words->items[0]);
        for (int i = 0; i < BENCH_ENGINE_FLAGS; i++)
            if (o->flags[i])
                return error_set(err, STATUS_INVALID,
                                 "%s is of a cluster that is started, and --base-url names one "
                                 "that runs: leave one of them out",
                                 bench_engine_names[i]);
        return STATUS_OK;
    }
    if (!o->access.model)
        return error_set(err, STATUS_INVALID,
                         "--model MODEL is wanted, for which a cluster is started, or --base-url "
                         "URL of one that runs");
    if (o->access.gateway.api_key && setenv("COX_API_KEY", o->access.gateway.api_key, 1) != 0)
        return error_set(err, STATUS_LIMIT, "the environment takes no --api-key");
    TRY(start(c, o, extra, words, err));
    bench_catch_signals(); /* the cluster's start had them */
    o->access.gateway.uds = c->uds;
    o->access.gateway.url = "http://localhost";
    o->access.model = NULL; /* a path or a reference: its name is what the server says */
    return STATUS_OK;
}

void bench_engine_fields(json_t *fields, int64_t n, double temperature)
{
    json_object_set_new(fields, "temperature", json_real(temperature));
    json_object_set_new(fields, "ignore_eos", json_true());
    if (n > 1)
        json_object_set_new(fields, "n", json_integer(n));
}
