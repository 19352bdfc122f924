/* Runs the models of a `cox up` that serves several.
 * set_run_read, set_run_open and set_run_plan run in this order before any process starts. Each
 * model gets head, admin and worker ports behind those of the model before it. After the start, a
 * watch (set/watch.h) for each head wakes the loop; `look` passes the answers to the decisions
 * (set/demand.h), and `act` carries out the orders through the supervisor. A timer sees idle
 * times pass and workers end.
 * Invariants: workers of a model run only while the model's state in `demand` is not OFF. A model
 * that has failed never starts again, and no other model notices. Only the loop thread uses the
 * struct. */
#include "cli/up/set_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/sagemaker/host.h"
#include "cli/up/model.h"
#include "cli/up/plan/argv.h"
#include "cli/up/plan/numa.h"
#include "cli/up/plan/plan.h"
#include "cli/up/set/demand.h"
#include "cli/up/set/gateway_file.h"
#include "cli/up/set/measure.h"
#include "cli/up/set/memory.h"
#include "cli/up/set/watch.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/config/lookup.h"
#include "common/host/host.h"
#include "common/host/share_folder.h"
#include "common/options/worker.h"

enum { TICK_MS = 50, TRIES = 3, PORT_STEP = 10, WHY_BYTES = 800, NAMES_BYTES = 256 };

struct running_model {
    struct set_run *r;
    struct up_model opened;
    struct up_place place;
    struct up_plan plan; /* head and workers */
    const char *admin, *head;
    struct set_watch *watch;
    struct set_heard heard;
    uint64_t n_rests;  /* answers to rests that were handled */
    uint32_t *n_tries; /* [plan.n_children] ends of each process before the model served */
    bool has_served, has_workers; /* has_workers: the workers were added to the supervisor */
    char failed[WHY_BYTES];
};

struct set_run {
    struct set_input in;
    struct arena *arena;
    struct up_set set;
    struct running_model *models;
    struct set_memory memory;
    struct demand demand;
    struct loop_timer *timer;
    struct supervisor *supervisor;
    loop_fn *on_change;
    void *ctx;
    const char *file; /* the gateways' file */
    char names[NAMES_BYTES];
    bool is_stopping;
};

/* ---- before the start ---- */

/* Refuses options that name one model, or that a cluster of several models does not have. */
static enum status check_options(const struct up_options *o, struct error *err)
{
    const struct {
        const char *flag, *why;
        bool is_given;
    } rules[] = {
        {"--served-model-name", "name each model: NAME=MODEL, or `name` in the --models file",
         o->served_model_names.n_items > 0},
        {"--lora-modules", "set lora_modules of one model in the --models file",
         o->lora_modules.n_items > 0},
        {"--step-log", "set step_log of each model in the --models file", o->step_log != NULL},
        {"--gpu", "the plan assigns the GPUs; hide some with CUDA_VISIBLE_DEVICES", o->gpu >= 0},
        {"--standby", "run a cluster of its own for a model that needs a standby", o->standby},
        {"--sagemaker", "an endpoint serves one model; see the multi-model mode", o->sagemaker},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].is_given)
            return error_set(err, STATUS_INVALID,
                             "%s cannot be used on the command line of several models: %s",
                             rules[i].flag, rules[i].why);
    return STATUS_OK;
}

static void write_names(struct set_run *r)
{
    size_t used = 0;
    for (uint32_t i = 0; i < r->set.n && used < sizeof r->names; i++) {
        const struct demand_model *d = r->demand.models ? &r->demand.models[i] : NULL;
        const char *state = r->models[i].failed[0]        ? " (failed)"
                            : d && d->state == DEMAND_OFF ? " (asleep)"
                                                          : "";
        used += (size_t)snprintf(r->names + used, sizeof r->names - used, "%s%s%s", i ? ", " : "",
                                 r->set.models[i].name, state);
    }
}

enum status set_run_read(const struct set_input *in, struct arena *arena, struct set_run **out,
                         struct error *err)
{
    struct set_run *r = *out = mem_zalloc(sizeof *r);
    r->in = *in;
    r->arena = arena;
    TRY(check_options(in->options, err));
    TRY(up_set_read(in, arena, &r->set, err));
    r->models = mem_zalloc(r->set.n * sizeof *r->models);
    for (uint32_t i = 0; i < r->set.n; i++) {
        r->models[i].r = r;
        r->models[i].opened.name = r->set.models[i].source;
    }
    write_names(r);
    return STATUS_OK;
}

enum status set_run_open(struct set_run *r, const char *command, const char *tmp_dir,
                         struct arena *arena, bool *has_not_come, uint64_t *fetched_ns,
                         struct error *err)
{
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct up_model *m = &r->models[i].opened;
        enum status s = up_model_open(m, r->set.models[i].o, command, tmp_dir, arena, err);
        *has_not_come = *has_not_come || m->has_not_come;
        *fetched_ns = m->fetched_ns > *fetched_ns ? m->fetched_ns : *fetched_ns;
        if (s != STATUS_OK)
            return error_prefix(err, s, "model %s", r->set.models[i].name);
    }
    return STATUS_OK;
}

/* Gives each model ports of its own. Head and workers of model i have the ports of the model
 * before it plus 10, or plus the next multiple of 10 that has room for its workers. */
static enum status choose_ports(struct set_run *r, struct error *err)
{
    int64_t step = 0;
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct up_options *o = r->set.models[i].o;
        o->head_port += step;
        o->worker_http_port += step;
        o->comm_port += o->comm_port > 0 ? step : 0;
        o->kv_port += o->kv_port > 0 ? step : 0;
        o->admin_port += i;
        if (o->head_port > 65535 || o->admin_port > 65535)
            return error_set(err, STATUS_INVALID,
                             "the head of %s would need a port above 65535: choose a lower "
                             "--head-port or --admin-port",
                             r->set.models[i].name);
        step += (1 + up_options_n_workers(o) + PORT_STEP - 1) / PORT_STEP * PORT_STEP;
    }
    return STATUS_OK;
}

static enum status build_plan(struct set_run *r, uint32_t i, struct error *err)
{
    struct running_model *m = &r->models[i];
    enum status s =
        up_plan_build(r->set.models[i].o, m->opened.name, &m->place, r->arena, &m->plan, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "model %s", r->set.models[i].name);
}

static const struct up_child *first_worker(const struct up_plan *p)
{
    for (uint32_t i = 0; i < p->n_children; i++)
        if (p->children[i].role == UP_WORKER)
            return &p->children[i];
    return NULL;
}

/* Returns true when the model's workers compute, and so need memory. */
static bool has_weights(const struct running_model *m, const struct up_options *o)
{
    return o->device != UP_DEVICE_NULL && strcmp(m->opened.name, "null") != 0;
}

/* Returns how often the host has a model's weights: once for each rank slot if its workers share
 * them (worker/engine/shared.c), otherwise 0. Bound workers keep weights near their CPUs. */
static uint32_t count_copies(const struct up_options *o, bool on_gpus)
{
    struct error err;
    int fd = -1;
    if (on_gpus || up_numa_is_wanted(o) || o->load_format == WORKER_LOAD_DUMMY ||
        !share_folder_wanted(o->weights_share) ||
        share_folder_open(o->weights_share, &fd, &err) != STATUS_OK)
        return 0;
    close(fd);
    return (uint32_t)(o->tp * o->pp);
}

static enum status measure(struct set_run *r, bool on_gpus, struct set_need *needs,
                           uint64_t *device_bytes, struct error *err)
{
    struct set_measure_ask *asks = mem_zalloc(r->set.n * sizeof *asks);
    for (uint32_t i = 0; i < r->set.n; i++) {
        const struct running_model *m = &r->models[i];
        const struct up_options *o = r->set.models[i].o;
        int64_t ranks = o->tp * o->pp, n = m->plan.n_workers / ranks * ranks;
        uint32_t most = up_options_max_replicas(o);
        n = most > 0 && n > most * ranks ? most * ranks : n; /* spare workers have no weights */
        needs[i] = (struct set_need){.name = r->set.models[i].name, .start = o->start};
        asks[i] = (struct set_measure_ask){.worker = first_worker(&m->plan),
                                           .model = m->opened.name,
                                           .n_workers = (uint32_t)n,
                                           .has_weights = has_weights(m, o) && n > 0};
    }
    enum status s = set_measure(asks, r->set.n, on_gpus, needs, device_bytes, err);
    for (uint32_t i = 0; i < r->set.n; i++) {
        const struct up_options *o = r->set.models[i].o;
        if (needs[i].n_workers > 0)
            needs[i].n_copies = count_copies(o, on_gpus);
        if (o->kv_cache_memory_bytes > 0 || o->num_gpu_blocks_override > 0)
            needs[i].kv_least_bytes = needs[i].kv_wanted_bytes;
    }
    mem_free(asks);
    return s;
}

/* Finds out whether the models compute on GPUs, and measures them. */
static enum status measure_all(struct set_run *r, struct set_need *needs, struct error *err)
{
    uint32_t n_gpus = sagemaker_gpus(r->in.environ_), n_cpu = 0, n_cuda = 0;
    uint64_t device_bytes = 0;
    for (uint32_t i = 0; i < r->set.n; i++) {
        n_cuda += r->set.models[i].o->device == UP_DEVICE_CUDA;
        n_cpu += r->set.models[i].o->device == UP_DEVICE_CPU;
    }
    if (n_cuda > 0 && n_cpu > 0)
        return error_set(err, STATUS_INVALID,
                         "some models have the device cpu and others cuda: use one kind of device "
                         "for all models of a cluster");
    r->memory.on_gpus = n_cuda > 0 || (n_cpu == 0 && n_gpus > 0);
    enum status s = measure(r, r->memory.on_gpus, needs, &device_bytes, err);
    if (s != STATUS_OK && r->memory.on_gpus && n_cuda == 0) { /* this build has no CUDA */
        r->memory.on_gpus = false;
        s = measure(r, false, needs, &device_bytes, err);
    }
    int64_t given = r->in.options->models_memory;
    r->memory.n_devices = r->memory.on_gpus && n_gpus > 0 ? n_gpus : 1;
    r->memory.device_bytes = given > 0           ? (uint64_t)given
                             : r->memory.on_gpus ? device_bytes
                                                 : host_available_bytes() / 10 * 9;
    return s;
}

/* Writes the results of the memory plan into the options of the models. */
static void apply_memory(struct set_run *r, const struct set_need *needs, uint32_t n_at_once)
{
    uint32_t share = host_cpus() / (n_at_once > 0 ? n_at_once : 1);
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct up_options *o = r->set.models[i].o;
        r->set.models[i].need = needs[i];
        r->models[i].place.n_cores = share > 0 ? share : 1;
        if (needs[i].n_workers == 0)
            continue;
        if (o->kv_cache_memory_bytes == 0 && o->num_gpu_blocks_override == 0)
            o->kv_cache_memory_bytes = (int64_t)needs[i].kv_bytes;
        if (r->memory.on_gpus)
            o->gpu = needs[i].first_device;
    }
}

static enum status plan_memory(struct set_run *r, struct strbuf *table, struct error *err)
{
    struct set_need *needs = mem_zalloc(r->set.n * sizeof *needs);
    uint32_t n_at_once = 0;
    enum status s = measure_all(r, needs, err);
    if (s == STATUS_OK) {
        s = set_memory_plan(&r->memory, needs, r->set.n, &n_at_once, err);
        set_memory_print(&r->memory, needs, r->set.n, n_at_once, table);
    }
    if (s == STATUS_OK)
        apply_memory(r, needs, n_at_once);
    mem_free(needs);
    return s;
}

static void begin_demand(struct set_run *r)
{
    struct demand *d = &r->demand;
    *d = (struct demand){.models = mem_zalloc(r->set.n * sizeof *d->models),
                         .n_models = r->set.n,
                         .device_bytes = r->memory.device_bytes,
                         .n_devices = r->memory.n_devices,
                         .used = mem_zalloc(r->memory.n_devices * sizeof *d->used)};
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct demand_model *m = &d->models[i];
        const struct set_need *need = &r->set.models[i].need;
        m->always = need->start == UP_START_ALWAYS;
        m->first_device = need->first_device;
        m->n_devices = set_devices_of(&r->memory, need, &m->device_bytes);
        m->idle_ns = (uint64_t)r->set.models[i].o->idle_timeout_s * NS_PER_S;
        m->state = m->always ? DEMAND_ON : DEMAND_OFF;
    }
}

/* Returns the seconds that requests of a model wait. An on-demand model may have to load, and to
 * wait for memory, so its requests wait longer unless --queue-timeout was given. */
static uint32_t queue_timeout(const struct set_run *r, const struct up_options *o)
{
    size_t i = config_find(r->in.specs, r->in.n_specs, STR("queue-timeout"));
    bool is_usual = i < r->in.n_specs && r->in.specs[i].def &&
                    r->in.options->queue_timeout_s == strtod(r->in.specs[i].def, NULL);
    return o->start != UP_START_ALWAYS && is_usual ? UP_DEMAND_START_S : 0;
}

static enum status write_file(struct set_run *r, struct error *err)
{
    struct set_shown *shown = mem_zalloc(r->set.n * sizeof *shown);
    for (uint32_t i = 0; i < r->set.n; i++)
        shown[i] = (struct set_shown){.model = r->models[i].opened.name,
                                      .head = r->models[i].head,
                                      .queue_timeout_s = queue_timeout(r, r->set.models[i].o),
                                      .failed = r->models[i].failed};
    enum status s = set_gateway_file_write(r->file, &r->set, shown, err);
    mem_free(shown);
    return s;
}

/* Returns the pass of `join_plans` in which a child is added. */
static int pass_of(const struct up_child *c, bool always)
{
    return c->role == UP_HEAD ? 0 : always ? 1 : 2;
}

/* Joins the plans: heads, gateways, workers of `always` models, then the other workers. */
static void join_plans(struct set_run *r, const struct up_place *place, struct up_plan *out,
                       struct up_plan *all)
{
    const struct up_options *o = r->in.options;
    uint32_t n = (uint32_t)o->gateways, at = 0;
    for (uint32_t i = 0; i < r->set.n; i++)
        n += r->models[i].plan.n_children;
    struct up_child *children = arena_try_array(r->arena, n, sizeof *children);
    for (int pass = 0; pass < 3; pass++) {
        if (pass == 1) {
            up_plan_gateways(o, place, r->arena, children + at);
            at += (uint32_t)o->gateways;
        }
        for (uint32_t i = 0; i < r->set.n; i++)
            for (uint32_t k = 0; k < r->models[i].plan.n_children; k++) {
                const struct up_child *c = &r->models[i].plan.children[k];
                bool always = r->set.models[i].o->start == UP_START_ALWAYS;
                if (pass_of(c, always) == pass)
                    children[at++] = *c;
            }
        if (pass == 1)
            *out = (struct up_plan){.children = children, .n_children = at};
    }
    *all = (struct up_plan){.children = children, .n_children = at};
    for (uint32_t i = 0; i < at; i++) {
        all->n_workers += children[i].role == UP_WORKER;
        out->n_workers += children[i].role == UP_WORKER && i < out->n_children;
    }
    out->model_name = all->model_name = r->names;
}

enum status set_run_plan(struct set_run *r, const struct up_machine *m, struct up_plan *out,
                         struct up_plan *all, struct strbuf *table, struct error *err)
{
    struct up_builder b = {.arena = r->arena};
    struct up_place place = m->place;
    if (!m->throw_away.path[0])
        return error_set(err, STATUS_IO,
                         "there is no folder for the gateways' list of models. Set TMPDIR to a "
                         "folder that you may write to");
    r->file = up_text(&b, "%s/models.yaml", m->throw_away.path);
    place.models_file = r->file;
    TRY(choose_ports(r, err));
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct running_model *x = &r->models[i];
        const struct up_options *o = r->set.models[i].o;
        x->place = m->place;
        x->place.model = i + 1;
        x->place.model_tag = r->set.models[i].tag;
        x->admin = up_reachable(r->arena, o->admin_host, o->admin_port);
        x->head = up_reachable(r->arena, o->head_host, o->head_port);
        TRY(build_plan(r, i, err));
    }
    TRY(plan_memory(r, table, err));
    for (uint32_t i = 0; i < r->set.n; i++) /* again, with threads, KV cache and GPUs */
        TRY(build_plan(r, i, err));
    for (uint32_t i = 0; i < r->set.n; i++)
        r->models[i].n_tries = mem_zalloc(r->models[i].plan.n_children * sizeof(uint32_t));
    begin_demand(r);
    join_plans(r, &place, out, all);
    TRY(up_plan_check_ports(all, err));
    return write_file(r, err);
}

/* ---- the run ---- */

static void changed(struct set_run *r)
{
    write_names(r);
    if (r->on_change)
        r->on_change(r->ctx);
}

static void fail(struct set_run *r, uint32_t i, const char *why)
{
    struct running_model *m = &r->models[i];
    struct error err;
    snprintf(m->failed, sizeof m->failed, "%s", why);
    demand_fail(&r->demand, i);
    supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, true);
    supervisor_leave_model(r->supervisor, i + 1, UP_HEAD, true);
    supervisor_say(r->supervisor,
                   "warning: the model %s has failed and stays off; the other models go on. %s",
                   r->set.models[i].name, why);
    if (write_file(r, &err) != STATUS_OK)
        supervisor_say(r->supervisor, "warning: %s", err.text);
    changed(r);
}

/* Counts the end of a process. A fault that ends all ranks at once counts once for each. */
static uint32_t count_try(struct running_model *m, const struct up_child *c)
{
    for (uint32_t i = 0; i < m->plan.n_children; i++)
        if (strcmp(m->plan.children[i].name, c->name) == 0)
            return ++m->n_tries[i];
    return TRIES;
}

bool set_run_ended(struct set_run *r, const struct up_child *c, bool gives_up, const char *why)
{
    uint32_t i = c->model - 1;
    struct running_model *m = &r->models[i];
    if (m->failed[0])
        return false;
    if (m->has_served || (!gives_up && count_try(m, c) < TRIES))
        return true;
    fail(r, i, why);
    return false;
}

static void start_workers(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    struct error err;
    if (m->has_workers) {
        supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, false);
        return;
    }
    m->has_workers = true;
    for (uint32_t k = 0; k < m->plan.n_children; k++) {
        const struct up_child *c = &m->plan.children[k];
        if (c->role == UP_WORKER && supervisor_add(r->supervisor, c, &err) != STATUS_OK) {
            fail(r, i, err.text);
            return;
        }
    }
}

/* Carries out the decisions. */
static void act(struct set_run *r)
{
    bool any = false;
    for (struct demand_order o; !r->is_stopping;) {
        o = demand_decide(&r->demand, clock_mono_ns());
        if (o.act == DEMAND_NOTHING)
            break;
        any = true;
        if (o.act == DEMAND_START)
            start_workers(r, o.model);
        else
            set_watch_rest(r->models[o.model].watch);
    }
    if (any)
        changed(r);
}

/* Passes the news of a head to the decisions. */
static void look(void *ctx)
{
    struct running_model *m = ctx;
    struct set_run *r = m->r;
    uint32_t i = (uint32_t)(m - r->models);
    bool was_ready = set_run_is_ready(r);
    if (r->is_stopping || m->failed[0])
        return;
    set_watch_look(m->watch, &m->heard);
    if (m->heard.n_replicas > 0)
        m->has_served = true;
    if (m->heard.rest_answers > m->n_rests) {
        m->n_rests = m->heard.rest_answers;
        demand_rested(&r->demand, i, m->heard.rests, clock_mono_ns());
        if (m->heard.rests)
            supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, true);
    }
    if (m->heard.is_known)
        demand_heard(&r->demand, i, m->heard.wanted > 0, m->heard.n_open > 0,
                     (uint64_t)(m->heard.unused_s * (double)NS_PER_S), clock_mono_ns());
    set_watch_hurry(m->watch, m->heard.n_replicas == 0 || r->demand.models[i].state != DEMAND_ON);
    act(r);
    if (!was_ready && set_run_is_ready(r))
        changed(r);
}

static void on_tick(void *ctx)
{
    struct set_run *r = ctx;
    bool any = false;
    for (uint32_t i = 0; i < r->set.n && !r->is_stopping; i++)
        if (r->demand.models[i].state == DEMAND_ENDING && !supervisor_runs(r->supervisor, i + 1)) {
            demand_ended(&r->demand, i);
            any = true;
        }
    act(r);
    if (any)
        changed(r);
}

void set_run_start(struct set_run *r, struct loop *loop, struct supervisor *s, loop_fn *on_change,
                   void *ctx)
{
    r->supervisor = s;
    r->on_change = on_change;
    r->ctx = ctx;
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct running_model *m = &r->models[i];
        const struct up_options *o = r->set.models[i].o;
        m->has_workers = o->start == UP_START_ALWAYS;
        m->watch = set_watch_start(&(struct set_watch_options){.loop = loop,
                                                               .admin = m->admin,
                                                               .admin_key_file = o->admin_key_file,
                                                               .on_change = look,
                                                               .ctx = m});
        if (!m->watch)
            fail(r, i, "no thread can be started that watches its head");
        else if (o->start == UP_START_ON_DEMAND)
            demand_heard(&r->demand, i, true, false, 0, clock_mono_ns());
    }
    r->timer = loop_timer_start(loop, TICK_MS, TICK_MS, on_tick, r);
    act(r);
    for (uint32_t i = 0; i < r->set.n; i++) /* the others begin with their first request */
        if (r->demand.models[i].state == DEMAND_OFF)
            demand_heard(&r->demand, i, false, false, 0, clock_mono_ns());
}

void set_run_stop(struct set_run *r)
{
    r->is_stopping = true;
    loop_timer_stop(r->timer);
    r->timer = NULL;
}

/* ---- views ---- */

bool set_run_is_ready(const struct set_run *r)
{
    for (uint32_t i = 0; i < r->set.n; i++) {
        const struct running_model *m = &r->models[i];
        bool always = r->set.models[i].o->start == UP_START_ALWAYS;
        if (!m->failed[0] && !(always ? m->has_served : m->heard.is_known))
            return false;
    }
    return true;
}

const char *set_run_failure(const struct set_run *r)
{
    for (uint32_t i = 0; i < r->set.n; i++)
        if (!r->models[i].failed[0])
            return "";
    return r->models[r->set.n - 1].failed;
}

void set_run_progress(const struct set_run *r, uint64_t since_ms, char *out, size_t size)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->set.n; i++)
        n += r->models[i].has_served ||
             (r->set.models[i].o->start != UP_START_ALWAYS && r->models[i].heard.is_known);
    snprintf(out, size, "Starting: %u of %u models ready, %llu s", n, r->set.n,
             (unsigned long long)(since_ms / 1000));
}

const char *set_run_names(const struct set_run *r)
{
    return r->names;
}

const char *set_run_first_name(const struct set_run *r)
{
    return r->set.models[0].name;
}

void set_run_print(const struct set_run *r, struct strbuf *out)
{
    static const char *const starts[] = {"always", "on demand", "asleep"};
    for (uint32_t i = 0; i < r->set.n; i++) {
        const struct running_model *m = &r->models[i];
        strbuf_printf(out, "model:     %s (%s), cox status --address %s\n", r->set.models[i].name,
                      m->failed[0] ? "failed" : starts[r->set.models[i].o->start], m->admin);
    }
}

void set_run_free(struct set_run *r)
{
    if (!r)
        return;
    loop_timer_stop(r->timer);
    for (uint32_t i = 0; r->models && i < r->set.n; i++) {
        set_watch_free(r->models[i].watch);
        up_model_close(&r->models[i].opened);
        mem_free(r->models[i].n_tries);
    }
    mem_free(r->models);
    mem_free(r->demand.models);
    mem_free(r->demand.used);
    up_set_free(&r->set);
    mem_free(r);
}
