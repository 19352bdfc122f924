/* Implements `cox workers --ranks N`, which runs N ranks in one pod or machine. The command is
 * for GPUs that can reach each other only inside one container. The head and the gateway run
 * elsewhere. `build` makes one cox-worker command line per rank from the given options.
 * Ordinals, ports and GPUs count up. The supervisor (cli/up/process/supervisor.h) starts the ranks,
 * restarts a rank that fails, and drains all ranks at SIGTERM.
 * Invariants: the loop thread owns everything. The thread `look` polls each rank's /readyz and
 * shares only atomics. /readyz of this process is true when all ranks are ready. A join token is
 * passed in the environment, never on a command line. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/plan/argv.h"
#include "cli/up/prepare/model_fetch.h"
#include "cli/up/process/supervisor.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/host/numa.h"
#include "common/http/client/client.h"
#include "common/http/handlers/admin.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/answer.h"
#include "common/options/groups.h"
#include "common/options/worker.h"

enum { RANKS_MAX = 64, OWN_PORT = 7001, LOOK_US = 200000, LOOK_MS = 500, END_S = 3 };

struct workers_options {
    /* this field must be first: the worker's option table uses its offsets */
    struct worker_options worker;
    int64_t ranks;
};

#define S workers_options
const struct option_spec workers_specs[] = {
    OPT_INT(S, ranks, "ranks", 1, RANKS_MAX, "1",
            "Number of ranks to start. All other options are those of `cox worker` and apply to "
            "each rank. --ordinal K is the number of the pod; the ordinals of its N ranks begin at "
            "K x N. --http-port (7001) serves /livez and /readyz for all ranks together, and the "
            "next ports for each rank."),
};
#undef S
const size_t workers_n_specs = sizeof workers_specs / sizeof workers_specs[0];

struct workers {
    struct workers_options o;
    struct arena arena;
    struct up_plan plan;
    struct loop *loop;
    struct supervisor *supervisor;
    struct http_server *http;
    struct metrics *metrics;
    struct admin_options admin;
    pthread_t looker;
    _Atomic bool stop_looking, all_ready, ends;
    char program[4096];
    int64_t http_port;
    uint32_t n_cpus; /* number of CPUs for all ranks together */
    struct numa numa;
    cpu_set_t allowed;
};

/* ---- command lines of the ranks ---- */

static const char *text_of(struct workers *k, int64_t n)
{
    char *out = arena_try_alloc(&k->arena, 24);
    snprintf(out, 24, "%lld", (long long)n);
    return out;
}

static void add(struct up_child *c, const char *flag, const char *value)
{
    c->argv[c->n_args++] = flag;
    c->argv[c->n_args++] = value;
}

static bool finds_node(const struct worker_options *w)
{
    return w->numa_node && strcmp(w->numa_node, "auto") == 0;
}

/* Counts the CPUs for all ranks. With --numa-node N or --cpus, only those CPUs count. When the
 * CPUs cannot be read from the kernel, each rank checks its own options. */
static enum status find_cpus(struct workers *k, struct error *err)
{
    const struct worker_options *w = &k->o.worker;
    const struct numa_words words = {"--numa-node", finds_node(w) ? NULL : w->numa_node, "--cpus",
                                     w->cpus};
    struct numa_binding b;
    struct error none;
    k->n_cpus = host_cpus();
    if ((!w->numa_node && !w->cpus) || sched_getaffinity(0, sizeof k->allowed, &k->allowed) != 0 ||
        numa_read("", &k->numa, &none) != STATUS_OK || (!words.node && !words.cpus))
        return STATUS_OK;
    TRY(numa_bind_to(&k->numa, &k->allowed, &words, &b, err));
    if ((uint32_t)CPU_COUNT(&b.cpus) < k->n_cpus)
        k->n_cpus = (uint32_t)CPU_COUNT(&b.cpus);
    return STATUS_OK;
}

/* Resolves --numa-node auto: the ranks are spread over the nodes in order. A rank with a GPU
 * finds its own node. */
static void add_node(struct workers *k, struct up_child *c, int64_t i)
{
    const struct worker_options *w = &k->o.worker;
    struct numa_binding b;
    if (finds_node(w) && !w->cpus && w->device != WORKER_DEVICE_CUDA &&
        numa_bind_any(&k->numa, &k->allowed, (uint32_t)i, (uint32_t)k->o.ranks, &b, NULL) ==
            STATUS_OK)
        add(c, "--numa-node", text_of(k, b.node));
}

/* Copies the words of the command line, except --ranks and --join, and appends the options whose
 * values differ for each rank. When an option is given twice, the last one counts. */
static void build_rank(struct workers *k, struct up_child *c, int64_t i, int argc, char **argv)
{
    const struct worker_options *w = &k->o.worker;
    int64_t ordinal = (w->ordinal < 0 ? 0 : w->ordinal) * k->o.ranks + i;
    int64_t share = k->n_cpus / k->o.ranks;
    char *name = arena_try_alloc(&k->arena, 32);
    snprintf(name, 32, "worker-%lld", (long long)ordinal);
    *c = (struct up_child){.role = UP_WORKER, .name = name};
    c->argv[c->n_args++] = k->program;
    for (int a = 1; a < argc; a++) {
        /* the token is passed in the environment (`build`) */
        bool is_join = strcmp(argv[a], "--join") == 0;
        if (is_join || strcmp(argv[a], "--ranks") == 0)
            a++; /* the loop skips the option's value too */
        else if (strncmp(argv[a], "--ranks=", 8) != 0 && strncmp(argv[a], "--join=", 7) != 0)
            c->argv[c->n_args++] = argv[a];
    }
    if (w->ordinal >= 0 || k->o.ranks > 1)
        add(c, "--ordinal", text_of(k, ordinal));
    add(c, "--http-port", text_of(k, k->http_port + 1 + i));
    if (w->comm_port > 0)
        add(c, "--comm-port", text_of(k, w->comm_port + i));
    if (w->kv_port > 0)
        add(c, "--kv-port", text_of(k, w->kv_port + i));
    if (w->gpu >= 0)
        add(c, "--gpu", text_of(k, w->gpu + i));
    add_node(k, c, i);
    if (w->threads == 0) /* the ranks of one pod share its CPUs */
        add(c, "--threads", text_of(k, share < 1 ? 1 : share));
    c->argv[c->n_args] = NULL;
}

static enum status build(struct workers *k, int argc, char **argv, struct error *err)
{
    const struct worker_options *w = &k->o.worker;
    ssize_t n = readlink("/proc/self/exe", k->program, sizeof k->program - 16);
    char *slash = n > 0 ? memrchr(k->program, '/', (size_t)n) : NULL;
    if (!slash)
        return error_set(err, STATUS_IO, "cannot find the program's folder: /proc/self/exe: %m");
    memcpy(slash, "/cox-worker", sizeof "/cox-worker");
    k->http_port = w->http_port < 0 ? OWN_PORT : w->http_port;
    if (k->http_port == 0 || k->http_port + k->o.ranks > 65535 ||
        w->comm_port + k->o.ranks > 65536 || w->kv_port + k->o.ranks > 65536)
        return error_set(err, STATUS_INVALID,
                         "--ranks %lld needs more ports than there are above --http-port, "
                         "--comm-port or --kv-port (the last port is 65535). Choose lower ports",
                         (long long)k->o.ranks);
    if ((uint32_t)argc + 16 > UP_ARGV_MAX)
        return error_set(err, STATUS_LIMIT,
                         "too many arguments: at most %u are allowed. Remove some of them",
                         UP_ARGV_MAX - 16);
    TRY(find_cpus(k, err));
    /* the token is passed in the environment, because `ps` shows a child's command line */
    if (w->join && setenv("COX_JOIN", w->join, 1) != 0)
        return error_set(err, STATUS_LIMIT,
                         "cannot pass --join to the workers: there is no memory for one more "
                         "environment variable");
    k->plan.n_children = k->plan.n_workers = (uint32_t)k->o.ranks;
    k->plan.children = mem_array(k->plan.n_children, sizeof *k->plan.children);
    for (int64_t i = 0; i < k->o.ranks; i++)
        build_rank(k, &k->plan.children[i], i, argc, argv);
    return STATUS_OK;
}

/* ---- readiness of all ranks ---- */

static bool is_rank_ready(struct workers *k, const char *url)
{
    struct strbuf answer;
    struct error err;
    int code = 0;
    strbuf_init(&answer, 4096);
    const struct http_call call = {.url = url, .timeout_ms = LOOK_MS};
    enum status s = http_client_call(&call, &code, &answer, &err);
    strbuf_fini(&answer);
    return s == STATUS_OK && code == 200;
}

static void *look(void *arg)
{
    struct workers *k = arg;
    while (!atomic_load(&k->stop_looking)) {
        bool all = true;
        for (int64_t i = 0; i < k->o.ranks && all; i++) {
            struct arena scratch;
            char url[400];
            arena_init(&scratch, 0);
            snprintf(url, sizeof url, "http://%s/readyz",
                     up_reachable(&scratch, k->o.worker.http_host, k->http_port + 1 + i));
            all = is_rank_ready(k, url);
            arena_fini(&scratch);
        }
        atomic_store(&k->all_ready, all);
        usleep(LOOK_US);
    }
    return NULL;
}

static bool is_ready(void *ctx)
{
    struct workers *k = ctx;
    return atomic_load(&k->all_ready) && !atomic_load(&k->ends);
}

static const char *why_not_ready(void *ctx)
{
    return atomic_load(&((struct workers *)ctx)->ends) ? "draining" : "not all ranks are ready";
}

static void on_request(void *ctx, struct http_request *r)
{
    struct workers *k = ctx;
    if (!admin_handle(&k->admin, r))
        http_respond(r, 404, "text/plain; charset=utf-8",
                     STR("/livez and /readyz are here; /metrics of each rank at its own port\n"),
                     NULL, 0);
}

static enum status listen_here(struct workers *k, struct error *err)
{
    const struct http_options o = {.host = k->o.worker.http_host,
                                   .port = (uint16_t)k->http_port,
                                   .server_name = "cox-workers"};
    const struct http_handlers h = {.ctx = k, .on_request = on_request};
    k->metrics = metrics_new();
    k->admin = (struct admin_options){.loop = k->loop,
                                      .metrics = k->metrics,
                                      .ready = is_ready,
                                      .why_not_ready = why_not_ready,
                                      .ctx = k};
    k->admin.names_itself = host_rule_applies(o.host, NULL, false);
    return http_server_start(k->loop, &o, &h, &k->http, err);
}

/* ---- start and end ---- */

static void on_signal(void *ctx, int signum)
{
    struct workers *k = ctx;
    log_info("signal", "number=%d", signum);
    atomic_store(&k->ends, true);
    supervisor_stop(k->supervisor);
}

static enum status run(struct workers *k, struct error *err)
{
    TRY(loop_new(&k->loop, err));
    /* a signal before the loop runs is handled when the loop starts */
    TRY(loop_on_signal(k->loop, SIGTERM, on_signal, k));
    TRY(loop_on_signal(k->loop, SIGINT, on_signal, k));
    TRY(listen_here(k, err));
    const struct supervisor_options so = {
        .loop = k->loop,
        .plan = &k->plan,
        .drain_role = UP_WORKER,
        .drain_ms = (uint32_t)(k->o.worker.drain_timeout_s + END_S) * 1000};
    enum status s = supervisor_start(&so, &k->supervisor, err);
    if (s != STATUS_OK)
        supervisor_stop(k->supervisor);
    bool looks = s == STATUS_OK && pthread_create(&k->looker, NULL, look, k) == 0;
    loop_run(k->loop);
    atomic_store(&k->stop_looking, true);
    if (looks)
        pthread_join(k->looker, NULL);
    if (s == STATUS_OK && supervisor_failure(k->supervisor)[0])
        s = error_set(err, STATUS_INVALID, "%s", supervisor_failure(k->supervisor));
    return s;
}

static void finish(struct workers *k)
{
    if (k->http)
        http_server_close(k->http);
    supervisor_free(k->supervisor);
    if (k->loop)
        loop_free(k->loop);
    metrics_free(k->metrics);
    mem_free(k->plan.children);
}

static int start(struct workers *k, int argc, char **argv)
{
    struct error err = {0};
    log_init("workers", (enum log_level)k->o.worker.log_level,
             (enum log_format)k->o.worker.log_format);
    int code = model_fetch_for_workers(&k->o.worker);
    if (code != EXIT_FINE)
        return code;
    enum status s = build(k, argc, argv, &err);
    if (s == STATUS_OK)
        s = run(k, &err);
    if (s != STATUS_OK)
        log_error("start_failed", "status=%s error=%s", status_name(s), log_quote(err.text));
    finish(k);
    return s == STATUS_OK ? EXIT_FINE : status_is_configuration(s) ? EXIT_USAGE : EXIT_FAILED;
}

int cmd_workers(int argc, char **argv)
{
    struct workers *k = mem_zalloc(sizeof *k);
    struct config_result res;
    size_t n = worker_n_option_specs;
    struct option_spec *specs = mem_array(n + 1, sizeof *specs);
    int code;
    specs[0] = workers_specs[0];
    memcpy(specs + 1, worker_option_specs, n * sizeof *specs);
    const struct command_line line = {.usage = "cox workers --ranks N [OPTION of cox worker...]",
                                      .specs = specs,
                                      .n_specs = n + 1,
                                      .groups = option_groups};
    arena_init(&k->arena, 0);
    char **copies = command_copy_words(&k->arena, argc, argv);
    if (command_parse(&line, argc, argv, &k->o, &res, &code))
        code = start(k, argc, copies);
    config_fini(&res);
    arena_fini(&k->arena);
    mem_free(specs);
    mem_free(k);
    return code;
}
