#include "worker/executor/step/adapters.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum status executor_adapter(struct executor *e, struct msg_adapter *m, struct error *err)
{
    struct lora_set *loras = ((struct executor_model *)e)->engine->loras;
    char path[PATH_MAX];
    if (!loras)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this worker cannot load adapters: it was started without --enable-lora");
    executor_bump(e);
    if (!m->on) {
        lora_set_unload(loras, m->id);
        return STATUS_OK;
    }
    int n = snprintf(path, sizeof path, STR_FMT, STR_ARG(m->path));
    if (m->id == 0 || n < 0 || (size_t)n != m->path.len || strlen(path) != m->path.len)
        return error_set(err, STATUS_INVALID,
                         "cannot load the adapter: its path (%zu bytes) or its id (%llu) is "
                         "invalid. Report this bug",
                         m->path.len, (unsigned long long)m->id);
    return lora_set_load(loras, m->id, path, &m->identity, err);
}

bool executor_lost_adapter(struct executor *e, uint64_t *id, struct error *why)
{
    struct lora_set *loras = ((struct executor_model *)e)->engine->loras;
    return loras && lora_set_next_loss(loras, id, why);
}

/* Refuses the plan before any part of it is executed. Without the adapter its rows would get the
 * base model's output. */
enum status executor_check_adapters(const struct executor_model *x, const struct msg_plan *p,
                                    struct error *err)
{
    for (uint32_t i = 0; i < p->n_admits; i++) {
        uint64_t id = p->admits[i].sampling.lora_id;
        if (id != 0 && (!x->engine->loras || lora_set_find(x->engine->loras, id) == 0))
            return error_set(err, STATUS_PROTOCOL,
                             "the plan admits a request to slot %u with adapter %016llx, which is "
                             "not loaded on this rank. Report this bug",
                             p->admits[i].slot, (unsigned long long)id);
    }
    return STATUS_OK;
}

void executor_take_adapters(struct executor_model *x, const struct msg_plan *p)
{
    for (uint32_t i = 0; i < p->n_admits && x->engine->loras; i++)
        sequences_find(x->sequences, p->admits[i].slot)->adapter =
            lora_set_find(x->engine->loras, p->admits[i].sampling.lora_id);
}
