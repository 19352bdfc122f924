/* Plans the models of a set before any process starts: set_run_read, set_run_open and set_run_plan
 * run in this order. Each model gets head, admin and worker ports behind those of the model before
 * it. */
#include "cli/up/several/plan.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/up/plan/argv.h"
#include "cli/up/plan/plan.h"
#include "cli/up/several/change.h"
#include "cli/up/several/memory.h"
#include "cli/up/several/slot.h"
#include "cli/up/several/state.h"
#include "cli/up/several/views.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/json/yaml_file.h"

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
    r->models = mem_zalloc(SET_SLOTS_MAX * sizeof *r->models);
    r->now = set_version_new();
    TRY(up_set_read(in, &r->now->arena, &r->now->set, err));
    for (uint32_t i = 0; i < r->now->set.n; i++) {
        set_slot_take(r, i, r->now, &r->now->set.models[i]);
        r->models[i].slot = SLOT_RUNS;
        r->slot_of[i] = i;
    }
    set_run_write_names(r);
    return STATUS_OK;
}

enum status set_run_open(struct set_run *r, const char *command, const char *tmp_dir,
                         struct arena *arena, bool *has_not_come, uint64_t *fetched_ns,
                         struct error *err)
{
    for (uint32_t i = 0; i < r->now->set.n; i++) {
        struct up_model *m = &r->models[i].opened;
        enum status s = up_model_open(m, r->models[i].model->o, command, tmp_dir, arena, err);
        *has_not_come = *has_not_come || m->has_not_come;
        *fetched_ns = m->fetched_ns > *fetched_ns ? m->fetched_ns : *fetched_ns;
        if (s != STATUS_OK)
            return error_prefix(err, s, "model %s", r->models[i].model->name);
    }
    return STATUS_OK;
}

/* Gives each model ports of its own. Head and workers of model i have the ports of the model
 * before it plus 10, or plus the next multiple of 10 that has room for its workers. */
static enum status choose_ports(struct set_run *r, struct error *err)
{
    int64_t step = 0;
    for (uint32_t i = 0; i < r->now->set.n; i++) {
        TRY(set_slot_move_ports(&r->models[i], step, i, err));
        step += r->models[i].n_ports;
    }
    return STATUS_OK;
}

static void begin_demand(struct set_run *r)
{
    struct demand *d = &r->demand;
    *d = (struct demand){.models = mem_zalloc(SET_SLOTS_MAX * sizeof *d->models),
                         .n_models = SET_SLOTS_MAX,
                         .device_bytes = r->memory.device_bytes,
                         .n_devices = r->memory.n_devices,
                         .used = mem_zalloc(r->memory.n_devices * sizeof *d->used)};
    for (uint32_t i = 0; i < r->now->set.n; i++) {
        set_slot_begin_demand(r, i);
        d->models[i].state = d->models[i].always ? DEMAND_ON : DEMAND_OFF;
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
    for (uint32_t i = 0; i < r->now->set.n; i++)
        n += r->models[i].plan.n_children;
    struct up_child *children = arena_try_array(r->arena, n, sizeof *children);
    for (int pass = 0; pass < 3; pass++) {
        if (pass == 1) {
            up_plan_gateways(o, place, r->arena, children + at);
            at += (uint32_t)o->gateways;
        }
        for (uint32_t i = 0; i < r->now->set.n; i++)
            for (uint32_t k = 0; k < r->models[i].plan.n_children; k++) {
                const struct up_child *c = &r->models[i].plan.children[k];
                bool always = r->models[i].model->o->start == UP_START_ALWAYS;
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

/* Writes the models of the command line as a file of --models, so that `cox models` changes one
 * kind of set. */
static enum status write_own_set(struct set_run *r, struct error *err)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    up_set_write(&r->now->set, &text);
    enum status s = yaml_file_store(r->set_file, text.ptr, 0600, err);
    strbuf_fini(&text);
    return s;
}

/* Builds the command lines of each model's processes, as far as they do not depend on the memory.
 */
static enum status plan_models(struct set_run *r, const struct up_place *place, struct error *err)
{
    r->place = *place;
    TRY(choose_ports(r, err));
    for (uint32_t i = 0; i < r->now->set.n; i++) {
        set_slot_find_place(&r->models[i]);
        TRY(set_slot_build_plan(&r->models[i], err));
    }
    return STATUS_OK;
}

enum status set_run_memory(struct set_run *r, const char *bin_dir, bool as_json, struct strbuf *out,
                           struct error *err)
{
    struct up_builder b = {.arena = r->arena};
    const struct up_place place = {.bin_dir = bin_dir, .keys_dir = ".", .n_cores = host_cpus()};
    r->planner = up_text(&b, "%s/cox", bin_dir);
    TRY(plan_models(r, &place, err));
    return set_run_plan_memory(r, as_json, out, err);
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
    TRY(plan_models(r, &m->place, err));
    TRY(set_run_plan_memory(r, false, table, err));
    for (uint32_t i = 0; i < r->now->set.n; i++) /* again, with threads, KV cache and GPUs */
        TRY(set_slot_build_plan(&r->models[i], err));
    begin_demand(r);
    join_plans(r, &place, out, all);
    TRY(up_plan_check_ports(all, err));
    r->set_file = r->in.options->models_file;
    if (!r->set_file) {
        r->set_file = up_text(&b, "%s/set.yaml", m->throw_away.path);
        TRY(write_own_set(r, err));
    }
    return set_run_write_file(r, err);
}

void set_run_free(struct set_run *r)
{
    if (!r)
        return;
    loop_timer_stop(r->timer);
    set_changes_free(r);
    for (uint32_t i = 0; r->models && i < SET_SLOTS_MAX; i++)
        if (r->models[i].slot != SLOT_FREE)
            set_slot_free(r, i);
    mem_free(r->models);
    mem_free(r->demand.models);
    mem_free(r->demand.used);
    set_version_release(r->now);
    mem_free(r);
}
