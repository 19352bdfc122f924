/* Tests which models of a set start, sleep and end. The tests play the heads and the supervisor:
 * they report wanted workers, answer rests, and let workers sleep and end. `random_load` does so
 * for ten models, three of which fit, at each sleep level. Invariants: the memory in use never
 * exceeds the device, no model that computes requests rests, and every model that wants workers
 * gets them. Times are of a virtual clock. */
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

static void expect_rest(struct world *w, uint64_t now, uint32_t model, enum demand_level level)
{
    struct demand_order o = demand_decide(&w->d, now);
    assert_int_equal(o.act, DEMAND_REST);
    assert_int_equal(o.model, model);
    assert_int_equal(o.level, level);
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

/* ---- sleep levels ---- */

/* Makes models that sleep when they are idle. Each needs 10 units, 7 at level 1 and 1 at level 2.
 */
static void begin_sleepers(struct world *w, uint32_t n, enum demand_level idle_level)
{
    begin(w, n);
    for (uint32_t i = 0; i < n; i++) {
        w->models[i].idle_level = idle_level;
        w->models[i].asleep_bytes[0] = 7;
        w->models[i].asleep_bytes[1] = 1;
    }
}

static void fall_asleep(struct world *w, uint32_t i, uint64_t now)
{
    demand_rested(&w->d, i, true, now);
    assert_int_equal(w->models[i].state, DEMAND_FALLING);
    demand_slept(&w->d, i, true);
    assert_int_equal(w->models[i].state, DEMAND_ASLEEP);
}

static void an_idle_model_sleeps_and_wakes(void **state)
{
    struct world w;
    begin_sleepers(&w, 1, DEMAND_LEVEL_KV);
    want(&w, 0, 1 * S);
    expect(&w, 1 * S, DEMAND_START, 0);
    calm(&w, 0, 0, 2 * S);
    expect_rest(&w, 302 * S, 0, DEMAND_LEVEL_KV);
    fall_asleep(&w, 0, 302 * S);
    assert_int_equal(demand_bytes(&w.models[0]), 7);
    expect(&w, 9999 * S, DEMAND_NOTHING, 0); /* nobody needs its memory */
    want(&w, 0, 10000 * S);
    expect(&w, 10000 * S, DEMAND_WAKE, 0);
    assert_int_equal(demand_bytes(&w.models[0]), 10);
}

/* Sleepers yield their weights first, then idle models fall asleep, then sleepers end. */
static void memory_is_taken_only_as_far_as_needed(void **state)
{
    struct world w;
    begin_sleepers(&w, 5, DEMAND_LEVEL_KV);
    for (uint32_t i = 0; i < 3; i++) {
        want(&w, i, (i + 1) * S);
        expect(&w, (i + 1) * S, DEMAND_START, i);
        calm(&w, i, 0, (i + 1) * S);
    }
    w.models[3].device_bytes = 3;
    want(&w, 3, 10 * S);
    expect_rest(&w, 10 * S, 0, DEMAND_LEVEL_KV); /* 7 + 10 + 10 + 3 */
    fall_asleep(&w, 0, 10 * S);
    expect(&w, 10 * S, DEMAND_START, 3);
    w.models[4].device_bytes = 12;
    want(&w, 4, 11 * S);
    expect_rest(&w, 11 * S, 0, DEMAND_LEVEL_WEIGHTS); /* 1 + 10 + 10 + 3 */
    expect_rest(&w, 11 * S, 1, DEMAND_LEVEL_WEIGHTS); /* 1 + 1 + 10 + 3 + 12; 7 for 1 is too much */
    expect(&w, 11 * S, DEMAND_NOTHING, 0);
    fall_asleep(&w, 0, 11 * S);
    expect(&w, 11 * S, DEMAND_NOTHING, 0);
    fall_asleep(&w, 1, 11 * S);
    expect(&w, 11 * S, DEMAND_START, 4);
    demand_heard(&w.d, 3, true, false, 0, 12 * S);
    demand_ended(&w.d, 3); /* it runs, so this changes nothing */
    want(&w, 2, 12 * S);
    w.models[3].state = DEMAND_OFF;
    w.models[3].device_bytes = 7;
    want(&w, 3, 13 * S); /* 1 + 1 + 10 + 12 + 7 is too much */
    expect(&w, 13 * S, DEMAND_END, 0);
    expect(&w, 13 * S, DEMAND_NOTHING, 0);
    demand_ended(&w.d, 0);
    expect(&w, 14 * S, DEMAND_START, 3);
}

/* Two models of 20 units wait, and each one holds memory that the other needs. */
static void a_waiting_sleeper_yields_to_an_earlier_one(void **state)
{
    struct world w;
    begin_sleepers(&w, 2, DEMAND_LEVEL_KV);
    for (uint32_t i = 0; i < 2; i++) {
        w.models[i].device_bytes = 20;
        w.models[i].asleep_bytes[0] = 14;
        w.models[i].state = DEMAND_ASLEEP;
        w.models[i].level = DEMAND_LEVEL_KV;
    }
    want(&w, 1, 1 * S);
    want(&w, 0, 2 * S);
    expect_rest(&w, 2 * S, 0, DEMAND_LEVEL_WEIGHTS);
    demand_rested(&w.d, 0, true, 2 * S);
    assert_true(w.models[0].wants); /* its request still waits */
    demand_slept(&w.d, 0, true);
    expect(&w, 3 * S, DEMAND_WAKE, 1);
    expect(&w, 3 * S, DEMAND_NOTHING, 0);
    calm(&w, 1, 0, 4 * S);
    expect_rest(&w, 4 * S, 1, DEMAND_LEVEL_WEIGHTS);
}

/* Sleep that frees nothing is none: the workers end. */
static void a_level_that_frees_nothing_is_not_used(void **state)
{
    struct world w;
    begin_sleepers(&w, 2, DEMAND_LEVEL_KV);
    w.models[0].asleep_bytes[0] = 10;
    w.models[1].asleep_bytes[0] = w.models[1].asleep_bytes[1] = 24;
    for (uint32_t i = 0; i < 2; i++) {
        want(&w, i, 1 * S);
        expect(&w, 1 * S, DEMAND_START, i);
        calm(&w, i, 0, 1 * S);
    }
    expect_rest(&w, 400 * S, 0, DEMAND_LEVEL_WEIGHTS);
    expect_rest(&w, 400 * S, 1, DEMAND_LEVEL_ENDED);
    demand_rested(&w.d, 1, true, 400 * S);
    assert_int_equal(w.models[1].state, DEMAND_ENDING);
}

/* A model ends at once when its sleep would not be enough, and no other one can give memory back.
 */
static void a_sleep_that_is_not_enough_is_left_out(void **state)
{
    struct world w;
    begin_sleepers(&w, 2, DEMAND_LEVEL_WEIGHTS);
    for (uint32_t i = 0; i < 2; i++)
        w.models[i].device_bytes = 30;
    want(&w, 0, 1 * S);
    expect(&w, 1 * S, DEMAND_START, 0);
    calm(&w, 0, 0, 2 * S);
    want(&w, 1, 3 * S);
    expect_rest(&w, 3 * S, 0, DEMAND_LEVEL_ENDED);
}

static void faults_of_sleepers(void **state)
{
    struct world w;
    begin_sleepers(&w, 5, DEMAND_LEVEL_WEIGHTS);
    for (uint32_t i = 0; i < 5; i++) {
        w.models[i].state = DEMAND_ON;
        w.models[i].device_bytes = 6;
        calm(&w, i, 0, 1 * S);
    }
    assert_false(demand_lost(&w.d, 4)); /* an awake model starts the worker again */
    for (uint32_t i = 0; i < 5; i++)
        expect_rest(&w, 400 * S, i, DEMAND_LEVEL_WEIGHTS);
    assert_false(demand_lost(&w.d, 0)); /* the head has not agreed yet; then it ends */
    demand_rested(&w.d, 0, true, 400 * S);
    assert_int_equal(w.models[0].state, DEMAND_ENDING);
    demand_rested(&w.d, 1, true, 400 * S);
    assert_true(demand_lost(&w.d, 1)); /* a worker that starts again would load weights */
    assert_int_equal(w.models[1].state, DEMAND_ENDING);
    demand_rested(&w.d, 2, true, 400 * S);
    demand_serves(&w.d, 2); /* a head that has forgotten the order: the memory is still counted */
    assert_int_equal(w.models[2].state, DEMAND_ON);
    fall_asleep(&w, 3, 400 * S);
    demand_serves(&w.d, 3); /* here the memory may have been given away */
    assert_int_equal(w.models[3].state, DEMAND_ENDING);
    assert_int_equal(demand_bytes(&w.models[3]), 1);
    demand_rested(&w.d, 4, true, 400 * S);
    demand_slept(&w.d, 4, false); /* a worker keeps its memory */
    assert_int_equal(w.models[4].state, DEMAND_ENDING);
    assert_int_equal(demand_bytes(&w.models[4]), 6);
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
    for (uint32_t i = 0; i < w->d.n_models; i++) {
        const struct demand_model *m = &w->models[i];
        bool is_awake = m->level == DEMAND_LEVEL_AWAKE || m->state == DEMAND_ON;
        if (m->state != DEMAND_OFF)
            sum += is_awake ? m->device_bytes : m->asleep_bytes[m->level - 1];
    }
    assert_true(sum <= w->d.device_bytes);
}

static void obey(struct world *w, struct played *p, struct demand_order o, uint64_t now)
{
    struct played *x = &p[o.model];
    struct demand_model *m = &w->models[o.model];
    x->ends_at = now + S / 2;
    if (o.act == DEMAND_START || o.act == DEMAND_WAKE) {
        x->work_until = now + 3 * S;
        return;
    }
    if (o.act == DEMAND_END)
        return;
    assert_int_equal(o.act, DEMAND_REST);
    bool computes = m->level == DEMAND_LEVEL_AWAKE;
    demand_rested(&w->d, o.model, !computes || x->n_open == 0, now);
    if (computes && x->n_open > 0)
        assert_int_equal(m->state, DEMAND_ON);
}

static void play(enum demand_level idle_level, uint32_t acts[DEMAND_END + 1])
{
    struct world w;
    struct played p[MODELS_MAX] = {0};
    uint32_t seed = 12345;
    uint64_t longest = 0;
    begin_sleepers(&w, MODELS_MAX, idle_level);
    w.d.device_bytes = 36; /* room for some sleepers beside three models */
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
            if (w.models[i].state == DEMAND_FALLING && now >= p[i].ends_at)
                demand_slept(&w.d, i, true);
            bool wants = p[i].n_open > 0 || (on && w.models[i].wants);
            demand_heard(&w.d, i, wants, p[i].n_open > 0, p[i].n_open ? 0 : S / 4, now);
        }
        struct demand_order o;
        while ((o = demand_decide(&w.d, now)).act != DEMAND_NOTHING) {
            acts[o.act]++;
            obey(&w, p, o, now);
            check_memory(&w);
        }
    }
    /* nine others wait at most; three at a time take 3.5 s, and 0.5 s more for each deeper level */
    assert_true(longest < 60 * S);
}

static void random_load(void **state)
{
    uint32_t ends[DEMAND_END + 1] = {0}, kv[DEMAND_END + 1] = {0}, weights[DEMAND_END + 1] = {0};
    play(DEMAND_LEVEL_AWAKE, ends);
    assert_true(ends[DEMAND_START] > 1000 && ends[DEMAND_WAKE] == 0 && ends[DEMAND_END] == 0);
    play(DEMAND_LEVEL_KV, kv);
    assert_true(kv[DEMAND_WAKE] > 1000 && kv[DEMAND_END] > 100);
    play(DEMAND_LEVEL_WEIGHTS, weights);
    assert_true(weights[DEMAND_WAKE] > 1000 && weights[DEMAND_END] > 10);
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
        cmocka_unit_test(an_idle_model_sleeps_and_wakes),
        cmocka_unit_test(memory_is_taken_only_as_far_as_needed),
        cmocka_unit_test(a_waiting_sleeper_yields_to_an_earlier_one),
        cmocka_unit_test(a_level_that_frees_nothing_is_not_used),
        cmocka_unit_test(a_sleep_that_is_not_enough_is_left_out),
        cmocka_unit_test(faults_of_sleepers),
        cmocka_unit_test(random_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
