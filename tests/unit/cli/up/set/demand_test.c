/* Tests which models of a set start and end. The tests play the heads and the supervisor: they
 * report wanted workers, answer rests and end workers. `random_load` does so for ten models, three
 * of which fit. Invariants: the memory in use never exceeds the device, no model with requests
 * ends, and every model that wants workers gets them. Times are of a virtual clock. */
#include "cli/up/set/demand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define S 1000000000ull
enum { MODELS_MAX = 10 };

struct world {
    struct demand d;
    struct demand_model models[MODELS_MAX];
    uint64_t used[4];
};

/* Makes n models on one device of 30 units; each model needs 10. */
static void begin(struct world *w, uint32_t n)
{
    *w = (struct world){.d = {.n_models = n, .device_bytes = 30, .n_devices = 1}};
    w->d.models = w->models;
    w->d.used = w->used;
    for (uint32_t i = 0; i < n; i++)
        w->models[i] =
            (struct demand_model){.n_devices = 1, .device_bytes = 10, .idle_ns = 300 * S};
}

static void want(struct world *w, uint32_t i, uint64_t now)
{
    demand_heard(&w->d, i, true, true, 0, now);
}

static void calm(struct world *w, uint32_t i, uint64_t unused, uint64_t now)
{
    demand_heard(&w->d, i, true, false, unused, now);
}

static void expect(struct world *w, uint64_t now, enum demand_act act, uint32_t model)
{
    struct demand_order o = demand_decide(&w->d, now);
    assert_int_equal(o.act, act);
    if (act != DEMAND_NOTHING)
        assert_int_equal(o.model, model);
}

static void a_model_starts_when_it_is_wanted_and_ends_when_it_is_idle(void **state)
{
    struct world w;
    begin(&w, 2);
    expect(&w, 1 * S, DEMAND_NOTHING, 0);
    want(&w, 1, 2 * S);
    expect(&w, 2 * S, DEMAND_START, 1);
    expect(&w, 2 * S, DEMAND_NOTHING, 0);
    calm(&w, 1, 0, 10 * S);
    expect(&w, 309 * S, DEMAND_NOTHING, 0);
    expect(&w, 310 * S, DEMAND_REST, 1);
    demand_rested(&w.d, 1, false, 310 * S); /* a request has come in between */
    expect(&w, 310 * S, DEMAND_NOTHING, 0);
    calm(&w, 1, 0, 311 * S);
    expect(&w, 611 * S, DEMAND_REST, 1);
    demand_rested(&w.d, 1, true, 611 * S);
    assert_int_equal(w.models[1].state, DEMAND_ENDING);
    demand_ended(&w.d, 1);
    expect(&w, 612 * S, DEMAND_NOTHING, 0);
    want(&w, 1, 613 * S);
    expect(&w, 613 * S, DEMAND_START, 1);
}

static void the_least_recently_used_idle_model_makes_room(void **state)
{
    struct world w;
    begin(&w, 5);
    w.models[0].always = true;
    w.models[0].state = DEMAND_ON;
    for (uint32_t i = 1; i < 3; i++) {
        want(&w, i, i * S);
        expect(&w, i * S, DEMAND_START, i);
    }
    calm(&w, 1, 1 * S, 20 * S); /* model 1 was used at 19 s, model 2 at 15 s */
    calm(&w, 2, 5 * S, 20 * S);
    want(&w, 3, 21 * S);
    want(&w, 4, 22 * S);
    expect(&w, 22 * S, DEMAND_REST, 2);
    expect(&w, 22 * S, DEMAND_REST, 1); /* model 4 waits too */
    demand_rested(&w.d, 2, true, 23 * S);
    expect(&w, 23 * S, DEMAND_NOTHING, 0); /* the workers of model 2 still hold their memory */
    demand_ended(&w.d, 2);
    expect(&w, 24 * S, DEMAND_START, 3);
    demand_rested(&w.d, 1, true, 24 * S);
    demand_ended(&w.d, 1);
    expect(&w, 25 * S, DEMAND_START, 4);
    want(&w, 1, 26 * S);
    expect(&w, 26 * S, DEMAND_NOTHING, 0); /* all others have requests, or always run */
}

/* An idle model stays while its end would not make room for the model that waits. */
static void no_idle_model_ends_in_vain(void **state)
{
    struct world w;
    begin(&w, 3);
    w.models[0].device_bytes = 15;
    w.models[1].device_bytes = 6;
    w.models[2].device_bytes = 18;
    want(&w, 0, 1 * S);
    expect(&w, 1 * S, DEMAND_START, 0);
    want(&w, 1, 2 * S);
    expect(&w, 2 * S, DEMAND_START, 1);
    calm(&w, 1, 0, 3 * S);
    want(&w, 2, 4 * S);
    expect(&w, 4 * S, DEMAND_NOTHING, 0); /* 15 + 18 is more than 30, with model 1 or without it */
    calm(&w, 0, 0, 5 * S);
    expect(&w, 5 * S, DEMAND_REST, 1);
    expect(&w, 5 * S, DEMAND_REST, 0);
}

static void a_small_model_does_not_overtake_a_large_one(void **state)
{
    struct world w;
    begin(&w, 4);
    w.models[0].device_bytes = 30;
    want(&w, 1, 1 * S);
    expect(&w, 1 * S, DEMAND_START, 1);
    want(&w, 0, 2 * S);
    want(&w, 2, 3 * S);
    expect(&w, 3 * S, DEMAND_NOTHING, 0); /* there is room for model 2, but model 0 was first */
    calm(&w, 1, 0, 4 * S);
    expect(&w, 4 * S, DEMAND_REST, 1);
    demand_rested(&w.d, 1, true, 4 * S);
    demand_ended(&w.d, 1);
    expect(&w, 5 * S, DEMAND_START, 0);
}

static void models_of_other_devices_do_not_wait(void **state)
{
    struct world w;
    begin(&w, 3);
    w.d.n_devices = 2;
    w.models[0].device_bytes = w.models[1].device_bytes = 30;
    w.models[2].first_device = 1;
    want(&w, 0, 1 * S);
    expect(&w, 1 * S, DEMAND_START, 0);
    want(&w, 1, 2 * S);
    want(&w, 2, 3 * S);
    expect(&w, 3 * S, DEMAND_START, 2);
    expect(&w, 3 * S, DEMAND_NOTHING, 0);
}

static void a_failed_model_frees_its_memory_and_never_starts(void **state)
{
    struct world w;
    begin(&w, 2);
    w.models[0].device_bytes = w.models[1].device_bytes = 30;
    want(&w, 0, 1 * S);
    expect(&w, 1 * S, DEMAND_START, 0);
    want(&w, 1, 2 * S);
    expect(&w, 2 * S, DEMAND_NOTHING, 0);
    demand_fail(&w.d, 0);
    expect(&w, 3 * S, DEMAND_NOTHING, 0);
    demand_ended(&w.d, 0);
    expect(&w, 4 * S, DEMAND_START, 1);
    want(&w, 0, 5 * S);
    expect(&w, 5 * S, DEMAND_NOTHING, 0);
}

/* ---- random load ---- */

/* `played` is what the test knows of a model: its open work and when its workers will be gone. */
struct played {
    uint64_t work_until, ends_at, since;
    uint32_t n_open;
};

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

static void check_memory(const struct world *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->d.n_models; i++)
        sum += w->models[i].state != DEMAND_OFF ? w->models[i].device_bytes : 0;
    assert_true(sum <= w->d.device_bytes);
}

static void obey(struct world *w, struct played *p, struct demand_order o, uint64_t now)
{
    struct played *x = &p[o.model];
    if (o.act == DEMAND_START) {
        x->work_until = now + 3 * S;
        return;
    }
    assert_int_equal(o.act, DEMAND_REST);
    demand_rested(&w->d, o.model, x->n_open == 0, now);
    if (x->n_open == 0)
        x->ends_at = now + S / 2;
}

static void random_load(void **state)
{
    struct world w;
    struct played p[MODELS_MAX] = {0};
    uint32_t seed = 12345, n_started = 0;
    uint64_t longest = 0;
    begin(&w, MODELS_MAX);
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        w.models[i].idle_ns = 20 * S;
    for (uint64_t now = S; now < 20000 * S; now += S / 4) {
        uint32_t asked = next_random(&seed) % (MODELS_MAX * 8);
        if (asked < MODELS_MAX && p[asked].n_open++ == 0)
            p[asked].since = now;
        for (uint32_t i = 0; i < MODELS_MAX; i++) {
            bool on = w.models[i].state == DEMAND_ON;
            if (on && p[i].n_open > 0 && now >= p[i].work_until) {
                p[i].n_open = 0;
                longest = now - p[i].since > longest ? now - p[i].since : longest;
            }
            if (w.models[i].state == DEMAND_ENDING && now >= p[i].ends_at)
                demand_ended(&w.d, i);
            bool wants = p[i].n_open > 0 || (on && w.models[i].wants);
            demand_heard(&w.d, i, wants, p[i].n_open > 0, p[i].n_open ? 0 : S / 4, now);
        }
        struct demand_order o;
        while ((o = demand_decide(&w.d, now)).act != DEMAND_NOTHING) {
            n_started += o.act == DEMAND_START;
            obey(&w, p, o, now);
            check_memory(&w);
        }
    }
    assert_true(n_started > 1000);
    /* nine others wait at most, and three at a time take 3.5 s */
    assert_true(longest < 60 * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_starts_when_it_is_wanted_and_ends_when_it_is_idle),
        cmocka_unit_test(the_least_recently_used_idle_model_makes_room),
        cmocka_unit_test(no_idle_model_ends_in_vain),
        cmocka_unit_test(a_small_model_does_not_overtake_a_large_one),
        cmocka_unit_test(models_of_other_devices_do_not_wait),
        cmocka_unit_test(a_failed_model_frees_its_memory_and_never_starts),
        cmocka_unit_test(random_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
