/* Runs a whole cluster as children of `cox up`, from the options until its end. `up_cluster_run`
 * names the cluster and may move it to the background (local/detach.h). It fetches the model,
 * plans the processes, and starts the supervisor on this thread's loop. A probe thread (probe.h)
 * notifies the loop when the cluster serves requests. screen.h shows the start; local/control.h
 * serves `cox logs`, `cox scale` and `cox stop`.
 * Invariants: everything in `struct up` belongs to the loop's thread. The loop handles signals
 * before private keys are written, so that the keys are always removed. `finish` is called in
 * every case. */
#include "cli/up/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/pull/options.h"
#include "cli/pull/stop.h"
#include "cli/sagemaker/log.h"
#include "cli/up/local/control.h"
#include "cli/up/local/detach.h"
#include "cli/up/local/find.h"
#include "cli/up/local/name.h"
#include "cli/up/plan/argv.h"
#include "cli/up/plan/plan.h"
#include "cli/up/prepare/machine.h"
#include "cli/up/prepare/model.h"
#include "cli/up/probe.h"
#include "cli/up/process/supervisor.h"
#include "cli/up/ready.h"
#include "cli/up/sagemaker.h"
#include "cli/up/screen.h"
#include "cli/up/several/edit.h"
#include "cli/up/several/plan.h"
#include "cli/up/several/set_run.h"
#include "cli/up/several/views.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

/* time in ms; it exceeds the time that a gateway gives its clients to read the last message */
enum { LAST_WORDS_MS = 9000 };
/* A worker that gets SIGTERM drains for at most 30 s (its --drain-timeout). */
enum { LEAVE_KILL_MS = 40000 };
/* A new spare must not take CPU from a worker that starts. */
enum { SPARES_CALM_MS = 2000, SPARES_ANSWER_MS = 1000 };
enum { LOG_NAME_BYTES = 14 };

struct up {
    struct up_options *o;
    struct up_model model;
    struct up_machine machine;
    struct arena arena;
    struct up_plan plan;
    const struct set_input *models; /* several models; NULL = one, in `model` */
    struct set_run *set;            /* state of several models */
    /* the model's settings in DJL's form, for the log; NULL = none */
    const char *sagemaker_settings;
    struct loop *loop;
    struct supervisor *supervisor;
    struct spares *spares; /* NULL = none */
    /* control socket of the cluster; NULL = `cox logs` and `cox scale` cannot find the cluster */
    struct up_control *control;
    const char *name; /* command's name: up or serve */
    uint64_t begin_ns;
    struct up_probe *probe;
    struct up_screen *screen; /* short form of the log on stderr; NULL = stderr has the whole log */
    struct up_screen_options screen_options;
    struct up_detach detach;
    char cluster_name[UP_NAME_BYTES];
    bool is_only;      /* no other cluster ran on this machine at the start */
    bool is_listening; /* the first gateway accepts connections */
    bool is_ready, is_late, is_stopping;
    char url[300];
    const char *admin; /* HOST:PORT of the head's admin API, on the arena */
};

/* ---- readiness ---- */

static void say_of_model(const struct up *u,
                         void (*say)(const struct sagemaker_model *m, struct strbuf *out))
{
    const struct up_sagemaker_model m = {.name = u->model.name,
                                         .served_as = u->plan.model_name,
                                         .family = u->model.family,
                                         .settings = u->sagemaker_settings};
    up_sagemaker_say(u->o, &m, say);
}

/* Returns the number of complete replicas that can serve at once. With --dp next to --workers,
 * the number is at most --dp. */
static uint32_t n_replicas(const struct up *u)
{
    uint32_t replica_ranks = (uint32_t)(u->o->tp * u->o->pp), n = u->plan.n_workers / replica_ranks;
    return up_options_max_replicas(u->o) > 0 && n > up_options_max_replicas(u->o)
               ? up_options_max_replicas(u->o)
               : n;
}

static void say_ready(struct up *u, const json_t *status)
{
    struct strbuf text;
    const struct up_ready r = {.url = u->url,
                               .uds = u->o->uds,
                               .admin = u->admin,
                               .model = u->set ? set_run_first_name(u->set) : u->plan.model_name,
                               .models = u->set ? set_run_names(u->set) : NULL,
                               .name = u->cluster_name,
                               .log_file = u->detach.log_file[0] ? u->detach.log_file : NULL,
                               .has_key = u->o->api_keys.n_items > 0 || u->o->api_key_file,
                               .wants_ca = u->o->ssl.certfile,
                               .wants_certificate = u->o->ssl.cert_reqs == 2,
                               .has_chat_page = !u->o->front.no_chat_page && !u->o->sagemaker,
                               .pid = u->control ? 0 : getpid(),
                               .is_only = u->is_only,
                               .is_usual_admin = strcmp(u->admin, ADMIN_USUAL_ADDRESS) == 0,
                               .n_workers = u->plan.n_workers,
                               .replica_ranks = (uint32_t)(u->o->tp * u->o->pp),
                               .n_replicas = n_replicas(u),
                               .n_gateways = (uint32_t)u->o->gateways,
                               .took_ms = (clock_mono_ns() - u->begin_ns) / NS_PER_MS,
                               .status = status};
    strbuf_init(&text, 0);
    if (u->screen) {
        up_ready_frame(&r, up_screen_columns(u->screen), up_screen_is_utf8(u->screen), &text);
        up_screen_print(u->screen, text.ptr);
        strbuf_reset(&text);
    }
    /* from here on, all output is in the log, and the typed command ends */
    if (u->detach.fd >= 0) {
        up_screen_free(u->screen);
        u->screen = NULL;
    }
    up_ready_plain(&r, &text);
    if (u->set)
        set_run_print(u->set, &text);
    for (char *line = strtok(text.ptr, "\n"); line; line = strtok(NULL, "\n")) {
        if (!u->screen)
            supervisor_say(u->supervisor, "%s", line);
        else if (u->control)
            up_control_add_line(u->control, "cox", line, strlen(line));
    }
    strbuf_fini(&text);
    up_detach_ready(&u->detach);
}

static void begin_serving(struct up *u, const json_t *status)
{
    u->is_ready = true;
    say_of_model(u, sagemaker_ready);
    say_ready(u, status);
}

/* Looks at the models of a set: whether they serve, or have all failed. */
static void on_models(void *ctx)
{
    struct up *u = ctx;
    if (u->is_stopping)
        return;
    if (set_run_failure(u->set)[0]) {
        u->is_stopping = true;
        up_probe_stop(u->probe);
        set_run_stop(u->set);
        supervisor_stop(u->supervisor);
    } else if (!u->is_ready && u->is_listening && set_run_is_ready(u->set)) {
        begin_serving(u, NULL);
    } else if (!u->is_ready && u->screen) {
        char text[200];
        set_run_progress(u->set, (clock_mono_ns() - u->begin_ns) / NS_PER_MS, text, sizeof text);
        up_screen_progress(u->screen, text);
    }
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
        if (u->set)
            set_run_stop(u->set);
        supervisor_stop(u->supervisor);
    } else if (u->set) {
        u->is_listening = now.serves;
        on_models(u);
    } else if (now.serves) {
        begin_serving(u, now.status);
    } else if (u->screen && now.progress[0]) {
        up_screen_progress(u->screen, now.progress);
    }
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
    if (u->set)
        set_run_stop(u->set);
    supervisor_stop(u->supervisor);
}

static void on_signal(void *ctx, int signum)
{
    stop(ctx);
}

/* Ends the cluster for `cox stop`. Open requests are never cut off, even when `cox stop` is
 * called twice. */
static void stop_in_order(void *ctx)
{
    if (!((struct up *)ctx)->is_stopping)
        stop(ctx);
}

/* ---- start ---- */

/* Prints the table of the memory, line by line, before any process starts. */
static void say_memory(struct up *u, struct strbuf *table)
{
    if (u->screen && table->len > 0) {
        up_screen_print(u->screen, table->ptr);
        return;
    }
    for (char *line = table->len > 0 ? strtok(table->ptr, "\n") : NULL; line;
         line = strtok(NULL, "\n"))
        if (log_is_json())
            log_info("note", "text=%s", log_quote(line));
        else
            fprintf(stderr, "%-10s | %s\n", "cox", line);
}

static enum status open_models(struct up *u, const char *tmp_dir, struct error *err)
{
    if (u->set)
        return set_run_open(u->set, u->name, tmp_dir, &u->arena, &u->model.has_not_come,
                            &u->model.fetched_ns, err);
    return up_model_open(&u->model, u->o, u->name, tmp_dir, &u->arena, err);
}

/* Plans the processes, and checks that their ports are free. */
static enum status plan_processes(struct up *u, struct error *err)
{
    struct up_plan all;
    struct strbuf table;
    if (!u->set) {
        TRY(up_plan_build(u->o, u->model.name, &u->machine.place, &u->arena, &u->plan, err));
        return up_machine_check(u->o, &u->plan, u->name, err);
    }
    strbuf_init(&table, 0);
    enum status s = set_run_plan(u->set, &u->machine, &u->plan, &all, &table, err);
    say_memory(u, &table);
    strbuf_fini(&table);
    return s == STATUS_OK ? up_machine_check(u->o, &all, u->name, err) : s;
}

static enum status prepare(struct up *u, struct error *err)
{
    const char *tmp_dir = getenv("TMPDIR");
    tmp_dir = tmp_dir && tmp_dir[0] ? tmp_dir : "/tmp";
    TRY(open_models(u, tmp_dir, err));
    if (u->model.fetched_ns > 0) /* start times and limits do not include the time of the fetch */
        u->begin_ns = u->model.fetched_ns;
    TRY(up_machine_export_secrets(u->o, err));
    /* COX_CONFIG holds options of this command, which the children do not know */
    (void)unsetenv("COX_CONFIG");
    (void)unsetenv("COX_MODELS");
    (void)unsetenv("COX_MODEL"); /* the head would use COX_MODEL as a served name */
    TRY(up_machine_find_programs(&u->machine, err));
    /* The loop handles signals before the keys are written. After that, Ctrl-C ends the loop,
     * and the keys are removed. A signal without a handler would end this process and leave
     * private keys on the disk. */
    TRY(loop_new(&u->loop, err));
    TRY(loop_on_signal(u->loop, SIGINT, on_signal, u));
    TRY(loop_on_signal(u->loop, SIGTERM, on_signal, u));
    TRY(loop_on_signal(u->loop, SIGHUP, on_signal, u));
    if (pull_is_stopped()) { /* the signal arrived after the fetch's last check */
        u->model.has_not_come = true;
        return error_set(err, STATUS_CLOSED, "the start was stopped by a signal");
    }
    TRY(up_machine_prepare(&u->machine, u->o, u->name, tmp_dir, err));
    snprintf(u->url, sizeof u->url, "%s://%s", u->o->ssl.certfile ? "https" : "http",
             u->o->uds ? "localhost" : up_reachable(&u->arena, u->o->host, u->o->port));
    u->admin = up_reachable(&u->arena, u->o->admin_host, u->o->admin_port);
    TRY(plan_processes(u, err));
    say_of_model(u, sagemaker_loading);
    return STATUS_OK;
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

static void on_spare_line(void *ctx, const char *line, size_t n)
{
    supervisor_say(((struct up *)ctx)->supervisor, "%.*s", (int)n, line);
}

static const char *state(void *ctx)
{
    const struct up *u = ctx;
    return u->is_stopping ? "stopping" : u->is_ready ? "serving" : "starting";
}

static bool on_model_ended(void *ctx, const struct up_child *c, bool gives_up, const char *why)
{
    return set_run_ended(((struct up *)ctx)->set, c, gives_up, why);
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
    TRY(up_plan_worker(u->o, u->model.name, &u->machine.place, &u->arena, i, &c, err));
    TRY(up_machine_check_ports(c, err));
    return supervisor_add(u->supervisor, c, err);
}

/* Changes the number of workers: worker i runs when i < n. The workers with the highest numbers
 * are stopped first and started last. */
static enum status scale(void *ctx, uint32_t n, struct error *err)
{
    struct up *u = ctx;
    char name[32];
    if (u->set)
        return error_set(err, STATUS_INVALID,
                         "this cluster serves several models, which start and stop on their own. "
                         "Set `workers` of a model in the --models file, and start the cluster "
                         "again");
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

static json_t *models(void *ctx, uint64_t change)
{
    return set_run_list(((struct up *)ctx)->set, change);
}

static enum status edit(void *ctx, const json_t *order, uint64_t *change, struct error *err)
{
    const struct up *u = ctx;
    if (u->is_stopping || !u->supervisor)
        return error_set(err, STATUS_INVALID, "the cluster is starting or stopping");
    return set_run_edit(u->set, order, change, err);
}

/* Starts the control socket. When that fails, the cluster serves without it, and a warning is
 * logged. */
static void start_control(struct up *u)
{
    struct error err = {0};
    const struct up_control_options o = {.loop = u->loop,
                                         .folder = u->machine.throw_away.path,
                                         .admin = u->admin,
                                         .admin_key_file = u->o->admin_key_file,
                                         .name = u->cluster_name,
                                         .model = u->plan.model_name,
                                         .url = u->o->uds ? u->o->uds : u->url,
                                         .log_file =
                                             u->detach.log_file[0] ? u->detach.log_file : NULL,
                                         .state = state,
                                         .process = process,
                                         .stop = stop_in_order,
                                         .replica_ranks = (uint32_t)(u->o->tp * u->o->pp),
                                         .max_replicas = up_options_max_replicas(u->o),
                                         .n_workers = n_workers,
                                         .scale = scale,
                                         .models = u->set ? models : NULL,
                                         .edit = edit,
                                         .ctx = u};
    enum status s =
        u->machine.throw_away.path[0]
            ? up_control_start(&o, &u->control, &err)
            : error_set(&err, STATUS_IO,
                        "cannot make a folder in %s. Set TMPDIR to a folder that you may write to",
                        local_cluster_folder());
    if (s == STATUS_OK)
        return;
    u->control = NULL;
    char text[sizeof err.text + 128];
    snprintf(text, sizeof text,
             "`cox ps`, `cox stop`, `cox logs` and `cox scale` cannot find this cluster; "
             "everything else works. Cause: %s",
             err.text);
    if (u->screen)
        command_warn(u->name, text);
    else
        log_warn("no_control", "why=%s", log_quote(text));
}

/* ---- the run ---- */

/* Returns the time for the gateways to drain, in ms. It is longer than --shutdown-timeout, after
 * which the gateways inform their clients and end by themselves. */
static uint32_t drain_ms(double shutdown_timeout_s)
{
    return shutdown_timeout_s > 0 ? (uint32_t)(shutdown_timeout_s * 1000) + LAST_WORDS_MS : 0;
}

static enum status run(struct up *u, struct error *err)
{
    if (u->set && u->o->spares > 0)
        u->spares = spares_new(&(struct spares_options){.loop = u->loop,
                                                        .n_each = (uint32_t)u->o->spares,
                                                        .calm_ms = SPARES_CALM_MS,
                                                        .answer_ms = SPARES_ANSWER_MS,
                                                        .on_line = on_spare_line,
                                                        .ctx = u});
    bool color = u->o->color == 1 || (u->o->color == 0 && isatty(STDERR_FILENO));
    const struct supervisor_options so = {.loop = u->loop,
                                          .plan = &u->plan,
                                          .pids_file = u->o->print_pids,
                                          .drain_role = UP_GATEWAY,
                                          .drain_ms = drain_ms(u->o->shutdown_timeout_s),
                                          .leave_ms = LEAVE_KILL_MS,
                                          .spares = u->spares,
                                          .color = color,
                                          .quiet = u->screen && u->detach.fd < 0,
                                          .on_line = on_line,
                                          .on_model_ended = u->set ? on_model_ended : NULL,
                                          .ctx = u};
    /* start_control is called before the log begins, so that its warning reaches the terminal */
    start_control(u);
    up_detach_begin_log(&u->detach);
    enum status s = supervisor_start(&so, &u->supervisor, err);
    if (s != STATUS_OK)
        supervisor_stop(u->supervisor);
    else if (u->set)
        set_run_start(u->set, u->loop, u->supervisor, u->spares, on_models, u);
    const struct up_probe_options po = {.loop = u->loop,
                                        .url = u->url,
                                        .uds = u->o->uds,
                                        .admin = u->admin,
                                        .admin_key_file = u->o->admin_key_file,
                                        .by_head = u->o->ssl.cert_reqs == 2,
                                        .only_listens = u->set != NULL,
                                        .wants_status = u->screen && !u->set,
                                        .timeout_s = u->o->startup_timeout_s,
                                        .begin_ns = u->begin_ns,
                                        .n_workers = u->plan.n_workers,
                                        .replica_ranks = (uint32_t)(u->o->tp * u->o->pp),
                                        .on_change = on_probe,
                                        .ctx = u};
    u->probe = s == STATUS_OK ? up_probe_start(&po) : NULL;
    loop_run(u->loop);
    up_probe_stop(u->probe);
    if (s == STATUS_OK && u->is_late)
        s = error_set(
            err, STATUS_TIMEOUT,
            "the cluster was not ready within %g s (--startup-timeout). See %s for the cause",
            u->o->startup_timeout_s,
            u->detach.log_file[0] ? "its log"
            : u->screen           ? "`cox up --verbose`"
                                  : "the log above");
    if (s == STATUS_OK && u->set && set_run_failure(u->set)[0])
        s = error_set(err, STATUS_INVALID, "all models have failed. The last one: %s",
                      set_run_failure(u->set));
    if (s == STATUS_OK && supervisor_failure(u->supervisor)[0])
        s = error_set(err, STATUS_INVALID, "%s", supervisor_failure(u->supervisor));
    return s;
}

static void finish(struct up *u)
{
    up_probe_free(u->probe);
    set_run_free(u->set);
    supervisor_free(u->supervisor);
    spares_free(u->spares);
    up_control_free(u->control);
    if (u->loop)
        loop_free(u->loop);
    up_screen_free(u->screen);
    throw_away_remove(&u->machine.throw_away);
    up_model_close(&u->model);
    arena_fini(&u->arena);
}

/* Prints the error and returns the exit code. */
static int fail(const struct up *u, enum status s, const struct error *err)
{
    bool is_log = u->detach.fd >= 0 && u->detach.log_fd < 0; /* stderr is redirected to the log */
    if (u->screen && (is_log || u->detach.fd < 0)) {
        char text[sizeof err->text + 32];
        snprintf(text, sizeof text, "cox %s: %s\n", u->name, err->text);
        up_screen_print(u->screen, text);
    }
    if (u->screen && u->detach.fd < 0)
        (void)0; /* the screen has already printed the error to stderr */
    else if (log_is_json())
        log_error("failed", "text=%s", log_quote(err->text));
    else
        fprintf(stderr, "cox %s: %s\n", u->name, err->text);
    if (u->model.has_not_come)
        return pull_exit_code(s);
    return s == STATUS_IO || s == STATUS_TIMEOUT ? EXIT_FAILED : EXIT_USAGE;
}

/* Opens the short form of the log. It is shown on a terminal, or by the typed command that waits
 * for a cluster in the background. */
static void open_screen(struct up *u)
{
    bool is_short = u->detach.fd >= 0 || (isatty(STDERR_FILENO) == 1 && !u->o->verbose &&
                                          u->o->log_level >= LOG_INFO && !log_is_json());
    if (!is_short)
        return;
    if (u->detach.fd >= 0)
        u->screen_options.fd = u->detach.fd;
    /* the supervisor shows the important events of this process */
    else if (u->o->log_level < LOG_WARN)
        log_init("cox", LOG_WARN, (enum log_format)u->o->log_format);
    u->screen = up_screen_new(&u->screen_options);
}

/* Begins the start of the cluster. When the cluster runs in another process, *code is the exit
 * code of the typed command. */
static enum status begin(struct up *u, enum up_side *side, int *code, struct error *err)
{
    bool color = u->o->color == 1 || (u->o->color == 0 && isatty(STDERR_FILENO) == 1);
    const struct option_list *names = &u->o->served_model_names;
    *side = UP_SIDE_CLUSTER;
    const char *model = names->n_items > 0 ? names->items[0] : u->model.name;
    up_detach_init(&u->detach);
    if (u->models)
        TRY(set_run_read(u->models, &u->arena, &u->set, err));
    TRY(up_name_choose(u->o->name, u->set ? set_run_first_name(u->set) : model, u->cluster_name,
                       &u->is_only, err));
    u->screen_options = up_screen_of_stderr(color);
    if (u->o->detach) {
        /* the terminal's width is read now, since stderr will be a pipe, which has no width */
        u->screen_options.columns = up_screen_width(&u->screen_options);
        TRY(up_detach(u->name, u->cluster_name, &u->detach, side, code, err));
    }
    if (*side == UP_SIDE_CLUSTER)
        open_screen(u);
    return STATUS_OK;
}

int up_cluster_run(const struct up_start *start)
{
    struct up *u = mem_zalloc(sizeof *u);
    struct error err = {0};
    enum up_side side;
    int code = EXIT_FINE;
    u->o = start->options;
    u->model.name = start->model;
    u->models = start->models;
    u->name = start->command;
    u->sagemaker_settings = start->sagemaker_settings;
    u->begin_ns = start->begin_ns;
    arena_init(&u->arena, 0);
    enum status s = begin(u, &side, &code, &err);
    if (s == STATUS_OK && side == UP_SIDE_CLUSTER)
        s = prepare(u, &err);
    if (s == STATUS_OK && side == UP_SIDE_CLUSTER)
        s = run(u, &err);
    if (s != STATUS_OK)
        code = fail(u, s, &err);
    finish(u);
    mem_free(u);
    return code;
}
