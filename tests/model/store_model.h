#pragma once
/* Models the two heads' store, with the effect of head/lease/store.c's script, one question at a
 * time. Time passes in the explorer's ticks. A dead head's number belongs to no head: its lease
 * becomes STORE_ANOTHER's. */
#include "head/lease/lease.h"

enum { STORE_NOBODY = -1, STORE_ANOTHER = 2, STORE_ENDLESS = 1 << 20 };

struct store_question {
    enum lease_question what; /* question to the store; LEASE_NOTHING = none */
    int who;
    uint64_t wanted, known, number;
};

struct store_model {
    uint32_t ttl_ticks, tick_ms;
    uint64_t term;
    int owner, last;
    uint32_t owner_left, asked_left[2]; /* owner_left may be STORE_ENDLESS */
    uint64_t asked[2];
};

void store_model_init(struct store_model *s, uint32_t ttl_ticks, uint32_t tick_ms);
struct lease_answer store_model_execute(struct store_model *s, const struct store_question *q);
void store_model_tick(struct store_model *s);
/* Empties the store, which continues without any data. */
void store_model_lose_all(struct store_model *s);
/* Stops the store for longer than a lease. Expired keys are gone when the store continues. */
void store_model_freeze(struct store_model *s);
/* Moves the clock that expires keys back by more than any TTL. The heads' clocks do not jump. */
void store_model_jump_back(struct store_model *s);
/* Records that the head is dead. Its successor is another head. */
void store_model_die(struct store_model *s, int who);
