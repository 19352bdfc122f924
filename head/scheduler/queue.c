/* Keeps the queue of waiting sequences: classes by priority, and deficit round robin between
 * tenants; queue.h has the rules.
 *
 * lifecycle.c and sequences.c call `seq_queue_enter` and `seq_queue_push`. admit.c takes the
 * next sequence with `seq_queue_first`, and plan.c charges its blocks with `seq_queue_charge`.
 *
 * Invariants: one scheduler owns the queue. Memory is reserved when a sequence enters, so steps
 * never allocate. Tenants and classes are array entries linked by index, and exist only while
 * one of their sequences is in the scheduler. Waiting sequences are in intrusive pairing heaps
 * ordered by `seq_before`. */
#include "head/scheduler/queue.h"

#include <assert.h>

#include "common/base/mem.h"

enum { NONE = UINT32_MAX, CAP_MIN = 64 };

struct tenant {
    uint64_t id;
    int64_t deficit;
    uint32_t i_class;
    uint32_t n_inside, n_waiting;  /* sequences in the scheduler; n_waiting: sequences that wait */
    uint64_t n_waiting_tokens;     /* tokens that the waiting sequences have to compute */
    struct seq *heap;              /* sequences that wait for the first time, by age */
    uint32_t ring_next, ring_prev; /* ring of the class's tenants; free list by ring_next */
    uint32_t next_in_bucket;
};

struct priority_class {
    int32_t priority;
    uint32_t n_inside, n_waiting;
    struct seq *again; /* heap of resubmitted or preempted sequences */
    uint32_t turn;     /* tenant that has the turn; NONE = no tenant */
    uint32_t next_free;
};

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

/* ---- pairing heap ---- */

static struct seq *heap_merge(struct seq *a, struct seq *b)
{
    if (!a || !b)
        return a ? a : b;
    if (seq_before(b, a)) {
        struct seq *t = a;
        a = b;
        b = t;
    }
    b->wait.next = a->wait.child;
    if (b->wait.next)
        b->wait.next->wait.prev = b;
    b->wait.prev = a;
    a->wait.child = b;
    return a;
}

/* Merges the siblings in two passes: pairs from left to right, then the pairs from right to
 * left. */
static struct seq *heap_merge_siblings(struct seq *x)
{
    struct seq *pairs = NULL, *root = NULL;
    while (x) {
        struct seq *a = x, *b = x->wait.next;
        x = b ? b->wait.next : NULL;
        a->wait.next = a->wait.prev = NULL;
        if (b)
            b->wait.next = b->wait.prev = NULL;
        a = heap_merge(a, b);
        a->wait.next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct seq *next = pairs->wait.next;
        pairs->wait.next = NULL;
        root = heap_merge(root, pairs);
        pairs = next;
    }
    return root;
}

static void heap_push(struct seq **root, struct seq *x)
{
    x->wait = (struct seq_heap_node){0};
    *root = heap_merge(*root, x);
}

static void heap_remove(struct seq **root, struct seq *x)
{
    struct seq *rest = heap_merge_siblings(x->wait.child);
    if (*root == x) {
        *root = rest;
    } else {
        struct seq *p = x->wait.prev;
        *(p->wait.child == x ? &p->wait.child : &p->wait.next) = x->wait.next;
        if (x->wait.next)
            x->wait.next->wait.prev = p;
        *root = heap_merge(*root, rest);
    }
    x->wait = (struct seq_heap_node){0};
}

/* ---- memory ---- */

static uint32_t *bucket_of(const struct seq_queue *q, int32_t priority, uint64_t tenant)
{
    uint64_t h = (tenant ^ (uint64_t)(uint32_t)priority << 17) * 0x9E3779B97F4A7C15ull;
    return &q->buckets[(h ^ h >> 29) * 0xBF58476D1CE4E5B9ull >> 33 & (q->n_buckets - 1)];
}

static void rehash(struct seq_queue *q, uint32_t n_used)
{
    mem_free(q->buckets);
    q->n_buckets = 2 * q->cap;
    q->buckets = mem_array(q->n_buckets, sizeof *q->buckets);
    for (uint32_t i = 0; i < n_used; i++) {
        struct tenant *t = &q->tenants[i];
        if (t->n_inside == 0)
            continue;
        uint32_t *bucket = bucket_of(q, q->classes[t->i_class].priority, t->id);
        t->next_in_bucket = *bucket - 1;
        *bucket = i + 1;
    }
}

/* Reserves memory for one more sequence. There are never more tenants or classes than sequences. */
static void reserve(struct seq_queue *q)
{
    if (q->n_inside < q->cap)
        return;
    uint32_t old = q->cap;
    q->cap = old ? 2 * old : CAP_MIN;
    q->tenants = mem_realloc(q->tenants, q->cap * sizeof *q->tenants);
    q->classes = mem_realloc(q->classes, q->cap * sizeof *q->classes);
    q->order = mem_realloc(q->order, q->cap * sizeof *q->order);
    for (uint32_t i = q->cap; i-- > old;) {
        q->tenants[i] = (struct tenant){.ring_next = q->free_tenant};
        q->classes[i] = (struct priority_class){.next_free = q->free_class};
        q->free_tenant = q->free_class = i;
    }
    rehash(q, old);
}

void seq_queue_init(struct seq_queue *q, int64_t quantum)
{
    *q = (struct seq_queue){.quantum = quantum, .free_tenant = NONE, .free_class = NONE};
}

void seq_queue_fini(struct seq_queue *q)
{
    mem_free(q->tenants);
    mem_free(q->classes);
    mem_free(q->order);
    mem_free(q->buckets);
    *q = (struct seq_queue){0};
}

/* ---- classes and tenants ---- */

/* Returns the index of the class in `order`, or the index where the class would be inserted. */
static uint32_t place_of(const struct seq_queue *q, int32_t priority)
{
    uint32_t low = 0, high = q->n_classes;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (q->classes[q->order[mid]].priority < priority)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static uint32_t class_get(struct seq_queue *q, int32_t priority)
{
    uint32_t at = place_of(q, priority);
    if (at < q->n_classes && q->classes[q->order[at]].priority == priority)
        return q->order[at];
    uint32_t i = q->free_class;
    q->free_class = q->classes[i].next_free;
    q->classes[i] = (struct priority_class){.priority = priority, .turn = NONE};
    for (uint32_t k = q->n_classes++; k > at; k--)
        q->order[k] = q->order[k - 1];
    q->order[at] = i;
    return i;
}

static void class_free(struct seq_queue *q, uint32_t i)
{
    q->n_classes--;
    for (uint32_t k = place_of(q, q->classes[i].priority); k < q->n_classes; k++)
        q->order[k] = q->order[k + 1];
    q->classes[i].next_free = q->free_class;
    q->free_class = i;
}

static uint32_t tenant_find(const struct seq_queue *q, uint32_t i_class, uint64_t id)
{
    uint32_t i = *bucket_of(q, q->classes[i_class].priority, id) - 1;
    while (i != NONE && (q->tenants[i].id != id || q->tenants[i].i_class != i_class))
        i = q->tenants[i].next_in_bucket;
    return i;
}

static uint32_t tenant_get(struct seq_queue *q, uint32_t i_class, uint64_t id)
{
    struct priority_class *c = &q->classes[i_class];
    uint32_t *bucket = bucket_of(q, c->priority, id);
    uint32_t i = tenant_find(q, i_class, id);
    if (i != NONE)
        return i;
    i = q->free_tenant;
    struct tenant *t = &q->tenants[i];
    q->free_tenant = t->ring_next;
    *t = (struct tenant){
        .id = id, .i_class = i_class, .deficit = q->quantum, .next_in_bucket = *bucket - 1};
    *bucket = i + 1;
    if (c->turn == NONE) {
        c->turn = t->ring_next = t->ring_prev = i;
    } else { /* the tenant goes last in the current round, before the tenant that has the turn */
        t->ring_next = c->turn;
        t->ring_prev = q->tenants[c->turn].ring_prev;
        q->tenants[t->ring_prev].ring_next = i;
        q->tenants[c->turn].ring_prev = i;
    }
    return i;
}

static void tenant_free(struct seq_queue *q, uint32_t i)
{
    struct tenant *t = &q->tenants[i];
    struct priority_class *c = &q->classes[t->i_class];
    uint32_t *at = bucket_of(q, c->priority, t->id);
    if (*at == i + 1) {
        *at = t->next_in_bucket + 1;
    } else {
        struct tenant *before = &q->tenants[*at - 1];
        while (before->next_in_bucket != i)
            before = &q->tenants[before->next_in_bucket];
        before->next_in_bucket = t->next_in_bucket;
    }
    if (c->turn == i)
        c->turn = t->ring_next == i ? NONE : t->ring_next;
    q->tenants[t->ring_prev].ring_next = t->ring_next;
    q->tenants[t->ring_next].ring_prev = t->ring_prev;
    t->ring_next = q->free_tenant;
    q->free_tenant = i;
}

void seq_queue_enter(struct seq_queue *q, struct seq *x)
{
    reserve(q);
    uint32_t i_class = class_get(q, x->priority);
    x->i_tenant = tenant_get(q, i_class, x->tenant);
    q->tenants[x->i_tenant].n_inside++;
    q->classes[i_class].n_inside++;
    q->n_inside++;
}

void seq_queue_leave(struct seq_queue *q, struct seq *x)
{
    struct tenant *t = &q->tenants[x->i_tenant];
    uint32_t i_class = t->i_class;
    if (--t->n_inside == 0)
        tenant_free(q, x->i_tenant);
    if (--q->classes[i_class].n_inside == 0)
        class_free(q, i_class);
    q->n_inside--;
}

/* ---- waiting ---- */

static struct seq **heap_of(const struct seq_queue *q, const struct seq *x)
{
    struct tenant *t = &q->tenants[x->i_tenant];
    return x->again ? &q->classes[t->i_class].again : &t->heap;
}

void seq_queue_push(struct seq_queue *q, struct seq *x)
{
    heap_push(heap_of(q, x), x);
    x->n_waiting_tokens = x->n_left;
    q->tenants[x->i_tenant].n_waiting_tokens += x->n_waiting_tokens;
    q->tenants[x->i_tenant].n_waiting++;
    q->classes[q->tenants[x->i_tenant].i_class].n_waiting++;
    q->n++;
}

void seq_queue_remove(struct seq_queue *q, struct seq *x)
{
    heap_remove(heap_of(q, x), x);
    q->tenants[x->i_tenant].n_waiting_tokens -= x->n_waiting_tokens;
    q->tenants[x->i_tenant].n_waiting--;
    q->classes[q->tenants[x->i_tenant].i_class].n_waiting--;
    q->n--;
}

uint32_t seq_queue_n_waiting(const struct seq_queue *q, uint64_t tenant)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < q->n_classes; i++) {
        uint32_t k = tenant_find(q, q->order[i], tenant);
        n += k == NONE ? 0 : q->tenants[k].n_waiting;
    }
    return n;
}

/* Returns the rounds of its class that pass before a tenant has served n_tokens and is served
 * again. */
static double rounds_until(const struct seq_queue *q, int64_t deficit, double n_tokens)
{
    double owed = n_tokens - (double)deficit;
    return owed < 0 ? 0 : (double)(uint64_t)(owed / (double)q->quantum) + 1;
}

/* Adds what a tenant of the same class gets within so many rounds. */
static void add_served(const struct seq_queue *q, const struct tenant *t, double rounds,
                       struct seq_queue_front *out)
{
    double has = (double)t->deficit + rounds * (double)q->quantum;
    if (t->n_waiting == 0 || has <= 0)
        return;
    /* a tenant is served while its deficit is above zero, so its last request may exceed it */
    double tokens = (double)t->n_waiting_tokens, mean = tokens / t->n_waiting;
    double served = has + mean / 2 < tokens ? has + mean / 2 : tokens;
    out->n_tokens += served;
    out->n += mean > 0 ? served / mean : 0;
}

struct seq_queue_front seq_queue_front_of(const struct seq_queue *q, int32_t priority,
                                          uint64_t tenant)
{
    struct seq_queue_front out = {0};
    for (uint32_t i = 0; i < q->n_classes; i++) {
        const struct priority_class *c = &q->classes[q->order[i]];
        if (c->priority > priority)
            break;
        const uint32_t i_own = tenant_find(q, q->order[i], tenant);
        const struct tenant *own = i_own == NONE ? NULL : &q->tenants[i_own];
        double rounds = rounds_until(q, own ? own->deficit : q->quantum,
                                     own ? (double)own->n_waiting_tokens : 0);
        uint32_t k = c->turn;
        do {
            const struct tenant *t = &q->tenants[k];
            if (c->priority < priority || k == i_own) {
                out.n += t->n_waiting;
                out.n_tokens += (double)t->n_waiting_tokens;
            } else {
                add_served(q, t, rounds, &out);
            }
            k = t->ring_next;
        } while (k != c->turn);
    }
    return out;
}

static void grant(const struct seq_queue *q, struct tenant *t, int64_t tokens)
{
    t->deficit += tokens;
    if (t->deficit > q->quantum)
        t->deficit = q->quantum;
}

/* Passes as many rounds as needed until a waiting tenant's deficit is above zero. Each round
 * adds a quantum to every tenant. */
static void pass_rounds(struct seq_queue *q, const struct priority_class *c)
{
    int64_t least = INT64_MAX;
    uint32_t i = c->turn;
    do {
        const struct tenant *t = &q->tenants[i];
        int64_t rounds = t->deficit > 0 ? 0 : -t->deficit / q->quantum + 1;
        if (t->heap && rounds < least)
            least = rounds;
        i = t->ring_next;
    } while (i != c->turn);
    do {
        grant(q, &q->tenants[i], least * q->quantum);
        i = q->tenants[i].ring_next;
    } while (i != c->turn);
}

static struct seq *serve_turn(struct seq_queue *q, struct priority_class *c)
{
    uint32_t first = c->turn;
    for (;;) {
        struct tenant *t = &q->tenants[c->turn];
        if (t->heap && t->deficit > 0)
            return t->heap;
        c->turn = t->ring_next;
        if (c->turn == first)
            pass_rounds(q, c);
    }
}

static struct priority_class *first_class(const struct seq_queue *q)
{
    for (uint32_t i = 0; i < q->n_classes; i++)
        if (q->classes[q->order[i]].n_waiting > 0)
            return &q->classes[q->order[i]];
    return NULL;
}

struct seq *seq_queue_first(struct seq_queue *q)
{
    struct priority_class *c = first_class(q);
    if (!c)
        return NULL;
    return c->again ? c->again : serve_turn(q, c);
}

struct seq *seq_queue_behind(const struct seq_queue *q, const struct seq *x)
{
    const struct priority_class *c = first_class(q);
    if (!c || c->again || c->priority != x->priority)
        return NULL;
    for (uint32_t i = q->tenants[x->i_tenant].ring_next; i != c->turn; i = q->tenants[i].ring_next)
        if (q->tenants[i].heap)
            return q->tenants[i].heap;
    return NULL;
}

int32_t seq_queue_first_priority(const struct seq_queue *q)
{
    const struct priority_class *c = first_class(q);
    return c ? c->priority : INT32_MAX;
}

void seq_queue_charge(struct seq_queue *q, const struct seq *x, uint32_t n_tokens)
{
    q->tenants[x->i_tenant].deficit -= n_tokens;
}

/* ---- for tests ---- */

static uint32_t count(const struct seq *x, const struct seq *prev, bool *ok)
{
    uint32_t n = 0;
    for (; x; prev = x, x = x->wait.next) {
        *ok = *ok && x->wait.prev == prev;
        for (const struct seq *k = x->wait.child; k; k = k->wait.next)
            *ok = *ok && seq_before(x, k);
        n += 1 + count(x->wait.child, x, ok);
    }
    return n;
}

bool seq_queue_check(const struct seq_queue *q)
{
    uint32_t n = 0, n_inside = 0;
    bool ok = true;
    for (uint32_t i = 0; i < q->n_classes; i++) {
        const struct priority_class *c = &q->classes[q->order[i]];
        uint32_t n_class = count(c->again, NULL, &ok), k = c->turn, n_of_tenants = 0;
        uint32_t n_waiting = 0;
        ok = ok && (i == 0 || q->classes[q->order[i - 1]].priority < c->priority) && k != NONE;
        do {
            const struct tenant *t = &q->tenants[k];
            ok = ok && t->n_inside > 0 && t->deficit <= q->quantum &&
                 q->tenants[t->ring_next].ring_prev == k;
            n_class += count(t->heap, NULL, &ok);
            n_of_tenants += t->n_inside;
            n_waiting += t->n_waiting;
            k = t->ring_next;
        } while (ok && k != c->turn);
        ok = ok && n_class == c->n_waiting && n_waiting == n_class && n_of_tenants == c->n_inside;
        n += n_class;
        n_inside += n_of_tenants;
    }
    return ok && n == q->n && n_inside == q->n_inside;
}
