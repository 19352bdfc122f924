#include "gateway/request/submit_queue.h"

#include "common/base/mem.h"

struct tenant_submits {
    uint64_t tenant;
    /* bytes that the tenant may still send in this round; a value below 0 is owed */
    int64_t surplus;
    struct submit_entry *first, **last;
    struct tenant_submits *next, *prev;                /* links in the ring of tenants */
    struct tenant_submits *next_bucket, **link_bucket; /* links in the list of the hash bucket */
};

static struct tenant_submits *find(const struct submit_queue *q, uint64_t tenant)
{
    struct tenant_submits *t = q->buckets[tenant % SUBMIT_BUCKETS];
    while (t && t->tenant != tenant)
        t = t->next_bucket;
    return t;
}

/* Adds the tenant at the end of the round. */
static struct tenant_submits *enter(struct submit_queue *q, uint64_t tenant)
{
    struct tenant_submits **bucket = &q->buckets[tenant % SUBMIT_BUCKETS];
    struct tenant_submits *t = mem_zalloc(sizeof *t);
    *t = (struct tenant_submits){.tenant = tenant,
                                 .surplus = SUBMIT_QUANTUM_BYTES,
                                 .next_bucket = *bucket,
                                 .link_bucket = bucket};
    t->last = &t->first;
    if (*bucket)
        (*bucket)->link_bucket = &t->next_bucket;
    *bucket = t;
    t->next = q->turn ? q->turn : t;
    t->prev = q->turn ? q->turn->prev : t;
    t->next->prev = t->prev->next = t;
    if (!q->turn)
        q->turn = t;
    return t;
}

static void leave(struct submit_queue *q, struct tenant_submits *t)
{
    if (q->turn == t)
        q->turn = t->next != t ? t->next : NULL;
    t->next->prev = t->prev;
    t->prev->next = t->next;
    *t->link_bucket = t->next_bucket;
    if (t->next_bucket)
        t->next_bucket->link_bucket = t->link_bucket;
    mem_free(t);
}

void submit_queue_add(struct submit_queue *q, struct submit_entry *e, uint64_t tenant,
                      uint64_t now_ns)
{
    if (e->of)
        return;
    struct tenant_submits *t = find(q, tenant);
    if (!t)
        t = enter(q, tenant);
    *e = (struct submit_entry){.of = t, .link = t->last, .since_ns = now_ns};
    *t->last = e;
    t->last = &e->next;
}

void submit_queue_remove(struct submit_queue *q, struct submit_entry *e)
{
    struct tenant_submits *t = e->of;
    if (!t)
        return;
    *e->link = e->next;
    if (e->next)
        e->next->link = e->link;
    else
        t->last = e->link;
    *e = (struct submit_entry){0};
    if (!t->first)
        leave(q, t);
}

struct submit_entry *submit_queue_next(struct submit_queue *q)
{
    if (!q->turn)
        return NULL;
    while (q->turn->surplus <= 0) {
        q->turn->surplus += SUBMIT_QUANTUM_BYTES;
        q->turn = q->turn->next;
    }
    return q->turn->first;
}

void submit_queue_sent(struct submit_queue *q, struct submit_entry *e, uint64_t bytes)
{
    if (e->of)
        e->of->surplus -= bytes < INT32_MAX ? (int64_t)bytes : INT32_MAX;
    submit_queue_remove(q, e);
}
