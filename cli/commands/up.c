/* `cox up MODEL`: a whole cluster on this machine as supervised child processes, with throw-away
 * keys. A small thread (up/probe.h) asks the first gateway for its health and tells the loop when
 * it serves. A terminal shows the short form of the log (up/screen.h). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/base/throw_away.h"
#include "cli/commands/command.h"
#include "cli/commands/vllm.h"
#include "cli/multi_model/serve.h"
#include "cli/pull/options.h"
#include "cli/pull/stop.h"
#include "cli/pull/stream.h"
#include "cli/sagemaker/host.h"
#include "cli/up/local/control.h"
#include "cli/up/local/detach.h"
#include "cli/up/local/local_cluster.h"
#include "cli/up/local/name.h"
#include "cli/up/model_fetch.h"
#include "cli/up/plan/argv.h"
#include "cli/up/plan/numa.h"
#include "cli/up/plan/options.h"
#include "cli/up/plan/plan.h"
#include "cli/up/preflight.h"
#include "cli/up/probe.h"
#include "cli/up/ready.h"
#include "cli/up/sagemaker.h"
#include "cli/up/screen.h"
#include "cli/up/supervisor.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/keys/key_files.h"
#include "common/model/config/config.h"

enum { LAST_WORDS_MS = 9000 }; /* more than a gateway gives its clients to read them */
enum { PATH_BYTES = 4096, LOG_NAME_BYTES = 14 };

struct up {
    struct up_options o;
    const char *model;
    struct pull_stream stream; /* of a model that is in memory only */
    const char *stream_name;
    bool has_not_come; /* the fetch of it failed, or was stopped */
    struct arena arena;
    struct up_plan plan;
    const char *family;             /* static: of the model; NULL: not known */
    const char *sagemaker_settings; /* of the model, for the log; NULL: none */
    struct loop *loop;
    struct supervisor *supervisor;
    struct up_control *control; /* NULL: none; cox logs and cox scale find nothing */
    struct up_place place;
    struct numa numa;
    const char *name; /* as it was called: up or serve */
    char bin_dir[PATH_BYTES], keys_dir[PATH_BYTES];
    struct throw_away throw_away; /* of the control socket, and keys_dir when none was given */
    uint64_t begin_ns;
    struct up_probe *probe;
    struct up_screen *screen; /* NULL: the whole log is on stderr and nothing else */
    struct up_screen_options screen_options;
    struct up_detach detach;
    char cluster_name[UP_NAME_BYTES];
    bool is_only; /* no other cluster ran here when it was started */
    bool is_ready, is_late, is_stopping;
    char url[300];
    const char *admin; /* HOST:PORT; on the arena */
};

/* ---- keys ---- */

static enum status make_keys(struct up *u, const char *tmp_dir, struct error *err)
{
    if (u->o.keys_dir) {
        struct error no_folder = {0}; /* it can do without: start_control says so */
        if (throw_away_make(&u->throw_away, tmp_dir, "up", &no_folder) != STATUS_OK)
            throw_away_remove(&u->throw_away);
        snprintf(u->keys_dir, sizeof u->keys_dir, "%s", u->o.keys_dir);
        return keys_make_dir(u->keys_dir, err);
    }
    TRY(throw_away_make(&u->throw_away, tmp_dir, "keys", err));
    snprintf(u->keys_dir, sizeof u->keys_dir, "%s", u->throw_away.path);
    return keys_make_dir(u->keys_dir, err);
}

/* ---- readiness ---- */

/* In DJL's words, where its users look for them. */
static void say_of_model(const struct up *u,
                         void (*say)(const struct sagemaker_model *m, struct strbuf *out))
{
    static const char *const forms[] = {"vllm", "disable", "disable", "vllm"};
    const struct sagemaker_model m = {.name = u->plan.model_name,
                                      .family = u->family,
                                      .rolling_batch = forms[u->o.invocations],
                                      .host = u->o.host,
                                      .port = (uint32_t)u->o.port,
                                      .tp = (uint32_t)u->o.tp,
                                      .dp = (uint32_t)u->o.dp,
                                      .n_gpus = sagemaker_gpus(environ),
                                      .settings = u->sagemaker_settings};
    struct strbuf b;
    if (!u->o.sagemaker)
        return;
    strbuf_init(&b, 0);
    say(&m, &b);
    if (say == sagemaker_loading)
        up_sagemaker_engine(&u->o, u->model, u->plan.model_name, &b);
    fputs(strbuf_str(&b).ptr, stderr);
    strbuf_fini(&b);
}

/* Groups that can be whole at once, with no more than --dp where it was given beside --workers. */
static uint32_t n_groups(const struct up *u)
{
    uint32_t group = (uint32_t)(u->o.tp * u->o.pp), n = u->plan.n_workers / group;
    return up_options_max_groups(&u->o) > 0 && n > up_options_max_groups(&u->o)
               ? up_options_max_groups(&u->o)
               : n;
}

static void say_ready(struct up *u, const json_t *status)
{
    struct strbuf text;
    const struct up_ready r = {.url = u->url,
                               .uds = u->o.uds,
                               .admin = u->admin,
                               .model = u->plan.model_name,
                               .name = u->cluster_name,
                               .log_file = u->detach.log_file[0] ? u->detach.log_file : NULL,
                               .has_key = u->o.api_keys.n_items > 0 || u->o.api_key_file,
                               .wants_ca = u->o.ssl.certfile,
                               .wants_certificate = u->o.ssl.cert_reqs == 2,
                               .has_chat_page = !u->o.front.no_chat_page && !u->o.sagemaker,
                               .pid = u->control ? 0 : getpid(),
                               .is_only = u->is_only,
                               .is_usual_admin = strcmp(u->admin, "127.0.0.1:8265") == 0,
                               .n_workers = u->plan.n_workers,
                               .group = (uint32_t)(u->o.tp * u->o.pp),
                               .n_groups = n_groups(u),
                               .n_gateways = (uint32_t)u->o.gateways,
                               .took_ms = (clock_mono_ns() - u->begin_ns) / NS_PER_MS,
                               .status = status};
    strbuf_init(&text, 0);
    if (u->screen) {
        up_ready_frame(&r, up_screen_columns(u->screen), up_screen_is_utf8(u->screen), &text);
        up_screen_print(u->screen, text.ptr);
        strbuf_reset(&text);
    }
    if (u->detach.fd >= 0) { /* the log has all from here on, and nobody else reads */
        up_screen_free(u->screen);
        u->screen = NULL;
    }
    up_ready_plain(&r, &text);
    for (char *line = strtok(text.ptr, "\n"); line; line = strtok(NULL, "\n")) {
        if (!u->screen)
            supervisor_say(u->supervisor, "%s", line);
        else if (u->control)
            up_control_add_line(u->control, "cox", line, strlen(line));
    }
    strbuf_fini(&text);
    up_detach_ready(&u->detach);
}

static void on_probe(void *ctx)
{
    struct up *u = ctx;
    struct up_probe_state now;
    up_probe_look(u->probe, &now);
    if (u->is_ready || u->is_stopping)
        return;
    if (now.is_late) {
        u->is_late = u->is_stopping = true;
        up_probe_stop(u->probe);
        supervisor_stop(u->supervisor);
    } else if (now.serves) {
        u->is_ready = true;
        say_of_model(u, sagemaker_ready);
        say_ready(u, now.status);
    } else if (u->screen && now.progress[0]) {
        up_screen_progress(u->screen, now.progress);
    }
}

/* ---- start ---- */

/* The programs lie next to this one. */
static enum status find_bin_dir(char *out, size_t size, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return error_set(err, STATUS_IO, "/proc/self/exe: %s", strerror(errno));
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash)
        return error_set(err, STATUS_IO, "/proc/self/exe is \"%s\"", out);
    *slash = '\0';
    return STATUS_OK;
}

/* A model that is not there, none at all, or one that is not supported is said at once and once,
 * before any process says it; what its tensors are is the workers' business. */
static enum status check_model(const struct up_options *o, const char *model, const char **family,
                               struct error *err)
{
    char cache_dir[PATH_BYTES];
    struct model_info info;
    if (o->cache_dir)
        snprintf(cache_dir, sizeof cache_dir, "%s", o->cache_dir);
    else
        model_cache_dir(NULL, getenv("HOME"), cache_dir, sizeof cache_dir);
    if (model_info_open(model, cache_dir, &info, err) != STATUS_OK)
        return err->status == STATUS_IO ? (err->status = STATUS_INVALID) : err->status;
    enum status s = STATUS_OK;
    struct model_config *config = mem_alloc(sizeof *config); /* tens of KiB */
    if (info.format != MODEL_NULL && o->device != UP_DEVICE_NULL)
        s = model_config_read(&info, config, err);
    *family = s == STATUS_OK && info.format != MODEL_NULL && o->device != UP_DEVICE_NULL
                  ? config->family
                  : NULL;
    mem_free(config);
    model_info_fini(&info);
    return s;
}

/* What is not known here the workers say. */
static void find_nodes(struct up *u)
{
    struct error err;
    if (sched_getaffinity(0, sizeof u->place.allowed, &u->place.allowed) != 0)
        u->place.numa = NULL;
    if (up_numa_is_wanted(&u->o) && numa_read("", &u->numa, &err) != STATUS_OK)
        command_warn(u->name, err.text);
}

static enum status check_machine(struct up *u, struct error *err)
{
    struct machine_limits limits;
    struct strbuf warnings;
    strbuf_init(&warnings, 0);
    preflight_read(&limits);
    preflight_warnings(&limits, u->plan.n_workers, u->o.device == UP_DEVICE_CUDA, &warnings);
    up_options_warnings(&u->o, &warnings);
    for (char *line = warnings.len > 0 ? strtok(warnings.ptr, "\n") : NULL; line;
         line = strtok(NULL, "\n"))
        command_warn(u->name, line);
    strbuf_fini(&warnings);
    if (u->plan.n_workers < u->o.tp * u->o.pp) {
        char text[256];
        snprintf(text, sizeof text,
                 "--workers %u for a group of %lld x %lld ranks: nothing is served until other "
                 "machines' workers join; without --workers there are enough",
                 u->plan.n_workers, (long long)u->o.tp, (long long)u->o.pp);
        command_warn(u->name, text);
    }
    for (uint32_t i = 0; i < u->plan.n_children; i++) {
        const struct up_child *c = &u->plan.children[i];
        for (uint32_t k = 0; k < c->n_listeners; k++) {
            const struct up_listener *l = &c->listeners[k];
            if (l->host)
                TRY(preflight_port(l->host, l->port, l->what, l->flag, err));
        }
    }
    return STATUS_OK;
}

/* ---- a model that is not there yet ---- */

/* The children find it in the cache. The times that are said and bounded begin behind it. */
static enum status fetch_model(struct up *u, struct error *err)
{
    const struct pull_ensure e = {u->name, u->o.cache_dir, u->o.offline};
    bool was_fetched;
    enum status s = model_fetch(&e, u->model, &u->o.speculation, &was_fetched, err);
    u->has_not_come = s != STATUS_OK;
    u->begin_ns = was_fetched ? clock_mono_ns() : u->begin_ns;
    return s;
}

/* ---- a model that comes straight into memory ---- */

static void say_of_stream(const char *text)
{
    log_info("model_stream", "text=%s", log_quote(text));
}

/* u->model becomes the folder. Before the loop is there: a signal is looked for by who fetches. */
static enum status stream_model(struct up *u, const char *tmp_dir, struct error *err)
{
    struct pull_options o = {0};
    struct config_result res = {0};
    enum status s = pull_options_read(&o, &res, err);
    o.cache_dir = u->o.cache_dir ? u->o.cache_dir : o.cache_dir;
    o.offline = u->o.offline;
    o.is_stopped = pull_is_stopped;
    o.say = say_of_stream;
    if (s == STATUS_OK && pull_stream_wanted(&o, u->model)) {
        pull_stop_on_signals();
        s = pull_stream_open(&o, u->model, tmp_dir, &u->stream, err);
        u->has_not_come = s != STATUS_OK;
        if (s == STATUS_OK)
            log_info("model_in_memory", "bytes=%llu seconds=%.2f parallel=%lld",
                     (unsigned long long)u->stream.n_bytes, u->stream.seconds,
                     (long long)o.parallel);
        u->model = u->stream.folder.path;
        u->stream_name = u->stream.name;
        if (u->o.served_model_names.n_items == 0)
            u->o.served_model_names = (struct option_list){&u->stream_name, 1};
    }
    config_fini(&res);
    return s;
}

static void stop(void *ctx)
{
    struct up *u = ctx;
    if (u->screen && !u->is_stopping)
        up_screen_print(u->screen, u->detach.fd >= 0
                                       ? "Stopping.\n"
                                       : "Stopping. Ctrl-C again ends all processes at once.\n");
    u->is_stopping = true;
    up_probe_stop(u->probe);
    supervisor_stop(u->supervisor);
}

static void on_signal(void *ctx, int signum)
{
    stop(ctx);
}

/* `cox stop` never ends open requests at once, however often it is typed. */
static void stop_in_order(void *ctx)
{
    if (!((struct up *)ctx)->is_stopping)
        stop(ctx);
}

/* `ps` shows a child's command line to everyone on the machine, its environment only to us. */
static enum status export_secrets(const struct up_options *o, struct error *err)
{
    struct strbuf keys;
    enum status s = STATUS_OK;
    strbuf_init(&keys, 0);
    for (size_t i = 0; i < o->api_keys.n_items; i++) {
        if (strchr(o->api_keys.items[i], ','))
            s = error_set(err, STATUS_INVALID, "a key with a comma: put it into --api-key-file");
        strbuf_append_c(&keys, i ? "," : "");
        strbuf_append_c(&keys, o->api_keys.items[i]);
    }
    const char *password = o->ssl.keyfile_password;
    if (s == STATUS_OK && password && setenv("COX_SSL_KEYFILE_PASSWORD", password, 1) != 0)
        s = error_set(err, STATUS_LIMIT, "the environment takes no --ssl-keyfile-password");
    const char *collector = o->trace.endpoint;
    if (s == STATUS_OK && collector && setenv("COX_OTLP_TRACES_ENDPOINT", collector, 1) != 0)
        s = error_set(err, STATUS_LIMIT, "the environment takes no --otlp-traces-endpoint");
    if (s == STATUS_OK && o->redis && setenv("COX_REDIS", o->redis, 1) != 0)
        s = error_set(err, STATUS_LIMIT, "the environment takes no --redis");
    if (s == STATUS_OK && keys.len > 0 && setenv("COX_API_KEY", keys.ptr, 1) != 0)
        s = error_set(err, STATUS_LIMIT, "the environment takes no more: use --api-key-file");
    strbuf_fini(&keys);
    return s;
}

static enum status prepare(struct up *u, struct error *err)
{
    const char *tmp_dir = getenv("TMPDIR");
    tmp_dir = tmp_dir && tmp_dir[0] ? tmp_dir : "/tmp";
    TRY(model_with_revision(u->model, u->o.revision, &u->arena, &u->model, err));
    if (u->o.load_format >= UP_LOAD_STREAM) {
        (void)unsetenv("COX_CONFIG");
        TRY(stream_model(u, tmp_dir, err));
    } else {
        TRY(fetch_model(u, err));
    }
    TRY(check_model(&u->o, u->model, &u->family, err));
    TRY(export_secrets(&u->o, err));
    (void)unsetenv("COX_CONFIG"); /* it holds this command's options, which the children lack */
    (void)unsetenv("COX_MODEL");  /* the head would take it for a name */
    TRY(find_bin_dir(u->bin_dir, sizeof u->bin_dir, err));
    /* Before the keys are written: a Ctrl-C from here on waits for the loop, which ends at once and
     * removes them, instead of killing us and leaving private keys behind. */
    TRY(loop_new(&u->loop, err));
    TRY(loop_on_signal(u->loop, SIGINT, on_signal, u));
    TRY(loop_on_signal(u->loop, SIGTERM, on_signal, u));
    TRY(loop_on_signal(u->loop, SIGHUP, on_signal, u));
    if (pull_is_stopped()) { /* after the last byte had come: nobody has looked since */
        u->has_not_come = true;
        return error_set(err, STATUS_CLOSED, "stopped");
    }
    TRY(make_keys(u, tmp_dir, err));
    const char *thrown = strrchr(u->throw_away.path, '/'); /* a folder of a random name */
    u->place = (struct up_place){.bin_dir = u->bin_dir,
                                 .keys_dir = u->keys_dir,
                                 .own_name = thrown && !u->o.keys_dir ? thrown + 1 : NULL,
                                 .n_cores = host_cpus(),
                                 .numa = &u->numa};
    find_nodes(u);
    TRY(up_plan_build(&u->o, u->model, &u->place, &u->arena, &u->plan, err));
    snprintf(u->url, sizeof u->url, "%s://%s", u->o.ssl.certfile ? "https" : "http",
             u->o.uds ? "localhost" : up_reachable(&u->arena, u->o.host, u->o.port));
    u->admin = up_reachable(&u->arena, u->o.admin_host, u->o.admin_port);
    say_of_model(u, sagemaker_loading);
    return check_machine(u, err);
}

/* ---- cox logs, cox scale ---- */

static void on_line(void *ctx, const char *name, const char *line, size_t n, bool is_stderr)
{
    struct up *u = ctx;
    if (u->screen)
        up_screen_line(u->screen, name, line, n, is_stderr);
    up_detach_logged(&u->detach, n + LOG_NAME_BYTES);
    if (u->control)
        up_control_add_line(u->control, name, line, n);
}

static const char *state(void *ctx)
{
    const struct up *u = ctx;
    return u->is_stopping ? "stopping" : u->is_ready ? "serving" : "starting";
}

static const char *process(void *ctx, uint32_t i)
{
    return supervisor_name(((struct up *)ctx)->supervisor, i);
}

static uint32_t n_workers(void *ctx)
{
    return supervisor_count(((struct up *)ctx)->supervisor, UP_WORKER);
}

static enum status add_worker(struct up *u, uint32_t i, struct error *err)
{
    const struct up_child *c;
    TRY(up_plan_worker(&u->o, u->model, &u->place, &u->arena, i, &c, err));
    for (uint32_t k = 0; k < c->n_listeners; k++) {
        const struct up_listener *l = &c->listeners[k];
        if (l->host)
            TRY(preflight_port(l->host, l->port, l->what, l->flag, err));
    }
    return supervisor_add(u->supervisor, c, err);
}

/* Worker i runs when i is below n: the last ones go, and come back. */
static enum status scale(void *ctx, uint32_t n, struct error *err)
{
    struct up *u = ctx;
    char name[32];
    for (uint32_t i = 0;; i++) {
        snprintf(name, sizeof name, "worker-%u", i);
        if (supervisor_has(u->supervisor, name))
            supervisor_leave(u->supervisor, name, i >= n);
        else if (i < n)
            TRY(add_worker(u, i, err));
        else
            return STATUS_OK;
    }
}

/* Not being able to is no reason not to serve. */
static void start_control(struct up *u)
{
    struct error err = {0};
    const struct up_control_options o = {.loop = u->loop,
                                         .folder = u->throw_away.path,
                                         .admin = u->admin,
                                         .admin_key_file = u->o.admin_key_file,
                                         .name = u->cluster_name,
                                         .model = u->plan.model_name,
                                         .url = u->o.uds ? u->o.uds : u->url,
                                         .log_file =
                                             u->detach.log_file[0] ? u->detach.log_file : NULL,
                                         .state = state,
                                         .process = process,
                                         .stop = stop_in_order,
                                         .group = (uint32_t)(u->o.tp * u->o.pp),
                                         .max_groups = up_options_max_groups(&u->o),
                                         .n_workers = n_workers,
                                         .scale = scale,
                                         .ctx = u};
    enum status s = u->throw_away.path[0]
                        ? up_control_start(&o, &u->control, &err)
                        : error_set(&err, STATUS_IO, "no folder can be made in %s (TMPDIR)",
                                    local_cluster_folder());
    if (s == STATUS_OK)
        return;
    u->control = NULL;
    char text[sizeof err.text + 128];
    snprintf(text, sizeof text,
             "`cox ps`, `cox stop`, `cox logs` and `cox scale` do not find this cluster; all else "
             "works: %s",
             err.text);
    if (u->screen)
        command_warn(u->name, text);
    else
        log_warn("no_control", "why=%s", log_quote(text));
}

/* The gateways end by themselves when the time is over, and tell their clients first. */
static uint32_t drain_ms(double shutdown_timeout_s)
{
    return shutdown_timeout_s > 0 ? (uint32_t)(shutdown_timeout_s * 1000) + LAST_WORDS_MS : 0;
}

static enum status run(struct up *u, struct error *err)
{
    bool color = u->o.color == 1 || (u->o.color == 0 && isatty(STDERR_FILENO));
    const struct supervisor_options so = {.loop = u->loop,
                                          .plan = &u->plan,
                                          .pids_file = u->o.print_pids,
                                          .drain_role = UP_GATEWAY,
                                          .drain_ms = drain_ms(u->o.shutdown_timeout_s),
                                          .color = color,
                                          .quiet = u->screen && u->detach.fd < 0,
                                          .on_line = on_line,
                                          .ctx = u};
    start_control(u); /* what it warns of is seen where a background start was typed */
    up_detach_begin_log(&u->detach);
    enum status s = supervisor_start(&so, &u->supervisor, err);
    if (s != STATUS_OK)
        supervisor_stop(u->supervisor);
    const struct up_probe_options po = {.loop = u->loop,
                                        .url = u->url,
                                        .uds = u->o.uds,
                                        .admin = u->admin,
                                        .admin_key_file = u->o.admin_key_file,
                                        .by_head = u->o.ssl.cert_reqs == 2,
                                        .wants_status = u->screen != NULL,
                                        .timeout_s = u->o.startup_timeout_s,
                                        .begin_ns = u->begin_ns,
                                        .n_workers = u->plan.n_workers,
                                        .on_change = on_probe,
                                        .ctx = u};
    u->probe = s == STATUS_OK ? up_probe_start(&po) : NULL;
    loop_run(u->loop);
    up_probe_stop(u->probe);
    if (s == STATUS_OK && u->is_late)
        s = error_set(err, STATUS_TIMEOUT,
                      "no request could be served within %g s (--startup-timeout): %s says what "
                      "was waited for",
                      u->o.startup_timeout_s,
                      u->detach.log_file[0] ? "its log"
                      : u->screen           ? "`cox up --verbose`"
                                            : "the log above");
    if (s == STATUS_OK && supervisor_failure(u->supervisor)[0])
        s = error_set(err, STATUS_INVALID, "%s", supervisor_failure(u->supervisor));
    return s;
}

static void finish(struct up *u)
{
    up_probe_free(u->probe);
    supervisor_free(u->supervisor);
    up_control_free(u->control);
    if (u->loop)
        loop_free(u->loop);
    up_screen_free(u->screen);
    throw_away_remove(&u->throw_away);
    pull_stream_close(&u->stream);
    arena_fini(&u->arena);
}

/* Says it; the exit code. */
static int fail(const struct up *u, enum status s, const struct error *err)
{
    bool is_log = u->detach.fd >= 0 && u->detach.log_fd < 0; /* what stderr is */
    if (u->screen && (is_log || u->detach.fd < 0)) {
        char text[sizeof err->text + 32];
        snprintf(text, sizeof text, "cox %s: %s\n", u->name, err->text);
        up_screen_print(u->screen, text);
    }
    if (u->screen && u->detach.fd < 0)
        (void)0; /* that was standard error */
    else if (log_is_json())
        log_error("failed", "text=%s", log_quote(err->text));
    else
        fprintf(stderr, "cox %s: %s\n", u->name, err->text);
    if (u->has_not_come)
        return pull_exit_code(s);
    return s == STATUS_IO || s == STATUS_TIMEOUT ? EXIT_FAILED : EXIT_USAGE;
}

/* On a terminal, or for the command that waits for a cluster in the background. */
static void open_screen(struct up *u)
{
    bool is_short = u->detach.fd >= 0 || (isatty(STDERR_FILENO) == 1 && !u->o.verbose &&
                                          u->o.log_level >= LOG_INFO && !log_is_json());
    if (!is_short)
        return;
    if (u->detach.fd >= 0)
        u->screen_options.fd = u->detach.fd;
    else if (u->o.log_level < LOG_WARN) /* what matters of our own events the supervisor shows */
        log_init("cox", LOG_WARN, (enum log_format)u->o.log_format);
    u->screen = up_screen_new(&u->screen_options);
}

/* *code: of the command, when the cluster is another process. */
static enum status begin(struct up *u, enum up_side *side, int *code, struct error *err)
{
    bool color = u->o.color == 1 || (u->o.color == 0 && isatty(STDERR_FILENO) == 1);
    const struct option_list *names = &u->o.served_model_names;
    *side = UP_SIDE_CLUSTER;
    up_detach_init(&u->detach);
    TRY(up_name_choose(u->o.name, names->n_items > 0 ? names->items[0] : u->model, u->cluster_name,
                       &u->is_only, err));
    u->screen_options = up_screen_of_stderr(color);
    if (u->o.detach) {
        u->screen_options.columns = up_screen_width(&u->screen_options); /* a pipe has none */
        TRY(up_detach(u->name, u->cluster_name, &u->detach, side, code, err));
    }
    if (*side == UP_SIDE_CLUSTER)
        open_screen(u);
    return STATUS_OK;
}

int cmd_up(int argc, char **argv)
{
    struct up *u = mem_zalloc(sizeof *u);
    struct config_result res;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox up MODEL [OPTION...]",
                                      .specs = vllm_up_specs(up_specs, up_n_specs),
                                      .n_specs = up_n_specs,
                                      .max_positional = 1,
                                      .log_format = &u->o.log_format};
    u->name = argv[0];
    u->begin_ns = clock_mono_ns();
    bool by_sagemaker = up_sagemaker_is_wanted(&line, argc, argv);
    char **own_argv = NULL;
    struct arena texts;
    arena_init(&texts, 0);
    res = (struct config_result){0};
    if (by_sagemaker &&
        up_sagemaker_argv(&argc, argv, &texts, &own_argv, &u->sagemaker_settings, &code))
        argv = own_argv;
    if ((!by_sagemaker || own_argv) && command_parse(&line, argc, argv, &u->o, &res, &code)) {
        if (res.positional.n_items == 0) {
            char usage[COMMAND_USAGE_BYTES];
            fprintf(stderr,
                    "cox %s: which model? usage: %s; MODEL is null, demo, a GGUF file, a "
                    "model folder, or a name that `cox pull` takes (ORG/NAME, s3://…)\n",
                    argv[0], command_usage(argv[0], line.usage, usage));
            code = EXIT_USAGE;
        } else {
            u->model = res.positional.items[0];
            log_init("cox", (enum log_level)u->o.log_level, (enum log_format)u->o.log_format);
            arena_init(&u->arena, 0);
            enum up_side side;
            enum status s = begin(u, &side, &code, &err);
            if (s == STATUS_OK && side == UP_SIDE_CLUSTER)
                s = prepare(u, &err);
            if (s == STATUS_OK && side == UP_SIDE_CLUSTER)
                s = run(u, &err);
            if (s != STATUS_OK)
                code = fail(u, s, &err);
            finish(u);
        }
    }
    config_fini(&res);
    mem_free(own_argv);
    arena_fini(&texts);
    mem_free(u);
    return code;
}

int cmd_serve(int argc, char **argv)
{
    bool names_none = argc < 2 || argv[1][0] == '-';
    return names_none && sagemaker_is_multi_model(environ) ? models_serve(argc, argv)
                                                           : cmd_up(argc, argv);
}
