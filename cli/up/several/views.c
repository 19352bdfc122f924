/* Shows several models in one `cox up`: their names, states and lines on the terminal, and the
 * gateways' file. */
#include "cli/up/several/views.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/up/set/gateway_file.h"
#include "cli/up/several/state.h"
#include "common/base/mem.h"
#include "common/config/lookup.h"

void set_run_write_names(struct set_run *r)
{
    size_t used = 0;
    for (uint32_t k = 0; k < r->now->set.n && used < sizeof r->names; k++) {
        uint32_t i = r->slot_of[k];
        const struct demand_model *d = r->demand.models ? &r->demand.models[i] : NULL;
        bool is_asleep = d && (d->state == DEMAND_OFF || d->state == DEMAND_ASLEEP);
        const char *state = r->models[i].failed[0] ? " (failed)" : is_asleep ? " (asleep)" : "";
        used += (size_t)snprintf(r->names + used, sizeof r->names - used, "%s%s%s", k ? ", " : "",
                                 r->models[i].model->name, state);
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

enum status set_run_write_file(struct set_run *r, struct error *err)
{
    struct set_shown *shown = mem_zalloc(r->now->set.n * sizeof *shown);
    for (uint32_t k = 0; k < r->now->set.n; k++) {
        const struct running_model *m = &r->models[r->slot_of[k]];
        shown[k] = (struct set_shown){.model = m->opened.name,
                                      .head = m->head,
                                      .queue_timeout_s = queue_timeout(r, m->model->o),
                                      .failed = m->failed};
    }
    enum status s = set_gateway_file_write(r->file, &r->now->set, shown, err);
    mem_free(shown);
    return s;
}

bool set_run_is_ready(const struct set_run *r)
{
    for (uint32_t k = 0; k < r->now->set.n; k++) {
        const struct running_model *m = &r->models[r->slot_of[k]];
        bool always = r->models[r->slot_of[k]].model->o->start == UP_START_ALWAYS;
        if (!m->failed[0] && !(always ? m->has_served : m->heard.is_known))
            return false;
    }
    return true;
}

const char *set_run_failure(const struct set_run *r)
{
    for (uint32_t k = 0; k < r->now->set.n; k++)
        if (!r->models[r->slot_of[k]].failed[0])
            return "";
    return r->models[r->slot_of[r->now->set.n - 1]].failed;
}

void set_run_progress(const struct set_run *r, uint64_t since_ms, char *out, size_t size)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < r->now->set.n; k++)
        n += r->models[r->slot_of[k]].has_served ||
             (r->models[r->slot_of[k]].model->o->start != UP_START_ALWAYS &&
              r->models[r->slot_of[k]].heard.is_known);
    snprintf(out, size, "Starting: %u of %u models ready, %llu s", n, r->now->set.n,
             (unsigned long long)(since_ms / 1000));
}

const char *set_run_names(const struct set_run *r)
{
    return r->names;
}

const char *set_run_first_name(const struct set_run *r)
{
    return r->now->set.models[0].name;
}

void set_run_print(const struct set_run *r, struct strbuf *out)
{
    for (uint32_t k = 0; k < r->now->set.n; k++) {
        const struct running_model *m = &r->models[r->slot_of[k]];
        strbuf_printf(out, "model:     %s (%s), cox status --address %s\n",
                      r->models[r->slot_of[k]].model->name,
                      m->failed[0] ? "failed"
                                   : up_start_names[r->models[r->slot_of[k]].model->o->start],
                      m->admin);
    }
}
