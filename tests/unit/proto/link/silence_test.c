/* Tests the detection of silent peers. A silent peer counts as lost, but an observer that was
 * late itself blames no peer. The test sets the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "proto/link/silence.h"

enum { LIMIT_MS = 1500, BEAT_MS = 250 };
#define MS 1000000ull

/* Simulates an observer. It looks when it is scheduled, and reads arrived frames after the look.
 * It may be off its processor for a while. */
struct looker {
    struct silence silence;
    uint64_t now_ms, sent_ms; /* sent_ms: time of the newest unread frame */
};

static bool look(struct looker *l)
{
    return silence_look(&l->silence, l->now_ms * MS, LIMIT_MS * MS);
}

static void read_frames(struct looker *l)
{
    if (l->sent_ms * MS > l->silence.heard_ns)
        silence_heard(&l->silence, l->now_ms * MS);
}

/* Returns the milliseconds until a silent peer counts as lost; 0 = not within ten seconds. */
static uint64_t given_up_after(uint64_t period_ms)
{
    struct looker l = {.now_ms = 1000};
    silence_begin(&l.silence, l.now_ms * MS);
    while (l.now_ms < 11000) {
        l.now_ms += l.silence.is_overdue ? SILENCE_AGAIN_MS : period_ms;
        if (look(&l))
            return l.now_ms - 1000;
    }
    return 0;
}

static void test_silence_is_found(void **state)
{
    for (uint64_t period_ms = 10; period_ms <= BEAT_MS; period_ms += 5) {
        uint64_t ms = given_up_after(period_ms);
        assert_true(ms > LIMIT_MS && ms <= LIMIT_MS + period_ms + SILENCE_AGAIN_MS);
    }
}

/* An observer that is always late finds a silent peer, too. Each of its looks counts for half a
 * second. */
static void test_silence_is_found_by_a_late_looker(void **state)
{
    for (uint64_t period_ms = 510; period_ms <= 2000; period_ms += 10) {
        uint64_t ms = given_up_after(period_ms);
        assert_true(ms >= 3 * period_ms && ms <= 4 * period_ms);
    }
}

/* The observer is off its processor at random times. A peer that sends heartbeats meanwhile
 * never counts as lost. */
static void test_a_late_looker_blames_nobody(void **state)
{
    struct rng rng = {.state = 7};
    for (int i = 0; i < 2000; i++) {
        struct looker l = {.now_ms = 1000};
        silence_begin(&l.silence, l.now_ms * MS);
        for (int k = 0; k < 200; k++) {
            uint64_t late_ms =
                rng_below(&rng, 4) == 0 ? rng_below(&rng, 5000) : rng_below(&rng, 400);
            l.now_ms += (l.silence.is_overdue ? SILENCE_AGAIN_MS : BEAT_MS) + late_ms;
            l.sent_ms = l.now_ms - rng_below(&rng, BEAT_MS); /* heartbeats arrive all the time */
            assert_false(look(&l));
            read_frames(&l);
        }
    }
}

/* An observer is always late, but less than a stall. It still finds a dead peer. */
static void test_a_dead_one_is_found_by_who_is_always_late(void **state)
{
    for (uint64_t period_ms = BEAT_MS; period_ms <= SILENCE_STALL_NS / MS; period_ms += 10) {
        struct looker l = {.now_ms = 1000};
        silence_begin(&l.silence, l.now_ms * MS);
        do
            l.now_ms += period_ms;
        while (!look(&l));
        assert_true(l.now_ms - 1000 <= LIMIT_MS + 2 * period_ms);
    }
}

/* Silence from before the observer's own stall still counts. Only the stall itself is forgiven. */
static void test_a_stall_forgives_itself_alone(void **state)
{
    struct looker l = {.now_ms = 1000};
    silence_begin(&l.silence, l.now_ms * MS);
    for (int i = 0; i < 5; i++) {
        l.now_ms += BEAT_MS;
        assert_false(look(&l));
    }
    l.now_ms += 10000;
    assert_false(look(&l));
    uint64_t back_ms = l.now_ms;
    do
        l.now_ms += SILENCE_AGAIN_MS;
    while (!look(&l));
    assert_true(l.now_ms - back_ms <= LIMIT_MS - 5 * BEAT_MS + 2 * SILENCE_AGAIN_MS);
}

/* The limit comes from the head's Welcome. Values that no head sends are replaced by the
 * default. */
static void test_the_limit_of_a_welcome(void **state)
{
    static const struct {
        uint32_t suspect_ms;
        uint64_t want_ms;
    } cases[] = {{1000, 1500}, {5000, 7500}, {400000, 600000}, {0, 1500},
                 {399, 1500},  {666, 999},   {600001, 1500},   {UINT32_MAX, 1500}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(silence_limit_ns(cases[i].suspect_ms), cases[i].want_ms * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence_is_found),
        cmocka_unit_test(test_the_limit_of_a_welcome),
        cmocka_unit_test(test_silence_is_found_by_a_late_looker),
        cmocka_unit_test(test_a_late_looker_blames_nobody),
        cmocka_unit_test(test_a_dead_one_is_found_by_who_is_always_late),
        cmocka_unit_test(test_a_stall_forgives_itself_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
