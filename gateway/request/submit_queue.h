#pragma once
/* Keeps choices that wait to be submitted to the head, fair between tenants. Choices of one
 * tenant wait in the order of arrival. Tenants take turns, measured in bytes. A tenant that sent
 * more than its part of a round waits until the other tenants have sent as much.
 * This is surplus round robin (Adiseshu, Parulkar and Varghese, SIGCOMM 1996): deficit round
 * robin (Shreedhar and Varghese, SIGCOMM 1995) for packets whose size is known only after
 * sending. A small submit therefore waits for at most one round and one large submit of each
 * other tenant.
 * The owner provides the memory of entries. A zeroed entry is in no queue. Only one thread at a
 * time may use a queue. */
#include <stdint.h>

#define SUBMIT_QUANTUM_BYTES (64u << 10) /* bytes that one tenant may send per round */

enum { SUBMIT_BUCKETS = 256 };

struct tenant_submits;

struct submit_entry {
    struct tenant_submits *of; /* queue of the entry's tenant; NULL = not waiting */
    struct submit_entry *next, **link;
    uint64_t since_ns; /* time when the entry was added; readable while the entry waits */
};

struct submit_queue {
    /* hash table of tenants with entries, by the hash of the tenant */
    struct tenant_submits *buckets[SUBMIT_BUCKETS];
    struct tenant_submits *turn; /* tenant whose turn it is, in a ring; NULL = nothing waits */
};

/* Adds the entry behind the tenant's other entries. A waiting entry keeps its place. */
void submit_queue_add(struct submit_queue *q, struct submit_entry *e, uint64_t tenant,
                      uint64_t now_ns);
/* Removes the entry. An entry that does not wait is ignored. */
void submit_queue_remove(struct submit_queue *q, struct submit_entry *e);
/* Returns the entry to send now, or NULL. The entry stays in the queue until it is sent or
 * removed. */
struct submit_entry *submit_queue_next(struct submit_queue *q);
/* Removes the entry, which was sent with `bytes` bytes. */
void submit_queue_sent(struct submit_queue *q, struct submit_entry *e, uint64_t bytes);
