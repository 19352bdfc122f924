#pragma once
/* The store of two heads as head/lease/store.c's script leaves it, question by question; time
 * passes in ticks of whoever explores. Numbers of those that died are nobody's: what they had is
 * ANOTHER's.
 */
#include "head/lease/lease.h"

enum { STORE_NOBODY = -1, STORE_ANOTHER = 2, STORE_ENDLESS = 1 << 20 };

struct store_question {
    enum lease_question what; /* LEASE_NOTHING: there is none */
    int who;
    uint64_t wanted, known, number;
};

struct store_model {
    uint32_t ttl_ticks, tick_ms;
    uint64_t term;
    int owner, last;
    uint32_t owner_left, asked_left[2]; /* the first may be STORE_ENDLESS */
    uint64_t asked[2];
};

void store_model_init(struct store_model *s, uint32_t ttl_ticks, uint32_t tick_ms);
struct lease_answer store_model_execute(struct store_model *s, const struct store_question *q);
void store_model_tick(struct store_model *s);
/* Came back empty. */
void store_model_lose_all(struct store_model *s);
/* Stood still for longer than a lease: what expires is gone when it reads on. */
void store_model_freeze(struct store_model *s);
/* The clock that ends keys, not the one of the heads: longer than any TTL. */
void store_model_jump_back(struct store_model *s);
/* The head is dead: its successor is another one. */
void store_model_die(struct store_model *s, int who);
