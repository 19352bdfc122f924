/* Starts and stops the processes of loaded models. Each model is a `cox serve` of its own.
 * serve.c calls `model_process_start` and `model_process_stop`. The table (table.h) has the
 * model's folder, GPUs and ports. This file makes the command line and environment. `on_line`
 * detects that the model serves, and `on_exit_of` that its process has ended.
 * Invariants: a `struct process` owns its strings and lives until its model is removed. A
 * waiting request is answered exactly once, or forgotten when its client leaves. A model's
 * folder is below `root`, even after links are resolved. Only the loop thread calls these
 * functions. */
#include "cli/multi_model/process.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/loop/child.h"

enum { ARGV_MAX = 300, ENV_MAX = 4096, LAST_WORDS_MAX = 512, EXTRA_VARIABLES = 4 };

struct process {
    struct model_host *host;
    struct loaded_model *m;
    struct loop_child *child;
    struct http_request *loader, *unloader;
    struct arena texts; /* arena of the strings of argv and env */
    const char *argv[ARGV_MAX];
    const char **env;
    bool asked_to_stop;
    char last_words[LAST_WORDS_MAX];
};

enum status model_host_init(struct model_host *h, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", h->exe, sizeof h->exe - 1);
    if (n <= 0)
        return error_set(err, STATUS_IO, "cannot find the program's folder: /proc/self/exe: %s",
                         strerror(errno));
    h->exe[n] = '\0';
    return STATUS_OK;
}

static void free_process(struct process *p)
{
    arena_fini(&p->texts);
    mem_free(p->env);
    mem_free(p);
}

void model_host_fini(struct model_host *h)
{
    for (uint32_t i = 0; h->table && i < h->table->n_slots; i++) {
        struct process *p = h->table->models[i].used ? h->table->models[i].user : NULL;
        if (!p)
            continue;
        if (p->child)
            loop_child_free(p->child);
        free_process(p);
    }
}

uint32_t model_processes(const struct model_host *h)
{
    return h->n_alive;
}

/* ---- command line and environment ---- */

static const char *copy(struct process *p, struct str s)
{
    char *out = arena_try_alloc(&p->texts, s.len + 1);
    if (!out)
        return "";
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
    return out;
}

static void add(struct process *p, uint32_t *n, const char *flag, const char *value)
{
    p->argv[(*n)++] = flag;
    p->argv[(*n)++] = value;
}

static const char *number(struct process *p, uint32_t v)
{
    char text[16];
    snprintf(text, sizeof text, "%u", v);
    return copy(p, str_from(text));
}

/* Makes the command line of the model's process. The addresses are last, so that no given option
 * can change them. */
static enum status make_argv(struct process *p, struct error *err)
{
    const struct model_host *h = p->host;
    uint32_t n = 0, port = p->m->port;
    if (h->n_argv + 16 > ARGV_MAX)
        return error_set(err, STATUS_LIMIT, "too many options after `serve`: remove some of them");
    p->argv[n++] = h->exe;
    p->argv[n++] = "serve";
    for (uint32_t i = 0; i < h->n_argv; i++)
        p->argv[n++] = h->argv[i];
    add(p, &n, "--host", "127.0.0.1");
    /* the front process forwards the Host and Origin headers of its clients */
    add(p, &n, "--allowed-hosts", "*");
    add(p, &n, "--port", number(p, port));
    add(p, &n, "--head-port", number(p, port + 1));
    add(p, &n, "--admin-port", number(p, port + 2));
    add(p, &n, "--worker-http-port", number(p, port + 3));
    p->argv[n] = NULL;
    return STATUS_OK;
}

static bool is_named(const char *variable, const char *name)
{
    size_t n = strlen(name);
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

/* Returns true for a variable that gets its own value for each model. */
static bool is_replaced(const struct process *p, const char *variable)
{
    static const char *const names[] = {
        "SERVING_MODEL_STORE", "SAGEMAKER_MULTI_MODEL",  "HF_MODEL_ID",
        "OPTION_MODEL_ID",     "SAGEMAKER_BIND_TO_PORT", "OPTION_SERVED_MODEL_NAME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_named(variable, names[i]))
            return true;
    return p->m->gpus && is_named(variable, "CUDA_VISIBLE_DEVICES");
}

static const char *variable(struct process *p, const char *name, struct str value)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "%s=", name);
    strbuf_append_str(&b, value);
    const char *out = copy(p, strbuf_str(&b));
    strbuf_fini(&b);
    return out;
}

static const char *devices(struct process *p)
{
    struct strbuf b;
    bool any = false;
    strbuf_init(&b, 0);
    for (uint32_t i = 0; i < MODEL_MAX_GPUS; i++)
        if (p->m->gpus >> i & 1) {
            strbuf_append_c(&b, any ? "," : "");
            sagemaker_gpu_name(p->host->environ_, i, &b);
            any = true;
        }
    const char *out = variable(p, "CUDA_VISIBLE_DEVICES", strbuf_str(&b));
    strbuf_fini(&b);
    return out;
}

static void make_env(struct process *p)
{
    uint32_t n = 0, n_all = 0;
    char *const *all = p->host->environ_;
    while (all[n_all])
        n_all++;
    p->env = mem_array((size_t)n_all + EXTRA_VARIABLES + 1, sizeof *p->env);
    for (uint32_t i = 0; i < n_all; i++)
        if (!is_replaced(p, all[i]))
            p->env[n++] = all[i];
    p->env[n++] = variable(p, "SERVING_MODEL_STORE", str_from(p->m->url));
    p->env[n++] = variable(p, "OPTION_SERVED_MODEL_NAME", str_from(p->m->name));
    p->env[n++] = variable(p, "SAGEMAKER_BIND_TO_PORT", str_from(number(p, p->m->port)));
    if (p->m->gpus)
        p->env[n++] = devices(p);
    p->env[n] = NULL;
}

/* ---- start and end ---- */

/* Returns true for the line with which `cox up` reports that it serves, as text or as an event. */
static bool is_ready_line(const char *line)
{
    bool ours = strncmp(line, "cox ", 4) == 0 || strstr(line, "\"event\":\"note\"");
    return ours && strstr(line, "ready in ");
}

static void on_line(void *ctx, struct loop_child *child, const char *line, size_t n, bool is_stderr)
{
    struct process *p = ctx;
    struct http_request *loader = p->loader;
    fprintf(stderr, "%s: %.*s\n", p->m->name, (int)n, line);
    if (n > 0)
        snprintf(p->last_words, sizeof p->last_words, "%.*s", (int)n, line);
    if (p->m->state != MODEL_LOADING || !is_ready_line(p->last_words))
        return;
    p->m->state = MODEL_READY;
    p->loader = NULL;
    log_info("model_loaded", "name=%s port=%u", p->m->name, p->m->port);
    p->host->on_ready(p->host->ctx, p->m, loader);
}

static void on_exit_of(void *ctx, struct loop_child *child, int64_t status, int term_signal)
{
    struct process *p = ctx;
    struct model_host *h = p->host;
    struct loaded_model *m = p->m;
    bool was_ready = m->state == MODEL_READY;
    loop_child_free(child);
    p->child = NULL;
    h->n_alive--;
    log_info("model_ended", "name=%s status=%lld signal=%d", m->name, (long long)status,
             term_signal);
    struct http_request *loader = p->loader, *unloader = p->unloader;
    p->loader = p->unloader = NULL;
    /* the model stays in the table as FAILED until it is deleted */
    if (!p->asked_to_stop && was_ready) {
        m->state = MODEL_FAILED;
        m->gpus = 0;
        h->on_ended(h->ctx, m, loader, unloader, p->last_words);
        return;
    }
    model_table_remove(m);
    h->on_ended(h->ctx, m, loader, unloader, p->last_words);
    free_process(p);
}

static enum status start(struct process *p, struct error *err)
{
    TRY(make_argv(p, err));
    make_env(p);
    const struct loop_child_options o = {
        .argv = p->argv, .env = p->env, .on_line = on_line, .on_exit = on_exit_of, .ctx = p};
    TRY(loop_child_spawn(p->host->loop, &o, &p->child, err));
    p->host->n_alive++;
    log_info("model_started", "name=%s port=%u pid=%d", p->m->name, p->m->port,
             loop_child_pid(p->child));
    return STATUS_OK;
}

/* Checks the host's memory. Without GPUs a model needs 1.2 times the size of its files. DJL uses
 * the same estimate. */
static enum status check_memory(const struct model_host *h, const struct sagemaker_output *o,
                                const char *folder, struct error *err)
{
    uint64_t files = sagemaker_weight_bytes(folder), free_mb = host_available_bytes() >> 20;
    uint64_t want = o->required_memory_mb;
    if (!want && h->table->n_gpus == 0)
        want = (files + files / 5) >> 20;
    if (!want || want + o->reserved_memory_mb <= free_mb)
        return STATUS_OK;
    return error_set(err, STATUS_NO_MEMORY,
                     "not enough memory for the model: it needs %llu MB and %llu MB must stay "
                     "free, but only %llu MB are free. Unload another model first",
                     (unsigned long long)want, (unsigned long long)o->reserved_memory_mb,
                     (unsigned long long)free_mb);
}

/* Resolves the url to a folder, links included, and checks that the folder is below the root. */
static enum status find_folder(const struct model_host *h, const char *url, char out[PATH_MAX],
                               struct error *err)
{
    char root[PATH_MAX];
    if (!model_url_is_below(url, h->root))
        return error_set(err, STATUS_INVALID, "url must be a folder below %s", h->root);
    if (!realpath(url, out) || !realpath(h->root, root))
        return error_set(err, STATUS_NOT_FOUND, "cannot find the model folder %s: %s", url,
                         strerror(errno));
    if (!model_url_is_below(out, root))
        return error_set(err, STATUS_INVALID, "url must be a folder below %s", h->root);
    return STATUS_OK;
}

/* Reads the model's settings in the same way as the model's own process will read them. */
static enum status look_at_settings(const struct model_host *h, const char *folder,
                                    struct sagemaker_output *out, struct arena *texts,
                                    struct error *err)
{
    static char properties[SAGEMAKER_PROPERTIES_MAX];
    const struct sagemaker_input in = {.environ_ = h->environ_,
                                       .properties = sagemaker_properties(folder, properties),
                                       .has_weights = sagemaker_has_weights(folder),
                                       .n_gpus = h->table->n_gpus};
    return sagemaker_read(&in, texts, out, err);
}

enum status model_process_start(struct model_host *h, struct str name, const char *url,
                                struct http_request *loader, struct error *err)
{
    char folder[PATH_MAX];
    struct sagemaker_output settings;
    struct loaded_model *m;
    /* a name that is already in use is refused before its folder is checked */
    if (model_table_find(h->table, name))
        return error_set(err, STATUS_EXISTS, "The model is already registered.");
    TRY(find_folder(h, url, folder, err));
    struct process *p = mem_zalloc(sizeof *p);
    arena_init(&p->texts, 0);
    p->host = h;
    p->loader = loader;
    enum status s = look_at_settings(h, folder, &settings, &p->texts, err);
    if (s == STATUS_OK)
        s = check_memory(h, &settings, folder, err);
    if (s == STATUS_OK)
        s = model_table_add(h->table, name, str_from(folder),
                            h->table->n_gpus ? settings.n_model_gpus : 0, &m, err);
    if (s != STATUS_OK) {
        free_process(p);
        return s;
    }
    p->m = m;
    m->user = p;
    s = start(p, err);
    if (s != STATUS_OK) {
        model_table_remove(m);
        free_process(p);
    }
    return s;
}

bool model_process_stop(struct model_host *h, struct loaded_model *m, struct http_request *unloader)
{
    struct process *p = m->user;
    if (p->asked_to_stop)
        return false;
    if (!p->child) { /* the model's process has failed */
        model_table_remove(m);
        h->on_ended(h->ctx, m, NULL, unloader, "");
        free_process(p);
        return true;
    }
    p->asked_to_stop = true;
    p->unloader = unloader;
    m->state = MODEL_STOPPING;
    loop_child_kill(p->child, SIGTERM);
    return true;
}

void model_processes_stop(struct model_host *h)
{
    for (uint32_t i = 0; i < h->table->n_slots; i++) {
        struct process *p = h->table->models[i].used ? h->table->models[i].user : NULL;
        if (!p || !p->child)
            continue;
        loop_child_kill(p->child, p->asked_to_stop ? SIGKILL : SIGTERM);
        p->asked_to_stop = true;
    }
}

bool model_process_forget(struct model_host *h, const struct http_request *r)
{
    for (uint32_t i = 0; i < h->table->n_slots; i++) {
        struct process *p = h->table->models[i].used ? h->table->models[i].user : NULL;
        if (!p || (p->loader != r && p->unloader != r))
            continue;
        if (p->loader == r)
            p->loader = NULL;
        else
            p->unloader = NULL;
        return true;
    }
    return false;
}
