/* Passes orders to load and unload adapters to cluster/adapters.c, which has the table of
 * adapters. */
#include "head/core/adapter_orders.h"

#include <stdio.h>

#include "head/cluster/adapters.h"
#include "head/core/sleep.h"
#include "head/state/head_core.h"
#include "head/state/served_model.h"

static struct adapter_order order(struct str name, struct str path, const char *own)
{
    return (struct adapter_order){.name = name, .path = path, .taken = str_from(own)};
}

/* Loads an adapter, except under one of the model's own names. A gateway treats a request with
 * such a name as one for the model, so the adapter would never be used. */
static enum status load(struct head_core *h, const struct adapter_order *o, struct error *err)
{
    for (size_t i = 0; i < h->config.n_served_names; i++)
        if (str_eq_c(o->name, h->config.served_names[i]))
            return error_set(err, STATUS_EXISTS,
                             "%s is a name of the model itself: give the adapter another name",
                             h->config.served_names[i]);
    TRY(adapters_load(&h->cluster, o, &h->rng, err));
    sleep_end(h, "an adapter that is loaded"); /* a refused order changes nothing */
    return STATUS_OK;
}

static enum status told(struct head_core *h, const struct adapter_order *o, bool on, const char *by,
                        enum status s)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)(o->name.len < 127 ? o->name.len : 127), o->name.ptr);
    if (s == STATUS_OK)
        events_add(&h->events, h->now_ns, LOG_INFO, on ? "adapter_load" : "adapter_unload",
                   "name=%s by=%s", log_quote(name), log_quote(by));
    return s;
}

enum status head_core_load_adapter(struct head_core *h, struct str name, struct str path,
                                   bool in_place, const char *by, uint64_t now_ns,
                                   struct error *err)
{
    struct served_model model = served_model_now(h);
    struct adapter_order o = order(name, path, model.name);
    o.in_place = in_place;
    h->now_ns = h->cluster.now_ns = now_ns;
    return told(h, &o, true, by, load(h, &o, err));
}

enum status head_core_unload_adapter(struct head_core *h, struct str name, const char *by,
                                     uint64_t now_ns, struct error *err)
{
    struct adapter_order o = order(name, STR(""), "");
    h->now_ns = h->cluster.now_ns = now_ns;
    return told(h, &o, false, by, adapters_unload(&h->cluster, &o, err));
}

static bool send_answer(struct head_core *h, const struct gateway_peer *g,
                        const struct adapter_answer *a)
{
    struct msg m = {.type = MSG_ADAPTER_ANSWER,
                    .adapter_answer = {a->to.ticket, a->status, str_from(a->text)}};
    return peers_send(&h->peers, g->peer, &m) == STATUS_OK;
}

void adapter_orders_take(struct head_core *h, struct gateway_peer *g,
                         const struct msg_adapter_order *m)
{
    struct error err = {0};
    struct served_model model = served_model_now(h);
    struct adapter_order o = order(m->name, m->path, model.name);
    o.in_place = m->in_place;
    o.asker = (struct adapter_asker){g->instance, m->ticket};
    char by[sizeof g->node + 96];
    int n = (int)(m->by.len < 64 ? m->by.len : 64);
    snprintf(by, sizeof by, "%.*s%sthe gateway %s", n, n > 0 ? m->by.ptr : "", n > 0 ? ", at " : "",
             g->node);
    enum status s = m->on ? load(h, &o, &err) : adapters_unload(&h->cluster, &o, &err);
    if (told(h, &o, m->on, by, s) == STATUS_OK)
        return;
    struct adapter_answer a = {.to = o.asker, .status = s};
    snprintf(a.text, sizeof a.text, "%.*s", (int)sizeof a.text - 1, err.text);
    /* without credit the gateway gets no answer and reaches its own timeout */
    (void)send_answer(h, g, &a);
}

static const struct gateway_peer *find_gateway(const struct head_core *h, uint64_t instance)
{
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++)
        if (h->gateways[i] && h->gateways[i]->instance == instance)
            return h->gateways[i];
    return NULL;
}

/* Sends pending answers. A gateway that has left gets no answer. A gateway without credit is
 * tried again in the next turn. */
void adapter_orders_answer(struct head_core *h)
{
    struct adapters *t = &h->cluster.adapters;
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < t->n_answers; i++) {
        const struct gateway_peer *g = find_gateway(h, t->answers[i].to.gateway);
        if (g && g->peer && !send_answer(h, g, &t->answers[i]))
            t->answers[n_left++] = t->answers[i];
    }
    t->n_answers = n_left;
}

void adapter_orders_tell(struct head_core *h, struct gateway_peer *g)
{
    const struct adapters *t = &h->cluster.adapters;
    struct adapter_name list[ADAPTERS_MAX];
    uint32_t n = 0;
    if (g->told_adapters == t->n_changes + 1)
        return;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++)
        if (t->all[i].state == ADAPTER_READY)
            list[n++] = (struct adapter_name){str_from(t->all[i].name), str_from(t->all[i].path)};
    struct msg m = {.type = MSG_ADAPTERS, .adapters = {list, n}};
    if (peers_send(&h->peers, g->peer, &m) == STATUS_OK)
        g->told_adapters = t->n_changes + 1;
}
