#include "head/scheduler_queue.h"

#include <assert.h>

#include "common/base/mem.h"
#include "head/scheduler_internal.h"

bool seq_before(const struct seq *a, const struct seq *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->resubmitted != b->resubmitted)
        return a->resubmitted;
    if (a->arrival_seq != b->arrival_seq)
        return a->arrival_seq < b->arrival_seq;
    return a->add_seq < b->add_seq;
}

void seq_queue_fini(struct seq_queue *q)
{
    mem_free(q->heap);
    *q = (struct seq_queue){0};
}

void seq_queue_reserve(struct seq_queue *q, uint32_t cap)
{
    if (cap <= q->cap)
        return;
    uint32_t fresh = q->cap ? q->cap : 64;
    while (fresh < cap)
        fresh *= 2;
    q->heap = mem_realloc(q->heap, (size_t)fresh * sizeof *q->heap);
    q->cap = fresh;
}

static void put(struct seq_queue *q, uint32_t i, struct seq *x)
{
    q->heap[i] = x;
    x->i_queue = i;
}

static void sift_up(struct seq_queue *q, uint32_t i)
{
    struct seq *x = q->heap[i];
    for (; i > 0 && seq_before(x, q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(q, i, q->heap[(i - 1) / 2]);
    put(q, i, x);
}

static void sift_down(struct seq_queue *q, uint32_t i)
{
    struct seq *x = q->heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= q->n)
            break;
        if (child + 1 < q->n && seq_before(q->heap[child + 1], q->heap[child]))
            child++;
        if (!seq_before(q->heap[child], x))
            break;
        put(q, i, q->heap[child]);
        i = child;
    }
    put(q, i, x);
}

void seq_queue_push(struct seq_queue *q, struct seq *x)
{
    assert(q->n < q->cap);
    put(q, q->n++, x);
    sift_up(q, x->i_queue);
}

struct seq *seq_queue_first(const struct seq_queue *q)
{
    return q->n ? q->heap[0] : NULL;
}

void seq_queue_remove(struct seq_queue *q, struct seq *x)
{
    uint32_t i = x->i_queue;
    assert(i < q->n && q->heap[i] == x);
    struct seq *last = q->heap[--q->n];
    if (last == x)
        return;
    put(q, i, last);
    sift_up(q, i);
    sift_down(q, last->i_queue);
}

bool seq_queue_check(const struct seq_queue *q)
{
    for (uint32_t i = 0; i < q->n; i++)
        if (q->heap[i]->i_queue != i || (i > 0 && seq_before(q->heap[i], q->heap[(i - 1) / 2])))
            return false;
    return q->n <= q->cap;
}
