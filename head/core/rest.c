/* Carries out the orders of the program that starts the workers. A rest ends the need of workers
 * (scale.h), and with a level it is also a sleep that is held (sleep.h): while `sleep.held` is set,
 * the memory of the workers may belong to another model. */
#include "head/core/rest.h"

#include "head/core/scale.h"
#include "head/core/sleep.h"
#include "head/state/head_core.h"

void head_core_end_rest(struct head_core *h, uint64_t now_ns)
{
    h->sleep.held = false;
    head_core_wake(h, "the program that starts the workers", now_ns);
}

enum status head_core_rest_asleep(struct head_core *h, enum sleep_level level, uint64_t now_ns,
                                  struct error *err)
{
    /* Requests that wait in a held sleep are no obstacle to a deeper one: none of them runs. */
    bool is_held = h->sleep.held && h->sleep.state != SLEEP_WAITING;
    if (!is_held)
        TRY(head_core_rest(h, err));
    head_core_sleep(h, level, false, "the program that starts the workers", now_ns);
    h->sleep.held = true;
    return STATUS_OK;
}

uint32_t head_core_count_asleep(const struct head_core *h)
{
    uint32_t n = 0;
    for (const struct worker *w = h->cluster.workers; w; w = w->next)
        n += w->peer->open && worker_is_free(w) && w->sleep_level >= h->sleep.level;
    return h->sleep.state == SLEEP_ASLEEP ? n : 0;
}
