#include "tests/model/store_model.h"

#include <stddef.h>

#define JUMP_TICKS 1000u

void store_model_init(struct store_model *s, uint32_t ttl_ticks, uint32_t tick_ms)
{
    *s = (struct store_model){
        .ttl_ticks = ttl_ticks, .tick_ms = tick_ms, .owner = STORE_NOBODY, .last = STORE_NOBODY};
}

struct lease_answer store_model_execute(struct store_model *s, const struct store_question *q)
{
    bool is_ours = q->who != STORE_ANOTHER; /* the question number of a dead head does not matter */
    bool is_late = !is_ours || s->asked_left[q->who] == 0 || s->asked[q->who] > q->number;
    if (q->what != LEASE_RENEW && is_ours &&
        (s->asked_left[q->who] == 0 || s->asked[q->who] <= q->number)) {
        s->asked_left[q->who] = s->ttl_ticks / 2;
        s->asked[q->who] = q->number;
    }
    if (s->owner != STORE_NOBODY && s->owner != q->who) {
        if (q->what == LEASE_BOUND && !is_late && s->owner_left > s->ttl_ticks)
            s->owner_left = s->ttl_ticks;
        bool has_end = s->owner_left != STORE_ENDLESS;
        return (struct lease_answer){LEASE_OTHERS, s->term,
                                     has_end ? (int64_t)s->owner_left * s->tick_ms : -1};
    }
    if (q->what == LEASE_RENEW) {
        if (s->owner == STORE_NOBODY && s->last != STORE_NOBODY && s->last != q->who)
            return (struct lease_answer){LEASE_GONE, s->term, 0};
        s->term = s->term > q->wanted ? s->term : q->wanted;
    } else if (is_late) {
        return (struct lease_answer){LEASE_LATE, s->term, 0};
    } else if (q->what != LEASE_TAKE || s->term < q->known) {
        return (struct lease_answer){s->owner == STORE_NOBODY ? LEASE_FREE : LEASE_OURS, s->term,
                                     0};
    } else {
        s->term = (s->term > q->wanted ? s->term : q->wanted) + 1;
    }
    s->owner = s->last = q->who;
    s->owner_left = s->ttl_ticks;
    return (struct lease_answer){LEASE_OURS, s->term, 0};
}

void store_model_tick(struct store_model *s)
{
    s->owner_left -= s->owner_left > 0 && s->owner_left != STORE_ENDLESS;
    if (s->owner_left == 0)
        s->owner = STORE_NOBODY;
    for (int i = 0; i < 2; i++)
        s->asked_left[i] -= s->asked_left[i] > 0;
}

void store_model_lose_all(struct store_model *s)
{
    s->term = 0;
    s->owner = s->last = STORE_NOBODY;
    s->owner_left = s->asked_left[0] = s->asked_left[1] = 0;
}

void store_model_freeze(struct store_model *s)
{
    s->owner = STORE_NOBODY;
    s->owner_left = s->asked_left[0] = s->asked_left[1] = 0;
}

void store_model_jump_back(struct store_model *s)
{
    uint32_t *ends[] = {&s->owner_left, &s->asked_left[0], &s->asked_left[1]};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (*ends[i] > 0 && *ends[i] != STORE_ENDLESS)
            *ends[i] += JUMP_TICKS;
    }
}

void store_model_die(struct store_model *s, int who)
{
    s->owner = s->owner == who ? STORE_ANOTHER : s->owner;
    s->last = s->last == who ? STORE_ANOTHER : s->last;
    s->asked_left[who] = 0;
}
