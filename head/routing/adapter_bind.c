#include "head/routing/adapter_bind.h"

#include "head/cluster/adapters.h"
#include "head/state/requests.h"

static struct error unknown(const struct head_core *h, struct str name)
{
    struct error err;
    const char *why = adapters_why_not(&h->cluster, name);
    (void)error_set(&err, STATUS_INVALID, "The model `%.*s` does not exist%s%s.",
                    (int)(name.len < 80 ? name.len : 80), name.ptr, *why ? ": " : "", why);
    return err;
}

enum status adapter_bind_check(struct head_core *h, const struct msg_submit *m, struct error *err)
{
    uint64_t id;
    struct str name = m->sampling.lora;
    if (name.len == 0 || adapters_use(&h->cluster, name, &id) != ADAPTER_UNKNOWN)
        return STATUS_OK;
    *err = unknown(h, name);
    return err->status;
}

bool adapter_bind(struct head_core *h, struct request *r)
{
    struct sampling_params *s = &r->sampling;
    if (s->lora.len == 0 || s->lora_id != 0)
        return true;
    enum adapter_use use = adapters_use(&h->cluster, s->lora, &s->lora_id);
    if (use == ADAPTER_UNKNOWN)
        requests_end(h, r, FINISH_ERROR, STATUS_INVALID, unknown(h, s->lora).text);
    return use == ADAPTER_USABLE;
}

bool adapter_bind_in_use(const void *core, uint64_t id)
{
    const struct head_core *h = core;
    const struct request *r = request_table_next(h->requests, NULL);
    while (r && (r->sampling.lora_id != id || r->finish != FINISH_NONE))
        r = request_table_next(h->requests, r);
    return r != NULL;
}

/* Ends the requests of lost adapters with STATUS_INTERNAL, because the fault is in the cluster
 * and not in the request. */
void adapter_bind_end_lost(struct head_core *h)
{
    struct adapters *t = &h->cluster.adapters;
    for (; t->n_losses > 0; t->n_losses--) {
        const struct adapter_loss *x = &t->losses[t->n_losses - 1];
        for (struct request *r = request_table_next(h->requests, NULL); r;
             r = request_table_next(h->requests, r))
            if (r->sampling.lora_id == x->id && r->finish == FINISH_NONE)
                requests_end(h, r, FINISH_ERROR, STATUS_INTERNAL, x->text);
    }
}
