#include "cli/up/several/slot.h"

#include <string.h>

#include "cli/up/plan/argv.h"
#include "cli/up/plan/plan.h"
#include "cli/up/several/rest.h"
#include "cli/up/several/state.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { PORT_STEP = 10, PORT_MAX = 65535 };

struct set_version *set_version_new(void)
{
    struct set_version *v = mem_zalloc(sizeof *v);
    arena_init(&v->arena, 0);
    v->n_users = 1;
    return v;
}

void set_version_release(struct set_version *v)
{
    if (!v || --v->n_users > 0)
        return;
    up_set_free(&v->set);
    arena_fini(&v->arena);
    mem_free(v);
}

void set_slot_take(struct set_run *r, uint32_t i, struct set_version *v, struct set_model *m)
{
    r->models[i] = (struct running_model){
        .r = r, .slot = SLOT_PREPARED, .version = v, .model = m, .opened.name = m->source};
    v->n_users++;
}

void set_slot_free(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    set_watch_free(m->watch);
    up_model_close(&m->opened);
    mem_free(m->n_tries);
    set_version_release(m->version);
    *m = (struct running_model){0};
    if (r->demand.models)
        r->demand.models[i] = (struct demand_model){0};
}

enum status set_slot_move_ports(struct running_model *m, int64_t step, int64_t admin_step,
                                struct error *err)
{
    struct up_options *o = m->model->o;
    int64_t more = step - m->port_step;
    o->head_port += more;
    o->worker_http_port += more;
    o->comm_port += o->comm_port > 0 ? more : 0;
    o->kv_port += o->kv_port > 0 ? more : 0;
    o->admin_port += admin_step - m->admin_step;
    m->port_step = step;
    m->admin_step = admin_step;
    m->n_ports = (1 + up_options_n_workers(o) + PORT_STEP - 1) / PORT_STEP * PORT_STEP;
    if (o->head_port > PORT_MAX || o->admin_port > PORT_MAX)
        return error_set(err, STATUS_INVALID,
                         "the head of %s would need a port above 65535: choose a lower "
                         "--head-port or --admin-port",
                         m->model->name);
    return STATUS_OK;
}

void set_slot_find_place(struct running_model *m)
{
    const struct up_options *o = m->model->o;
    uint32_t n_cores = m->place.n_cores;
    m->place = m->r->place;
    m->place.n_cores = n_cores > 0 ? n_cores : m->place.n_cores;
    m->place.model = (uint32_t)(m - m->r->models) + 1;
    m->place.model_tag = m->model->tag;
    m->admin = up_reachable(&m->version->arena, o->admin_host, o->admin_port);
    m->head = up_reachable(&m->version->arena, o->head_host, o->head_port);
}

enum status set_slot_build_plan(struct running_model *m, struct error *err)
{
    enum status s =
        up_plan_build(m->model->o, m->opened.name, &m->place, &m->version->arena, &m->plan, err);
    mem_free(m->n_tries);
    m->n_tries = s == STATUS_OK ? mem_zalloc(m->plan.n_children * sizeof *m->n_tries) : NULL;
    return s == STATUS_OK ? s : error_prefix(err, s, "model %s", m->model->name);
}

void set_slot_begin_demand(struct set_run *r, uint32_t i)
{
    const struct set_need *need = &r->models[i].model->need;
    struct demand_model *d = &r->demand.models[i];
    *d = (struct demand_model){.always = need->start == UP_START_ALWAYS,
                               .first_device = need->first_device,
                               .idle_ns =
                                   (uint64_t)r->models[i].model->o->idle_timeout_s * NS_PER_S};
    d->n_devices = set_devices_of(&r->memory, need, &d->device_bytes);
    set_rest_plan(r, i, d);
}
