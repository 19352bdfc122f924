#include "head/state/outbox.h"

#include "common/base/mem.h"

enum { OUTBOX_MIN = 64 };

/* Removes empty places of the outbox. Grows the outbox only when less than half of it is then
 * free. */
static void outbox_make_room(struct gateway_peer *g)
{
    uint32_t n = 0;
    for (uint32_t i = g->outbox_begin; i < g->outbox_end; i++) {
        if (!g->outbox[i])
            continue;
        g->outbox[n] = g->outbox[i];
        g->outbox[n]->i_outbox = n + 1;
        n++;
    }
    g->outbox_begin = 0;
    g->outbox_end = n;
    if (n < g->outbox_cap / 2)
        return;
    g->outbox_cap = g->outbox_cap ? 2 * g->outbox_cap : OUTBOX_MIN;
    g->outbox = mem_realloc(g->outbox, g->outbox_cap * sizeof(struct request *));
}

/* Adds a request to its gateway's outbox. A request of an older session is not added, because
 * the gateway submits it again. */
void outbox_add(struct head_core *h, struct request *r)
{
    struct gateway_peer *g = h->gateways[r->i_gateway];
    if (r->i_outbox || r->gateway_session != g->session)
        return;
    if (g->outbox_end == g->outbox_cap)
        outbox_make_room(g);
    g->outbox[g->outbox_end++] = r;
    r->i_outbox = g->outbox_end;
}

void outbox_remove(struct head_core *h, struct request *r)
{
    if (r->i_outbox)
        h->gateways[r->i_gateway]->outbox[r->i_outbox - 1] = NULL;
    r->i_outbox = 0;
}

void outbox_clear(struct gateway_peer *g)
{
    for (uint32_t i = g->outbox_begin; i < g->outbox_end; i++)
        if (g->outbox[i])
            g->outbox[i]->i_outbox = 0;
    g->outbox_begin = g->outbox_end = 0;
}
