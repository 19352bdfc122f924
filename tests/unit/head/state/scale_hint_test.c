/* Tests the number of replicas that a load needs. The tests pass `scale_hint` loads at chosen
 * times, and read the wanted number, its reason and the time to a cold start. Most cases are
 * rows of two tables. Invariants: the number rises at once, falls only after a calm time, and
 * reaches 0 only if the configuration allows it. Times are in nanoseconds of a virtual clock.
 * All tests run on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "head/state/scale_hint.h"

#define S NS_PER_S

static const struct scale_config plain = {.world = 2,
                                          .slots = 10,
                                          .min_replicas = 1,
                                          .calm_ns = 60 * S,
                                          .settle_ns = SCALE_HINT_BLIND_NS};
static const struct scale_config sleepy = {.world = 2,
                                           .slots = 10,
                                           .max_replicas = 4,
                                           .calm_ns = 60 * S,
                                           .idle_ns = 300 * S,
                                           .start_ns = 120 * S,
                                           .settle_ns = SCALE_HINT_BLIND_NS};

/* Returns a hint whose head has known its workers for longer than the blind time. */
static struct scale_hint begun(const struct scale_config *c, uint32_t replicas)
{
    struct scale_hint h = {0};
    struct scale_load idle = {.n_replicas = replicas, .n_workers = replicas * c->world};
    scale_hint_update(&h, c, &idle, 1 * S);
    scale_hint_update(&h, c, &idle, 1 * S + SCALE_HINT_BLIND_NS);
    return h;
}

static const struct {
    const char *what;
    struct scale_load load; /* n_workers is computed from n_replicas */
    uint64_t ttft_ms;
    uint32_t min, max, want;
    const char *reason; /* part of the reason's text */
} table[] = {
    {"nothing to do", {.n_replicas = 2}, 0, 0, 0, 2, "1 replicas would be enough"},
    {"busy but no one waits",
     {.n_replicas = 2, .running = 20, .kv_usage = 0.5},
     0,
     0,
     0,
     2,
     "enough"},
    {"a moment's queue",
     {.n_replicas = 2, .running = 20, .waiting = 5, .oldest_wait_ns = S / 2},
     0,
     0,
     0,
     2,
     "the replicas are enough: 20 requests run, 5 wait"},
    {"a queue as long as what runs",
     {.n_replicas = 2, .running = 20, .waiting = 20, .oldest_wait_ns = 2 * S},
     0,
     0,
     0,
     4,
     "20 requests wait, the oldest for 2.0 s"},
    {"one that waits is one group more",
     {.n_replicas = 4, .running = 40, .waiting = 1, .oldest_wait_ns = 2 * S},
     0,
     0,
     0,
     5,
     "4 replicas"},
    {"groups that run less than they have room for: by what they run",
     {.n_replicas = 2, .running = 4, .waiting = 6, .oldest_wait_ns = 2 * S},
     0,
     0,
     0,
     5,
     "6 requests wait"},
    {"the target makes it less patient",
     {.n_replicas = 1, .running = 10, .waiting = 10, .oldest_wait_ns = 300 * NS_PER_MS},
     500,
     0,
     0,
     2,
     "10 requests wait"},
    {"prompts that take too long, without a queue",
     {.n_replicas = 3, .running = 6, .oldest_wait_ns = 3 * S},
     2000,
     0,
     0,
     4,
     "the target is 2.0 s"},
    {"the same without a target",
     {.n_replicas = 3, .running = 6, .oldest_wait_ns = 3 * S},
     0,
     0,
     0,
     3,
     "enough"},
    {"blocks nearly all in use",
     {.n_replicas = 3, .running = 6, .kv_usage = 0.95},
     0,
     0,
     0,
     4,
     "95 % of the KV"},
    {"and all of them on many groups",
     {.n_replicas = 9, .running = 9, .kv_usage = 1},
     0,
     0,
     0,
     12,
     "100 %"},
    {"never more than the bound",
     {.n_replicas = 2, .running = 20, .waiting = 80, .oldest_wait_ns = 9 * S},
     0,
     0,
     3,
     3,
     "the load needs 10 replicas, but the limit is 3"},
    {"never fewer than the least", {.n_replicas = 1}, 0, 3, 0, 3, "2 of 6 workers are connected"},
    {"no group serves: what was wanted stays",
     {.n_replicas = 0, .waiting = 50, .oldest_wait_ns = 9 * S},
     0,
     0,
     0,
     1,
     "no replica serves"},
};

static void a_load_asks_for_so_many(void **state)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct scale_config c = plain;
        c.ttft_ns = table[i].ttft_ms * NS_PER_MS;
        c.min_replicas = table[i].min ? table[i].min : 1;
        c.max_replicas = table[i].max;
        struct scale_load load = table[i].load;
        load.n_workers = load.n_replicas * c.world;
        struct scale_hint h = begun(&c, load.n_replicas);
        scale_hint_update(&h, &c, &load, 10 * S);
        if (h.replicas != table[i].want || !strstr(h.reason, table[i].reason))
            fail_msg("%s: %u groups, wanted %u: %s", table[i].what, h.replicas, table[i].want,
                     h.reason);
    }
}

static void a_new_head_says_nothing_until_everybody_may_be_back(void **state)
{
    struct scale_hint h = {0};
    struct scale_load none = {0}, four = {.n_replicas = 4, .n_workers = 8};
    scale_hint_update(&h, &plain, &none, 7 * S);
    assert_int_equal(h.replicas, 0);
    scale_hint_update(&h, &plain, &four, 8 * S);
    assert_int_equal(h.replicas, 0);
    scale_hint_update(&h, &plain, &four, 7 * S + SCALE_HINT_BLIND_NS);
    /* The previous head needed four replicas. A hint of one would end three replicas. */
    assert_int_equal(h.replicas, 4);
}

static void a_head_without_workers_asks_for_the_first_ones_at_once(void **state)
{
    struct scale_config c = sleepy;
    struct scale_hint h = {0};
    struct scale_load load = {0};
    c.settle_ns = 0;
    scale_hint_update(&h, &c, &load, 7 * S);
    assert_true(h.known);
    assert_int_equal(h.replicas, 0);
    load = (struct scale_load){.waiting = 1, .n_arrived = 1};
    scale_hint_update(&h, &c, &load, 7 * S + 1);
    assert_int_equal(h.replicas, 1);
    /* a head that starts with requests of its gateways asks in its first update */
    h = (struct scale_hint){0};
    scale_hint_update(&h, &c, &load, 7 * S);
    assert_int_equal(h.replicas, 1);
}

static void rest_lasts_until_the_next_request(void **state)
{
    struct scale_hint h = begun(&sleepy, 1);
    struct scale_load load = {.n_replicas = 1, .n_workers = 2};
    assert_int_equal(h.replicas, 1);
    scale_hint_rest(&h);
    scale_hint_update(&h, &sleepy, &load, 20 * S);
    assert_int_equal(h.replicas, 0);
    load = (struct scale_load){.n_workers = 2};
    scale_hint_update(&h, &sleepy, &load, 21 * S);
    assert_int_equal(h.replicas, 0);
    assert_true(scale_hint_rests(&h, &sleepy, 21 * S));
    load.n_arrived = load.waiting = 1;
    scale_hint_update(&h, &sleepy, &load, 22 * S);
    assert_int_equal(h.replicas, 1);
    assert_true(scale_hint_rests(&h, &sleepy, 22 * S));
}

static void rest_before_the_workers_are_known_lasts_too(void **state)
{
    struct scale_config c = sleepy;
    struct scale_hint h = {0};
    struct scale_load load = {.n_workers = 2};
    c.settle_ns = 5 * S;
    scale_hint_update(&h, &c, &load, 1 * S);
    assert_false(h.known);
    scale_hint_rest(&h);
    for (uint64_t t = 2; t < 9; t++) {
        scale_hint_update(&h, &c, &load, t * S);
        assert_int_equal(h.replicas, 0);
    }
    assert_true(scale_hint_rests(&h, &c, 9 * S));
    load.n_arrived = load.waiting = 1;
    scale_hint_update(&h, &c, &load, 9 * S);
    assert_int_equal(h.replicas, 1);
}

static void down_comes_after_a_calm_time_and_to_the_most_that_was_needed(void **state)
{
    struct scale_hint h = begun(&plain, 4);
    struct scale_load load = {.n_replicas = 4, .n_workers = 8, .running = 5};
    uint64_t begin = 10 * S;
    h.low_since_ns = 0;
    scale_hint_update(&h, &plain, &load, begin); /* one replica is enough */
    load.running = 11;                           /* two replicas are needed */
    scale_hint_update(&h, &plain, &load, begin + 20 * S);
    load.running = 1;
    scale_hint_update(&h, &plain, &load, begin + 59 * S);
    assert_int_equal(h.replicas, 4);
    assert_non_null(strstr(h.reason, "59 s so far"));
    scale_hint_update(&h, &plain, &load, begin + 60 * S);
    assert_int_equal(h.replicas, 2);
}

static void a_busy_moment_begins_the_calm_time_anew(void **state)
{
    struct scale_hint h = begun(&plain, 2);
    struct scale_load calm = {.n_replicas = 2, .n_workers = 4, .running = 1}, busy = calm;
    busy.running = 20;
    scale_hint_update(&h, &plain, &calm, 10 * S);
    scale_hint_update(&h, &plain, &busy, 50 * S);
    scale_hint_update(&h, &plain, &calm, 60 * S);
    scale_hint_update(&h, &plain, &calm, 119 * S);
    assert_int_equal(h.replicas, 2);
    scale_hint_update(&h, &plain, &calm, 120 * S);
    assert_int_equal(h.replicas, 1);
}

/* While new workers start, the old workers still carry the whole load. That load must not raise
 * the number again. */
static void what_is_on_its_way_is_not_asked_for_again(void **state)
{
    struct scale_hint h = begun(&plain, 1);
    struct scale_load load = {
        .n_replicas = 1, .n_workers = 2, .running = 10, .waiting = 10, .oldest_wait_ns = 2 * S};
    for (uint64_t t = 10; t < 40; t++)
        scale_hint_update(&h, &plain, &load, t * S);
    assert_int_equal(h.replicas, 2);
    assert_non_null(strstr(h.reason, "2 of 4 workers are connected"));
}

/* ---- to no replica and back ---- */

/* Tests a cluster that may have no replicas, once a second. Each row has a load, and the number
 * wanted at the end of its time. */
static const struct {
    const char *what;
    uint32_t for_s;
    struct scale_load load;
    uint32_t arrive; /* requests that arrive at the end of this time */
    uint32_t want;
    bool rests;
    const char *reason;
} days[] = {
    {"a head without workers", 6, {0}, 0, 0, true, "no request has arrived for"},
    {"hours later", 7200, {0}, 0, 0, true, "no request has arrived for 72"},
    {"a request waits", 1, {.waiting = 1}, 1, 1, true, "0 of 2 workers are connected"},
    {"and waits", 100, {.waiting = 1, .n_workers = 2}, 0, 1, true, "no replica serves"},
    {"too long: that is no rest", 30, {.waiting = 1, .n_workers = 2}, 0, 1, false, "no replica"},
    {"it runs",
     20,
     {.n_replicas = 1, .running = 1},
     0,
     1,
     false,
     "the replicas are enough: 1 requests run"},
    {"more than one group",
     20,
     {.n_replicas = 1, .running = 10, .waiting = 20, .oldest_wait_ns = 2 * S},
     20,
     3,
     false,
     "20 requests wait"},
    {"quiet", 280, {.n_replicas = 3}, 0, 1, false, "enough"},
    {"a short one, between two looks", 1, {.n_replicas = 1}, 1, 1, false, "enough"},
    {"which began the time anew", 298, {.n_replicas = 1}, 0, 1, false, "enough"},
    {"idle", 2, {.n_replicas = 1}, 0, 0, false, "no request has arrived for 300 s"},
    {"they drain", 10, {.n_replicas = 0, .n_workers = 2}, 0, 0, true, "no request has arrived"},
    {"cancelled before it was seen",
     1,
     {0},
     1,
     1,
     true,
     "requests have arrived after an idle time"},
    {"and nobody comes back", 298, {0}, 0, 1, false, "no replica serves"},
    {"so nothing is to come", 2, {0}, 0, 0, true, "no request has arrived"},
    {"asked while the last ones still serve",
     1,
     {.n_replicas = 1, .running = 1},
     1,
     1,
     false,
     "requests have arrived after an idle time"},
};

static void none_are_wanted_when_idle_and_one_replica_at_once(void **state)
{
    struct scale_hint h = {0};
    uint64_t now = 7 * S, arrived = 0;
    for (size_t i = 0; i < sizeof days / sizeof *days; i++) {
        struct scale_load load = days[i].load;
        if (load.n_replicas > 0)
            load.n_workers = load.n_replicas * sleepy.world;
        for (uint32_t s = 0; s < days[i].for_s; s++, now += S) {
            arrived += s + 1 == days[i].for_s ? days[i].arrive : 0;
            load.n_arrived = arrived;
            scale_hint_update(&h, &sleepy, &load, now);
        }
        bool rests = scale_hint_rests(&h, &sleepy, now);
        if (!h.known || h.replicas != days[i].want || rests != days[i].rests ||
            !strstr(h.reason, days[i].reason))
            fail_msg("%s: %u groups, wanted %u, rests %d: %s", days[i].what, h.replicas,
                     days[i].want, rests, h.reason);
    }
}

static void a_start_is_expected_and_measured(void **state)
{
    struct scale_hint h = {0};
    struct scale_load none = {0}, one = {.waiting = 1, .n_arrived = 1},
                      serves = {.n_replicas = 1, .n_workers = 2, .running = 1, .n_arrived = 1};
    scale_hint_update(&h, &sleepy, &none, 1 * S);
    assert_false(scale_hint_rests(&h, &sleepy, 1 * S)); /* the workers are not known yet */
    scale_hint_update(&h, &sleepy, &none, 10 * S);
    assert_true(scale_hint_rests(&h, &sleepy, 10 * S));
    assert_int_equal(scale_hint_seconds_to_start(&h, &sleepy, 15 * S), 120);
    scale_hint_update(&h, &sleepy, &one, 20 * S);
    assert_int_equal(scale_hint_seconds_to_start(&h, &sleepy, 20 * S), 120);
    assert_int_equal(scale_hint_seconds_to_start(&h, &sleepy, 100 * S + S / 2), 40);
    assert_int_equal(scale_hint_seconds_to_start(&h, &sleepy, 139 * S + S / 2), 1);
    assert_int_equal(scale_hint_seconds_to_start(&h, &sleepy, 500 * S), 1);
    assert_int_equal(h.cold_start_ns, 0);
    scale_hint_update(&h, &sleepy, &serves, 63 * S);
    assert_int_equal(h.cold_start_ns, 43 * S);
    assert_false(scale_hint_rests(&h, &sleepy, 63 * S));
    scale_hint_update(&h, &sleepy, &serves, 90 * S);
    assert_int_equal(h.cold_start_ns, 43 * S); /* the last cold start took 43 s */
}

/* A new head does not end replicas at its start. Their idle time counts from then on. */
static void a_new_head_waits_for_the_idle_time(void **state)
{
    struct scale_hint h = {0};
    struct scale_load two = {.n_replicas = 2, .n_workers = 4};
    uint64_t now = 5 * S;
    for (; now < 304 * S; now += S)
        scale_hint_update(&h, &sleepy, &two, now);
    /* the load was calm since the blind time, so one replica is enough */
    assert_int_equal(h.replicas, 1);
    scale_hint_update(&h, &sleepy, &two, 306 * S);
    assert_int_equal(h.replicas, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_asks_for_so_many),
        cmocka_unit_test(a_new_head_says_nothing_until_everybody_may_be_back),
        cmocka_unit_test(a_head_without_workers_asks_for_the_first_ones_at_once),
        cmocka_unit_test(rest_lasts_until_the_next_request),
        cmocka_unit_test(rest_before_the_workers_are_known_lasts_too),
        cmocka_unit_test(down_comes_after_a_calm_time_and_to_the_most_that_was_needed),
        cmocka_unit_test(a_busy_moment_begins_the_calm_time_anew),
        cmocka_unit_test(what_is_on_its_way_is_not_asked_for_again),
        cmocka_unit_test(none_are_wanted_when_idle_and_one_replica_at_once),
        cmocka_unit_test(a_start_is_expected_and_measured),
        cmocka_unit_test(a_new_head_waits_for_the_idle_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
