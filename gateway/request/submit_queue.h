#pragma once
/* Choices that wait to be submitted to the head, fair between tenants: each tenant's own wait in
 * the order in which they came, and tenants take turns by the bytes that they send. Who has sent
 * more than its part of a round lets the others go first until it is even. This is surplus round
 * robin (Adiseshu, Parulkar and Varghese, SIGCOMM 1996), the deficit round robin of Shreedhar and
 * Varghese (SIGCOMM 1995) for packets whose size is known when they have been sent. So a tenant's
 * small submit waits for at most a round and one large one of each other tenant, however many
 * they have.
 *
 * Entries are their owner's memory, and a zeroed one is in no queue. One thread. */
#include <stdint.h>

#define SUBMIT_QUANTUM_BYTES (64u << 10) /* of a tenant in one round */

enum { SUBMIT_BUCKETS = 256 };

struct tenant_submits;

struct submit_entry {
    struct tenant_submits *of; /* NULL: it does not wait */
    struct submit_entry *next, **link;
    uint64_t since_ns; /* when it was added; the owner may read it while it waits */
};

struct submit_queue {
    struct tenant_submits *buckets[SUBMIT_BUCKETS]; /* tenants with entries, by tenant */
    struct tenant_submits *turn;                    /* of a ring of them; NULL: nothing waits */
};

/* Behind the tenant's others. An entry that waits already stays where it is. */
void submit_queue_add(struct submit_queue *q, struct submit_entry *e, uint64_t tenant,
                      uint64_t now_ns);
/* One that does not wait is left alone. */
void submit_queue_remove(struct submit_queue *q, struct submit_entry *e);
/* The one to be sent now, which stays until it is sent or removed; NULL: none waits. */
struct submit_entry *submit_queue_next(struct submit_queue *q);
/* It was sent with so many bytes: removes it. */
void submit_queue_sent(struct submit_queue *q, struct submit_entry *e, uint64_t bytes);
