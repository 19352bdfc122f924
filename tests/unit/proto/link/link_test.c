/* Tests sequence numbers and credit of a link. A link under load never stops for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "proto/link/link.h"

static struct frame_header header(enum msg_type t, uint64_t session, uint64_t seq)
{
    return (struct frame_header){
        .major = PROTOCOL_MAJOR, .type = t, .session = session, .seq = seq};
}

static enum status receive(struct link *l, enum msg_type t, uint64_t session, uint64_t seq)
{
    struct frame_header h = header(t, session, seq);
    struct error err;
    return link_received(l, &h, &err);
}

/* Opens both ends as head and peer do it. */
static void open_pair(struct link *head, struct link *peer, uint64_t window)
{
    link_init(peer, window);
    assert_int_equal(link_next_seq(peer), 1);
    assert_false(link_can_send(peer, 1));
    link_sent(peer, MSG_HELLO, 100);
    link_init(head, window);
    assert_int_equal(receive(head, MSG_HELLO, 0, 1), STATUS_OK);
    link_open(head, 42, window);
    assert_int_equal(link_next_seq(head), 1);
    link_sent(head, MSG_WELCOME, 60);
    assert_int_equal(receive(peer, MSG_WELCOME, 42, 1), STATUS_OK);
    link_open(peer, 42, window);
    assert_int_equal(link_next_seq(peer), 2);
    assert_int_equal(link_next_seq(head), 2);
}

static void test_sequence(void **state)
{
    static const struct {
        const char *name;
        enum msg_type type;
        uint64_t session, seq;
        enum status want;
    } cases[] = {
        {"next", MSG_SUBMIT, 42, 2, STATUS_OK},
        {"replayed", MSG_SUBMIT, 42, 1, STATUS_PROTOCOL},
        {"lost one", MSG_SUBMIT, 42, 3, STATUS_PROTOCOL},
        {"zero", MSG_SUBMIT, 42, 0, STATUS_PROTOCOL},
        {"other session", MSG_SUBMIT, 43, 2, STATUS_PROTOCOL},
        {"no session", MSG_SUBMIT, 0, 2, STATUS_PROTOCOL},
        {"a second hello", MSG_HELLO, 42, 2, STATUS_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct link head, peer;
        open_pair(&head, &peer, 1000);
        enum status got = receive(&head, cases[i].type, cases[i].session, cases[i].seq);
        if (got != cases[i].want)
            fail_msg("%s: %s", cases[i].name, status_name(got));
        /* A refused frame changes nothing. */
        assert_int_equal(head.seq_in, got == STATUS_OK ? 2 : 1);
    }
}

static void test_not_open(void **state)
{
    struct link l;
    link_init(&l, 1000);
    assert_int_equal(receive(&l, MSG_SUBMIT, 0, 1), STATUS_PROTOCOL);
    assert_int_equal(receive(&l, MSG_HEARTBEAT, 5, 1), STATUS_PROTOCOL);
    assert_int_equal(receive(&l, MSG_HELLO, 0, 2), STATUS_PROTOCOL);
    assert_int_equal(receive(&l, MSG_REFUSED, 0, 1), STATUS_OK);
}

static void test_credit(void **state)
{
    struct link head, peer;
    uint64_t back = 0;
    open_pair(&head, &peer, 1000);
    assert_true(link_can_send(&peer, 600));
    link_sent(&peer, MSG_SUBMIT, 600);
    /* More than half of the window is in flight, so the window is a hard bound. */
    assert_false(link_can_send(&peer, 401));
    assert_true(link_can_send(&peer, 400));
    link_sent(&peer, MSG_HEARTBEAT, 5000); /* heartbeats need no credit */
    assert_int_equal(peer.in_flight_out, 600);
    assert_false(link_consumed(&head, MSG_HEARTBEAT, 5000, &back));
    assert_true(link_consumed(&head, MSG_SUBMIT, 600, &back));
    assert_int_equal(back, 600);
    link_credit(&peer, back);
    assert_int_equal(peer.in_flight_out, 0);
    link_credit(&peer, UINT64_MAX); /* false credit does not enlarge the window */
    assert_int_equal(peer.in_flight_out, 0);
}

static void test_half_a_window_returns(void **state)
{
    struct link l;
    uint64_t back = 0;
    link_init(&l, 1000);
    link_open(&l, 1, 1000);
    assert_false(link_consumed(&l, MSG_TOKENS, 499, &back));
    assert_true(link_consumed(&l, MSG_TOKENS, 1, &back));
    assert_int_equal(back, 500);
    assert_false(link_consumed(&l, MSG_TOKENS, 499, &back));
}

static void test_oversize_frame_goes_alone(void **state)
{
    struct link l;
    link_init(&l, 0);
    link_open(&l, 1, 1000);
    assert_true(link_can_send(&l, 1u << 20));
    link_sent(&l, MSG_TOKENS, 1u << 20);
    assert_false(link_can_send(&l, 1));
    link_credit(&l, 1u << 20);
    assert_true(link_can_send(&l, 1));
    link_open(&l, 2, 0); /* a peer that grants no credit gets one frame at a time */
    assert_true(link_can_send(&l, 10));
    link_sent(&l, MSG_TOKENS, 10);
    assert_false(link_can_send(&l, 10));
}

/* The test sends random frames, some larger than the window, and the receiver consumes at random
 * times. Once all frames are consumed and all credit has arrived, the sender can send. The bytes
 * in flight stay bounded. */
static void test_never_stuck(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng r = {seed};
        struct link sender, receiver;
        uint64_t window = rng_below(&r, 5) ? 1 + rng_below(&r, 3000) : rng_below(&r, 3);
        uint64_t queue[4096], head = 0, tail = 0, out = 0;
        open_pair(&receiver, &sender, window);
        for (int i = 0; i < 2000; i++) {
            uint64_t n = 1 + rng_below(&r, rng_below(&r, 10) ? 200 : 5000), back;
            bool can = link_can_send(&sender, n);
            if (head == tail && !can)
                fail_msg("seed %llu: stuck with %llu of %llu out", (unsigned long long)seed,
                         (unsigned long long)sender.in_flight_out, (unsigned long long)window);
            if (can && rng_below(&r, 2)) {
                link_sent(&sender, MSG_TOKENS, n);
                queue[tail++] = n;
                out += n;
                assert_true(out <= window || out - n <= window / 2 + 1);
            }
            for (uint64_t k = rng_below(&r, 3); k > 0 && head < tail; k--) {
                uint64_t size = queue[head++];
                out -= size;
                if (link_consumed(&receiver, MSG_TOKENS, size, &back))
                    link_credit(&sender, back);
            }
        }
    }
}

static void test_free_types(void **state)
{
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++) {
        bool want = t == MSG_HELLO || t == MSG_WELCOME || t == MSG_REFUSED || t == MSG_HEARTBEAT ||
                    t == MSG_CREDIT || t == MSG_GOODBYE || t == MSG_ABORT;
        assert_int_equal(link_is_free((enum msg_type)t), want);
    }
}

/* Each frame states the minor version of its sender, from the first frame on. */
static void test_types_of_a_newer_minor(void **state)
{
    for (unsigned minor = 0; minor <= PROTOCOL_MINOR + 1; minor++) {
        struct link peer;
        struct frame_header h = header(MSG_WELCOME, 42, 1);
        link_init(&peer, 1000);
        h.minor = (uint8_t)minor;
        assert_int_equal(link_received(&peer, &h, NULL), STATUS_OK);
        link_open(&peer, 42, 1000);
        assert_true(link_has_type(&peer, MSG_PLAN));
        assert_int_equal(link_has_type(&peer, MSG_KV_TRANSFER), minor >= 1);
        assert_false(link_has_type(&peer, MSG_TYPE_COUNT));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_not_open),
        cmocka_unit_test(test_credit),
        cmocka_unit_test(test_half_a_window_returns),
        cmocka_unit_test(test_oversize_frame_goes_alone),
        cmocka_unit_test(test_never_stuck),
        cmocka_unit_test(test_free_types),
        cmocka_unit_test(test_types_of_a_newer_minor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
