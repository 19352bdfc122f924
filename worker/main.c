/* Runs cox-worker: reads options, creates executor, loop and worker, and runs until SIGTERM.
 * `cox-worker plan` is `cox plan`. `cox-worker spare` first waits for its command line. The process
 * is bound to CPUs before it creates threads and memory. All functions run on the loop thread,
 * which owns all parts. Exit codes: 0 = success, 1 = failed while running, 2 = usage or
 * configuration. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/config/help.h"
#include "common/config/hide.h"
#include "common/config/print.h"
#include "common/host/crash.h"
#include "common/host/first_process.h"
#include "common/http/handlers/admin.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/answer.h"
#include "common/model/files/guard.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/options/groups.h"
#include "worker/drain.h"
#include "worker/executor/device/cuda.h"
#include "worker/executor/device/open.h"
#include "worker/plan/plan_main.h"
#include "worker/setup/bind.h"
#include "worker/setup/options.h"
#include "worker/spare.h"
#include "worker/startup.h"
#include "worker/worker.h"

extern char **environ;

#define USAGE "cox-worker --head HOST:PORT --keys-dir DIR [OPTION...]"

struct process {
    struct worker_options o;
    struct startup startup;
    struct loop *loop;
    struct executor *executor;
    struct metrics *metrics;
    struct http_server *http;
    struct admin_options admin;
    struct worker_process *worker;
    char http_address[300], cache_dir[4096];
};

static bool is_ready(void *ctx)
{
    const struct process *p = ctx;
    return p->worker && worker_is_ready(p->worker);
}

static const char *why_not_ready(void *ctx)
{
    const struct process *p = ctx;
    return p->worker ? worker_why_not_ready(p->worker) : "starting";
}

static void on_request(void *ctx, struct http_request *r)
{
    struct process *p = ctx;
    if (!admin_handle(&p->admin, r))
        http_respond(r, 404, "application/json",
                     STR("{\"error\":{\"message\":\"a worker answers only /livez, /readyz and "
                         "/metrics\",\"type\":\"not_found_error\",\"param\":null,\"code\":404}}"),
                     NULL, 0);
}

static void on_signal(void *ctx, int signum)
{
    struct process *p = ctx;
    log_info("signal", "number=%d", signum);
    worker_stop(p->worker, signum == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* Returns the host on which other processes reach this one: --http-host, or --comm-host when the
 * former is a wildcard address. */
static const char *reachable_host(const struct worker_options *o)
{
    bool everywhere = strcmp(o->http_host, "0.0.0.0") == 0 || strcmp(o->http_host, "::") == 0;
    return everywhere && o->comm_host && o->comm_host[0] ? o->comm_host : o->http_host;
}

static enum status start_http(struct process *p, struct error *err)
{
    const struct http_options o = {.host = p->o.http_host,
                                   .port = worker_options_http_port(&p->o),
                                   .server_name = "cox-worker"};
    const struct http_handlers h = {.ctx = p, .on_request = on_request};
    p->admin = (struct admin_options){
        .loop = p->loop,
        .metrics = p->metrics,
        .ready = is_ready,
        .why_not_ready = why_not_ready,
        .ctx = p,
        .metrics_keys =
            p->startup.admin_keys.n > 0 && !p->o.metrics_public ? &p->startup.admin_keys : NULL};
    p->admin.names_itself = host_rule_applies(o.host, NULL, p->admin.metrics_keys != NULL);
    TRY(http_server_start(p->loop, &o, &h, &p->http, err));
    snprintf(p->http_address, sizeof p->http_address, "%s:%u", reachable_host(&p->o),
             http_server_port(p->http));
    return STATUS_OK;
}

static void print_memory(const struct executor *e)
{
    struct strbuf b;
    if (log_is_json()) {
        startup_log_memory(e->ops->info(e));
        return;
    }
    strbuf_init(&b, 0);
    startup_memory_table(e->ops->info(e), &b);
    fwrite(b.ptr, 1, b.len, stdout);
    fflush(stdout);
    strbuf_fini(&b);
}

static enum status start(struct process *p, struct error *err)
{
    char pci[32];
    /* this check is the first, since keys and a head do not help without a GPU */
    TRY(executor_cuda_look(&p->o, err));
    TRY(worker_options_check(&p->o, err));
    executor_cuda_pci(&p->o, pci, sizeof pci);
    /* the process is bound before any thread or memory exists */
    TRY(bind_process(&p->o, "", pci, err));
    TRY(startup_prepare(&p->o, &p->startup, err));
    TRY(executor_open(&p->o, &p->executor, err));
    print_memory(p->executor);
    bind_log_memory(&p->o);
    TRY(loop_new(&p->loop, err));
    p->metrics = metrics_new();
    TRY(start_http(p, err));
    const struct worker_setup setup = {.loop = p->loop,
                                       .options = &p->o,
                                       .executor = p->executor,
                                       .metrics = p->metrics,
                                       .link = p->startup.link,
                                       .node = p->startup.node,
                                       .http_address = p->http_address};
    TRY(worker_start(&setup, &p->worker, err));
    TRY(loop_on_signal(p->loop, SIGTERM, on_signal, p));
    return loop_on_signal(p->loop, SIGINT, on_signal, p);
}

static void finish(struct process *p)
{
    worker_free(p->worker);
    if (p->http)
        http_server_close(p->http);
    if (p->loop)
        loop_free(p->loop);
    if (p->executor)
        p->executor->ops->close(p->executor);
    metrics_free(p->metrics);
    admin_keys_fini(&p->startup.admin_keys);
}

static int fail(enum status s, const struct error *err)
{
    log_error("start_failed", "status=%s error=%s", status_name(s), log_quote(err->text));
    return status_is_configuration(s) ? 2 : 1;
}

static int run(struct process *p)
{
    struct error err = {0};
    char name[32];
    if (p->o.ordinal >= 0)
        snprintf(name, sizeof name, "worker-%lld", (long long)p->o.ordinal);
    else
        snprintf(name, sizeof name, "worker");
    log_init(name, (enum log_level)p->o.log_level, (enum log_format)p->o.log_format);
    config_log(worker_option_specs, worker_n_option_specs, &p->o);
    file_guard_install();
    if (!p->o.cache_dir) {
        model_cache_dir(NULL, getenv("HOME"), p->cache_dir, sizeof p->cache_dir);
        p->o.cache_dir = p->cache_dir;
    }
    enum status s = start(p, &err);
    if (s == STATUS_OK) {
        log_info("worker_started", "version=%s head=%s http=%s", COX_VERSION, p->startup.endpoint,
                 p->http_address);
        loop_run(p->loop);
        if (worker_failure(p->worker)[0] != '\0') {
            /* The error was logged. Threads may be stuck and the device may be lost, so nothing
             * is freed. Exit code 2 with the error printed again tells the supervisor not to
             * restart. */
            if (worker_failed_for_good(p->worker))
                _exit(fail(error_set(&err, STATUS_UNSUPPORTED, "%s", worker_failure(p->worker)),
                           &err));
            _exit(1);
        }
        const char *refusal = worker_refusal(p->worker);
        bool refused = refusal[0] != '\0';
        if (refused)
            s = error_set(&err, STATUS_DENIED,
                          "the head at %s refused this worker permanently: %s. Start the worker "
                          "with the options of the head, or with another --head",
                          p->startup.endpoint, refusal);
        if (!worker_end(p->worker)) {
            log_warn("ends_while_loading", "model=%s", log_quote(p->o.model));
            if (refused)
                (void)fail(s, &err);
            /* reached after a second signal, or at the end of --drain-timeout */
            _exit(refused ? 2 : 0);
        }
    }
    finish(p);
    if (s == STATUS_OK)
        return 0;
    return fail(s, &err);
}

static int print_help(const char *topic)
{
    const struct help h = {.usage = USAGE,
                           .specs = worker_option_specs,
                           .n_specs = worker_n_option_specs,
                           .groups = option_groups,
                           .topic = topic};
    return help_print(&h);
}

int main(int argc, char **argv)
{
    crash_install();
    first_process_install();
    if (argc > 1 && strcmp(argv[1], "plan") == 0)
        return plan_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "spare") == 0) {
        argc--;
        argv++;
        const int ended = spare_wait(&argc, &argv);
        if (ended >= 0)
            return ended;
    }
    static struct process p;
    struct config_result res = {0};
    struct error err = {0};
    int code = 0;
    if (config_parse(worker_option_specs, worker_n_option_specs, argc, argv, environ, &p.o, &res,
                     &err) != STATUS_OK) {
        fprintf(stderr, "cox-worker: %s\n", err.text);
        code = 2;
    } else if (res.help) {
        code = print_help(res.help_topic);
    } else if (res.version) {
        printf("cox-worker %s\n", COX_VERSION);
    } else if (res.positional.n_items > 0) {
        fprintf(stderr, "cox-worker: unexpected argument \"%s\"; usage: %s\n",
                res.positional.items[0], USAGE);
        code = 2;
    } else {
        config_hide(worker_option_specs, worker_n_option_specs, argc, argv);
        for (size_t i = 0; i < res.warnings.n_items; i++)
            fprintf(stderr, "cox-worker: warning: %s\n", res.warnings.items[i]);
        code = run(&p);
    }
    config_fini(&res);
    return code;
}
