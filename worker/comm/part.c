/* Implements parts of a group. Each part has its own ranks, counters and scratch, and uses the
 * links of the whole group. */
#include "worker/comm/part.h"

#include <string.h>

#include "common/base/mem.h"
#include "worker/comm/state.h"

enum status comm_open_part(struct comm *whole, uint8_t mark, struct comm **out, struct error *err)
{
    if (whole->n_parts == COMM_MAX_PARTS)
        return error_set(err, STATUS_LIMIT, "a communicator has at most %u parts. Report this bug",
                         COMM_MAX_PARTS);
    struct comm *c = mem_zalloc(sizeof *c);
    c->whole = whole;
    c->exchange.waiter = &whole->waiter;
    c->exchange.n_ranks = 1;
    whole->parts[whole->n_parts++] = c;
    c->exchange.part = mark;
    *out = c;
    return STATUS_OK;
}

static enum status check_members(const struct comm *whole, const struct comm_members *m,
                                 struct error *err)
{
    const struct exchange *x = &whole->exchange;
    bool fine = m->n > 0 && m->n <= x->n_ranks && m->rank < m->n && m->ranks[m->rank] == x->rank;
    for (uint32_t i = 0; fine && i < m->n; i++)
        fine = m->ranks[i] < x->n_ranks;
    return fine ? STATUS_OK
                : error_set(
                      err, STATUS_INVALID,
                      "rank %u of %u: the list of members of this part is invalid. Report this bug",
                      x->rank, x->n_ranks);
}

/* Joins a part. Members without a link to this rank are not in its exchanges. */
enum status comm_join_part(struct comm *part, const struct comm_members *m, struct error *err)
{
    const struct exchange *from = &part->whole->exchange;
    struct exchange *x = &part->exchange;
    comm_forget_group(part);
    TRY(check_members(part->whole, m, err));
    if (m->n > 1)
        TRY(comm_make_room(part, m->n, m->sums, err));
    x->rank = m->rank;
    x->n_ranks = m->n;
    x->spin_ns = from->spin_ns;
    x->yields = from->yields;
    x->timeout_ns = from->timeout_ns;
    for (uint32_t i = 0; m->n > 1 && i < m->n; i++) {
        const struct exchange_peer *p = &from->peers[m->ranks[i]];
        x->peers[i].link = p->link;
        x->peers[i].same_cpus = p->same_cpus;
        memcpy(x->peers[i].name, p->name, sizeof p->name);
        memcpy(x->peers[i].address, p->address, sizeof p->address);
    }
    return STATUS_OK;
}
