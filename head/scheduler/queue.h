#pragma once
/* The queue says who is next: the waiting sequences of one scheduler, in classes by priority (lower
 * is sooner). Inside a class first those that came back (resubmitted, or preempted), by age; then
 * fair shares per tenant: deficit round robin over tokens (Shreedhar and Varghese, SIGCOMM 1995),
 * with the deficit allowed to go below zero, because nobody knows beforehand how long an answer
 * becomes. A tenant's turn gives it a quantum; it is served, oldest first, while its deficit is
 * above zero; what its sequences take of the KV cache is charged as they take it. Nobody saves more
 * than one quantum, and who has nothing here any more is forgotten, debts and all.
 *
 * Tenants and classes live as long as a sequence of theirs is in the scheduler, waiting or running.
 * Stepping never allocates: room is reserved when a sequence enters. First, push and remove are
 * O(log n) in the sequences of a tenant and O(1) in their number for all the rest; first is linear
 * in the classes and tenants that have something here, of which there are few. */
#include "head/scheduler/seq.h"

struct tenant;
struct priority_class;

struct seq_queue {
    uint32_t n;        /* waiting */
    uint32_t n_inside; /* entered and not left */
    int64_t quantum;   /* tokens */
    struct tenant *tenants;
    struct priority_class *classes;
    uint32_t *order; /* classes in use, by priority */
    uint32_t cap, n_classes, free_tenant, free_class;
    uint32_t *buckets, n_buckets; /* (priority, tenant) → tenant + 1 */
};

/* a goes before b: a total order of age in class, also the order in which running sequences are
 * served; the last one in it is preempted first. */
bool seq_before(const struct seq *a, const struct seq *b);

void seq_queue_init(struct seq_queue *q, int64_t quantum);
void seq_queue_fini(struct seq_queue *q);
void seq_queue_enter(struct seq_queue *q, struct seq *x); /* into the scheduler; not waiting yet */
void seq_queue_leave(struct seq_queue *q, struct seq *x); /* out of the scheduler; not waiting */
void seq_queue_push(struct seq_queue *q, struct seq *x);  /* waits */
void seq_queue_remove(struct seq_queue *q, struct seq *x);
/* The one to serve next; NULL: nobody waits. The same one until something changes. */
struct seq *seq_queue_first(struct seq_queue *q);
/* Behind x, which is not to be served now: the oldest of the tenant whose turn is next in its
 * class; NULL: no other tenant's waits there. x: seq_queue_first's answer, or this one's. */
struct seq *seq_queue_behind(const struct seq_queue *q, const struct seq *x);
/* The class of the next one; INT32_MAX when nobody waits. */
int32_t seq_queue_first_priority(const struct seq_queue *q);
/* How many of this tenant's sequences wait; linear in the classes. */
uint32_t seq_queue_n_waiting(const struct seq_queue *q, uint64_t tenant);
/* x took n_tokens of KV cache. */
void seq_queue_charge(struct seq_queue *q, const struct seq *x, uint32_t n_tokens);
bool seq_queue_check(const struct seq_queue *q); /* for tests */
