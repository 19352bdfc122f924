#pragma once
/* Keeps the queue of one scheduler, which decides which waiting sequence is next. Sequences are
 * in classes by priority (a lower number is served sooner). Within a class, resubmitted and
 * preempted sequences are first, by age. The others get fair shares per tenant: deficit round
 * robin over tokens (Shreedhar and Varghese, SIGCOMM 1995). A deficit may be below zero, because
 * the length of an answer is not known in advance. A turn adds a quantum to its tenant's
 * deficit. The tenant is served, oldest sequence first, while its deficit is above zero. Each
 * sequence is charged for the KV cache that it takes. A tenant saves at most one quantum. A
 * tenant that has no sequences in the scheduler is deleted, with its debt.
 *
 * Tenants and classes exist while one of their sequences is in the scheduler, waiting or
 * running. A step never allocates: memory is reserved when a sequence enters. First, push and
 * remove are O(log n) in the sequences of a tenant and O(1) in those of others. First is also
 * linear in the number of classes and tenants with sequences, which is small. */
#include "head/scheduler/seq.h"

struct tenant;
struct priority_class;

struct seq_queue {
    uint32_t n;        /* waiting sequences */
    uint32_t n_inside; /* sequences in the scheduler, waiting or running */
    int64_t quantum;   /* tokens per turn */
    struct tenant *tenants;
    struct priority_class *classes;
    uint32_t *order; /* classes in use, sorted by priority */
    uint32_t cap, n_classes, free_tenant, free_class;
    uint32_t *buckets, n_buckets; /* hash table from (priority, tenant) to the tenant's index + 1 */
};

/* Returns true when `a` is served before `b`: by priority, then resubmitted sequences, then by
 * age. Running sequences are served in the same order, and the last one is preempted first. */
bool seq_before(const struct seq *a, const struct seq *b);

void seq_queue_init(struct seq_queue *q, int64_t quantum);
void seq_queue_fini(struct seq_queue *q);
/* Adds a sequence to the scheduler. The sequence does not wait yet. */
void seq_queue_enter(struct seq_queue *q, struct seq *x);
/* Removes a sequence that does not wait from the scheduler. */
void seq_queue_leave(struct seq_queue *q, struct seq *x);
/* Puts `x`, which begins to wait, into the queue. */
void seq_queue_push(struct seq_queue *q, struct seq *x);
void seq_queue_remove(struct seq_queue *q, struct seq *x);
/* Returns the sequence to serve next, or NULL when no sequence waits. The result is the same
 * until something changes. */
struct seq *seq_queue_first(struct seq_queue *q);
/* Returns the sequence to try when `x` cannot be served now: the oldest one of the next tenant
 * in its class. Returns NULL when no other tenant waits there. `x` is a result of
 * seq_queue_first or of this function. */
struct seq *seq_queue_behind(const struct seq_queue *q, const struct seq *x);
/* Returns the priority of the next sequence, or INT32_MAX when no sequence waits. */
int32_t seq_queue_first_priority(const struct seq_queue *q);
/* Returns how many of this tenant's sequences wait. The cost is linear in the classes. */
uint32_t seq_queue_n_waiting(const struct seq_queue *q, uint64_t tenant);
/* Holds how many waiting sequences, with how many tokens to compute, are served before a new one.
 * The numbers are expected ones, since the tenants' turns depend on what they generate. */
struct seq_queue_front {
    double n, n_tokens;
};
/* Returns what is in front of a new sequence. The cost is linear in the tenants and classes. */
struct seq_queue_front seq_queue_front_of(const struct seq_queue *q, int32_t priority,
                                          uint64_t tenant);
/* Charges x's tenant for n_tokens of KV cache. */
void seq_queue_charge(struct seq_queue *q, const struct seq *x, uint32_t n_tokens);
bool seq_queue_check(const struct seq_queue *q); /* checks the queue's invariants, for tests */
