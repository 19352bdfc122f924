/* Implements `monitoring: true`: starts Debian's prometheus next to the run. Prometheus scrapes
 * the head and the gateways of the run's cluster, or the http ports of a run with commands only. */
#include "cli/run/monitoring.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run/children.h"
#include "cli/run/file/file.h"
#include "cli/up/plan/argv.h"
#include "cli/up/plan/options.h"
#include "cli/up/prepare/preflight.h"

enum { SCRAPE_S = 5 };

static void append_job(struct strbuf *b, const char *name, const char *const *targets, size_t n,
                       const char *key_file)
{
    strbuf_printf(b, "  - job_name: %s\n    scrape_interval: %ds\n", name, SCRAPE_S);
    if (key_file) {
        strbuf_append_c(b, "    authorization: {credentials_file: ");
        strbuf_append_json(b, str_from(key_file));
        strbuf_append_c(b, "}\n");
    }
    strbuf_append_c(b, "    static_configs: [{targets: [");
    for (size_t i = 0; i < n; i++) {
        strbuf_append_c(b, i ? ", " : "");
        strbuf_append_json(b, str_from(targets[i]));
    }
    strbuf_append_c(b, "]}]\n");
}

/* Appends prometheus's jobs for a cluster, with the names that deploy/grafana's rules and
 * dashboards expect. */
static void append_cluster(struct run_keeper *k, struct strbuf *b)
{
    enum { GATEWAYS_MAX = 64, WORKERS_MAX = 1024 };
    const struct up_options *o = &k->file->up;
    static const char *targets[WORKERS_MAX];
    size_t n = 0;
    const char *admin = up_reachable(&k->arena, o->admin_host, o->admin_port);
    append_job(b, "coxswain-head", &admin, 1, o->admin_key_file);
    for (; n < (size_t)o->gateways && n < GATEWAYS_MAX && !o->uds; n++)
        targets[n] = up_reachable(&k->arena, o->host, o->port + (int64_t)n);
    if (n > 0)
        append_job(b, "coxswain-gateway", targets, n, o->metrics_public ? NULL : o->api_key_file);
    int64_t n_workers = o->workers > 0 ? o->workers : o->tp * o->pp * o->dp;
    for (n = 0; n < (size_t)n_workers && n < WORKERS_MAX; n++)
        targets[n] = up_reachable(&k->arena, "127.0.0.1", o->worker_http_port + (int64_t)n);
    append_job(b, "coxswain-worker", targets, n, NULL);
}

static void append_ports(struct run_keeper *k, uint16_t own, struct strbuf *b)
{
    for (size_t i = 0; i < k->file->ports.n; i++) {
        const struct run_port *p = &k->file->ports.items[i];
        if (!p->is_http || p->port == own)
            continue;
        const char *target = up_reachable(&k->arena, "127.0.0.1", p->port);
        append_job(b, p->name, &target, 1, NULL);
    }
}

enum status run_start_monitoring(struct run_keeper *k, struct error *err)
{
    char config[RUN_PATH_BYTES + 64], data[RUN_PATH_BYTES + 64], listen[64];
    uint16_t port = run_file_prometheus_port(k->file);
    struct strbuf text;
    if (port == 0)
        return STATUS_OK;
    TRY(preflight_port("127.0.0.1", port, "prometheus", "a port called prometheus in `ports`",
                       err));
    strbuf_init(&text, 0);
    strbuf_printf(&text, "global: {scrape_interval: %ds}\nscrape_configs:\n", SCRAPE_S);
    if (k->file->model.s)
        append_cluster(k, &text);
    else
        append_ports(k, port, &text);
    enum status s = run_store_write(k->start->folder, "prometheus.yml", strbuf_str(&text), err);
    strbuf_fini(&text);
    TRY(s);
    snprintf(config, sizeof config, "--config.file=%s/prometheus.yml", k->start->folder);
    snprintf(data, sizeof data, "--storage.tsdb.path=%s/prometheus", k->start->folder);
    snprintf(listen, sizeof listen, "--web.listen-address=127.0.0.1:%u", port);
    const char *const argv[] = {"prometheus", config, data, listen, "--log.level=warn", NULL};
    const struct run_spawn o = {.argv = argv,
                                .cwd = k->start->folder,
                                .env = k->env,
                                .out_fd = k->out_write,
                                .stdout_fd = -1,
                                .death_signal = SIGKILL};
    s = run_spawn(&o, &k->prometheus, err);
    if (s != STATUS_OK)
        return error_prefix(err, s,
                            "cannot start prometheus, which `monitoring` requires (install it with "
                            "apt-get install prometheus, or remove `monitoring`)");
    run_log_say(&k->log, "prometheus: http://127.0.0.1:%u", port);
    return STATUS_OK;
}
