#include "gateway/generation/stream_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/random.h"

struct item_case {
    const char *name;
    uint32_t have, attempt; /* number of received tokens, and attempt, before the item */
    struct {
        uint32_t attempt, start, n;
        enum finish_reason finish;
    } item;
    enum stream_verdict want;
    uint32_t skip, have_after, attempt_after;
};

static const struct item_case cases[] = {
    {"next", 3, 1, {1, 3, 2, FINISH_NONE}, STREAM_ACCEPT, 0, 5, 1},
    {"first", 0, 1, {1, 0, 1, FINISH_NONE}, STREAM_ACCEPT, 0, 1, 1},
    {"overlap in part", 3, 1, {1, 1, 4, FINISH_NONE}, STREAM_ACCEPT, 2, 5, 1},
    {"overlap in whole", 3, 1, {1, 1, 2, FINISH_NONE}, STREAM_DROP, 0, 3, 1},
    {"repeated", 3, 1, {1, 2, 1, FINISH_NONE}, STREAM_DROP, 0, 3, 1},
    {"gap", 3, 1, {1, 4, 1, FINISH_NONE}, STREAM_RESUBMIT, 0, 3, 2},
    {"gap with the end", 3, 1, {1, 4, 1, FINISH_STOP}, STREAM_RESUBMIT, 0, 3, 2},
    {"old attempt", 3, 2, {1, 3, 2, FINISH_NONE}, STREAM_DROP, 0, 3, 2},
    {"attempt of nobody", 3, 2, {3, 3, 2, FINISH_NONE}, STREAM_DROP, 0, 3, 2},
    {"end alone", 3, 1, {1, 3, 0, FINISH_LENGTH}, STREAM_ACCEPT, 0, 3, 1},
    {"end with overlap", 3, 1, {1, 2, 2, FINISH_STOP}, STREAM_ACCEPT, 1, 4, 1},
    {"end before what we hold", 3, 1, {1, 0, 2, FINISH_LENGTH}, STREAM_BROKEN, 0, 3, 1},
    {"error without a place", 3, 1, {1, 0, 0, FINISH_ERROR}, STREAM_ACCEPT, 0, 3, 1},
    {"nothing", 3, 1, {1, 3, 0, FINISH_NONE}, STREAM_DROP, 0, 3, 1},
    {"start near the type's end", 3, 1, {1, UINT32_MAX, 1, FINISH_NONE}, STREAM_RESUBMIT, 0, 3, 2},
};

static void test_items(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct item_case *c = &cases[i];
        struct stream_state s = {
            .phase = STREAM_OPEN, .attempt = c->attempt, .n_received = c->have};
        struct tokens_item t = {.attempt = c->item.attempt,
                                .start = c->item.start,
                                .ids = {NULL, c->item.n},
                                .finish = c->item.finish};
        uint32_t skip;
        enum stream_verdict v = stream_on_tokens(&s, &t, &skip);
        if (v != c->want || skip != c->skip || s.n_received != c->have_after ||
            s.attempt != c->attempt_after)
            fail_msg("%s: verdict %d skip %u have %u attempt %u", c->name, (int)v, skip,
                     s.n_received, s.attempt);
        assert_int_equal(s.phase == STREAM_WAITING, c->want == STREAM_RESUBMIT);
    }
}

static void test_link(void **state)
{
    struct stream_state s;
    stream_init(&s);
    /* the Submit was not sent, so the same attempt is still valid */
    assert_true(stream_link_up(&s));
    assert_int_equal(s.attempt, 1);
    stream_sent(&s);
    assert_true(stream_link_up(&s));
    assert_int_equal(s.attempt, 2);
    assert_true(stream_link_up(&s)); /* the link was lost again before the Submit was sent */
    assert_int_equal(s.attempt, 2);
    stream_sent(&s);
    stream_end(&s);
    assert_false(stream_link_up(&s));
    struct tokens_item t = {.attempt = 2, .ids = {NULL, 1}};
    uint32_t skip;
    assert_int_equal(stream_on_tokens(&s, &t, &skip), STREAM_DROP);
}

/* The accepted tokens are 0, 1, 2, … without a gap or a repetition, when items arrive in any
 * order, overlap or are lost. */
static void test_random_streams(void **state)
{
    struct rng rng = {20261121};
    for (int round = 0; round < 300; round++) {
        struct stream_state s;
        uint32_t next = 0;
        stream_init(&s);
        stream_sent(&s);
        for (int step = 0; step < 100; step++) {
            struct tokens_item t = {.attempt = (uint32_t)rng_below(&rng, s.attempt + 1),
                                    .start = (uint32_t)rng_below(&rng, s.n_received + 3),
                                    .ids = {NULL, (uint32_t)rng_below(&rng, 4)}};
            uint32_t skip;
            enum stream_verdict v = stream_on_tokens(&s, &t, &skip);
            if (v == STREAM_ACCEPT) {
                assert_int_equal(t.attempt, s.attempt);
                assert_int_equal(t.start + skip, next);
                next = t.start + t.ids.n;
            }
            assert_int_equal(s.n_received, next);
            if (s.phase == STREAM_WAITING)
                stream_sent(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_random_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
