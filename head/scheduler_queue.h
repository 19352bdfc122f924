#pragma once
/* Who is next: the waiting queue of one scheduler. Order: priority class (lower is sooner), then
 * resubmitted and preempted-before work by its arrival. Behind this interface so that the order
 * inside a class can become fair share per tenant without touching the scheduler. Pushing never
 * allocates: capacity is reserved when a sequence enters the scheduler. */
#include <stdbool.h>
#include <stdint.h>

struct seq;
struct seq_queue {
    struct seq **heap; /* binary heap; each sequence knows its place in it */
    uint32_t n, cap;
};

/* a goes before b: a total order, also the order in which running sequences are served; the last
 * one in it is preempted first. */
bool seq_before(const struct seq *a, const struct seq *b);

void seq_queue_fini(struct seq_queue *q);
void seq_queue_reserve(struct seq_queue *q, uint32_t cap);
void seq_queue_push(struct seq_queue *q, struct seq *x);
struct seq *seq_queue_first(const struct seq_queue *q); /* NULL: empty */
void seq_queue_remove(struct seq_queue *q, struct seq *x);
bool seq_queue_check(const struct seq_queue *q);
