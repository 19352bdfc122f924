/* Plans the models of a set before any process starts: set_run_read, set_run_open and set_run_plan
 * run in this order. Each model gets head, admin and worker ports behind those of the model before
 * it. */
#include "cli/up/several/plan.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/up/plan/argv.h"
#include "cli/up/plan/plan.h"
#include "cli/up/several/memory.h"
#include "cli/up/several/rest.h"
#include "cli/up/several/state.h"
#include "cli/up/several/views.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { PORT_STEP = 10 };

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
    set_run_write_names(r);
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
        set_rest_plan(r, i, m);
        m->state = m->always ? DEMAND_ON : DEMAND_OFF;
    }
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
    TRY(set_run_plan_memory(r, table, err));
    for (uint32_t i = 0; i < r->set.n; i++) /* again, with threads, KV cache and GPUs */
        TRY(build_plan(r, i, err));
    for (uint32_t i = 0; i < r->set.n; i++)
        r->models[i].n_tries = mem_zalloc(r->models[i].plan.n_children * sizeof(uint32_t));
    begin_demand(r);
    join_plans(r, &place, out, all);
    TRY(up_plan_check_ports(all, err));
    return set_run_write_file(r, err);
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
