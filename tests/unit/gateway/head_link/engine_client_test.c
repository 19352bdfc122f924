/* Tests the gateway's link to the head. The head is a `struct link` and the codec in this file:
 * `head_send` encodes a message for the client, and the client's frames are decoded in the test.
 * `pass` moves the clock and calls the tick. Invariants: a silent head loses the link, and a
 * late loop of the gateway itself does not count as silence. Frames with a wrong session or
 * sequence number have no effect on the requests. */
#include "gateway/head_link/engine_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

struct head {
    struct engine_client c;
    struct link link; /* head's end of the link */
    bool connected, refuse;
    uint64_t session, window, now_ns;
    struct arena arena, scratch;
    struct strbuf frame;
    uint32_t n_hellos, n_submits, n_heartbeats, n_credits, n_reconnects;
    uint64_t last_term_seen;
    int link_ups, link_downs;
    uint32_t n_tokens, n_clusters, n_writable, n_refusals;
    enum status refused;
    bool has_vocabulary;
    uint32_t quiet_ms, next_in_ms; /* in the Welcome; in the last heartbeat of the client */
};

static struct head h;

static void head_send(const struct msg *m)
{
    strbuf_reset(&h.frame);
    assert_int_equal(codec_encode(m, h.link.session, link_next_seq(&h.link), &h.scratch, &h.frame),
                     STATUS_OK);
    link_sent(&h.link, m->type, h.frame.len);
    struct strbuf copy; /* copy of the frame, because the client's answer may overwrite h.frame */
    strbuf_init(&copy, 0);
    strbuf_append_str(&copy, strbuf_str(&h.frame));
    engine_client_on_frame(&h.c, strbuf_str(&copy), h.now_ns);
    strbuf_fini(&copy);
}

static enum status head_takes(void *ctx, struct str frame)
{
    struct frame_header header;
    struct error err;
    struct msg m;
    if (!h.connected)
        return STATUS_AGAIN;
    arena_reset(&h.arena);
    assert_int_equal(frame_parse_header(frame, &header, &err), STATUS_OK);
    assert_int_equal(codec_decode(frame, &header, &h.arena, &m, &err), STATUS_OK);
    if (m.type == MSG_HELLO) {
        h.n_hellos++;
        h.last_term_seen = m.hello.term_seen;
        h.has_vocabulary = m.hello.has_vocabulary && m.hello.vocabulary.n_tokens == 77;
        assert_int_equal(header.session, 0);
        assert_int_equal(header.seq, 1);
        assert_int_equal(m.hello.role, ROLE_GATEWAY);
        link_init(&h.link, h.window);
        link_open(&h.link, ++h.session, m.hello.credit_bytes);
        return STATUS_OK;
    }
    assert_int_equal(link_received(&h.link, &header, &err), STATUS_OK);
    h.n_submits += m.type == MSG_SUBMIT;
    h.n_heartbeats += m.type == MSG_HEARTBEAT;
    if (m.type == MSG_HEARTBEAT)
        h.next_in_ms = m.heartbeat.next_in_ms;
    h.n_credits += m.type == MSG_CREDIT;
    return STATUS_OK;
}

static void welcome(void)
{
    struct msg m = {.type = MSG_WELCOME,
                    .welcome = {.session = h.link.session,
                                .head_instance = 9,
                                .term = 3,
                                .credit_bytes = h.window,
                                .heartbeat_ms = 250,
                                .suspect_ms = 1000,
                                .quiet_ms = h.quiet_ms,
                                .version = STR("x")}};
    head_send(&m);
}

static void count_reconnect(void *ctx)
{
    h.n_reconnects++;
}

static void on_link(void *ctx, bool up)
{
    h.link_ups += up;
    h.link_downs += !up;
}

static void on_refused(void *ctx, enum status status)
{
    h.refused = status;
    h.n_refusals++;
}

static void on_tokens(void *ctx, const struct msg_tokens *m)
{
    h.n_tokens += m->n_items;
}

static void on_cluster(void *ctx, const struct msg_cluster *m)
{
    h.n_clusters++;
}

static void on_writable(void *ctx)
{
    h.n_writable++;
}

static int setup(void **state)
{
    h = (struct head){.connected = true, .window = 4096, .now_ns = 1000 * MS};
    struct engine_options o = {.node = "here", .instance = 7, .credit_bytes = 1000};
    struct engine_io io = {NULL, head_takes, count_reconnect};
    struct engine_events ev = {.on_link = on_link,
                               .on_refused = on_refused,
                               .on_tokens = on_tokens,
                               .on_cluster = on_cluster,
                               .on_writable = on_writable};
    arena_init(&h.arena, 0);
    arena_init(&h.scratch, 0);
    strbuf_init(&h.frame, 0);
    engine_client_init(&h.c, &o, &io, &ev, h.now_ns);
    return 0;
}

static int teardown(void **state)
{
    engine_client_fini(&h.c);
    arena_fini(&h.arena);
    arena_fini(&h.scratch);
    strbuf_fini(&h.frame);
    return 0;
}

static void pass(uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 50) {
        h.now_ns += 50 * MS;
        engine_client_tick(&h.c, h.now_ns);
    }
}

static void heartbeat(void)
{
    struct msg m = {.type = MSG_HEARTBEAT, .heartbeat = {.time_ns = 1}};
    head_send(&m);
}

static struct msg submit(const uint32_t *ids, uint32_t n)
{
    return (struct msg){.type = MSG_SUBMIT,
                        .submit = {.id = {1, 2},
                                   .attempt = 1,
                                   .n_prompt = n,
                                   .ids = {ids, n},
                                   .sampling = {.top_p = 1,
                                                .repetition_penalty = 1,
                                                .n_logprobs = -1,
                                                .n_prompt_logprobs = -1,
                                                .max_tokens = 5}}};
}

static void test_opening(void **state)
{
    uint32_t ids[] = {1};
    struct msg m = submit(ids, 1);
    h.connected = false;
    pass(100);
    assert_int_equal(h.n_hellos, 0);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_AGAIN);
    h.connected = true;
    engine_client_on_connection(&h.c, true, "", h.now_ns);
    pass(100);
    assert_int_equal(h.n_hellos, 1);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_AGAIN); /* there is no Welcome yet */
    welcome();
    assert_int_equal(h.link_ups, 1);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_OK);
    assert_int_equal(h.n_submits, 1);
    for (int i = 0; i < 10; i++) {
        pass(200);
        heartbeat();
    }
    assert_true(h.n_heartbeats >= 6);
    assert_int_equal(h.link_downs, 0);
}

static void test_silence(void **state)
{
    pass(50);
    welcome();
    pass(1450);
    assert_int_equal(h.link_downs, 0);
    pass(200);
    assert_int_equal(h.link_downs, 1);
    assert_int_equal(h.n_reconnects, 1);
    assert_int_equal(h.n_hellos, 2); /* the client sends a new Hello at once */
    assert_int_equal(h.last_term_seen, 3);
    pass(1600);
    assert_int_equal(h.n_reconnects, 2); /* without a Welcome the client connects again */
    assert_int_equal(h.link_downs, 1);
    pass(100);
    assert_int_equal(h.n_hellos, 3);
    welcome();
    assert_int_equal(h.link_ups, 2);
}

static void test_own_stall_is_no_silence(void **state)
{
    pass(50);
    welcome();
    /* the gateway's own loop has stopped, and the head's frames wait in the socket */
    h.now_ns += 10000 * MS;
    engine_client_tick(&h.c, h.now_ns);
    assert_int_equal(h.link_downs, 0);
    pass(1600);
    assert_int_equal(h.link_downs, 1);
}

/* On a busy machine every tick is late. The normal part of each delay counts as silence, and the
 * rest does not. */
static void test_a_loop_that_is_always_late(void **state)
{
    pass(50);
    welcome();
    for (int i = 0; i < 3; i++) {
        h.now_ns += 600 * MS;
        engine_client_tick(&h.c, h.now_ns);
    }
    /* the silence is about 1.5 s now, and the next two ticks must detect it */
    assert_int_equal(h.link_downs, 0);
    for (int i = 0; i < 2; i++) {
        h.now_ns += 600 * MS;
        engine_client_tick(&h.c, h.now_ns);
    }
    assert_int_equal(h.link_downs, 1);
}

/* A late loop detects a silent head also before the Welcome. */
static void test_a_late_loop_without_an_answer(void **state)
{
    pass(50);
    assert_int_equal(h.n_hellos, 1);
    for (int i = 0; i < 6; i++) {
        h.now_ns += 600 * MS;
        engine_client_tick(&h.c, h.now_ns);
    }
    assert_true(h.n_hellos >= 2 || h.n_reconnects >= 1);
}

/* Opens a link of a head that allows quiet links, and lets the link become quiet. */
static void become_quiet(void)
{
    h.quiet_ms = 2000;
    pass(50);
    welcome();
    for (int i = 0; i < 6; i++) {
        heartbeat();
        pass(250);
    }
    assert_true(h.c.is_quiet);
    assert_int_equal(h.next_in_ms, 2000);
    heartbeat();
    h.n_heartbeats = 0;
}

/* A link without requests sends a heartbeat every two seconds, and allows the head as much. */
static void test_a_quiet_link(void **state)
{
    become_quiet();
    for (int i = 0; i < 5; i++) {
        pass(2000);
        heartbeat();
    }
    assert_in_range(h.n_heartbeats, 4, 5);
    pass(3400);
    assert_int_equal(h.link_downs, 0);
    pass(200);
    assert_int_equal(h.link_downs, 1);
}

/* A head that announces no quiet time, such as an older one, hears the usual heartbeats. */
static void test_an_older_head_is_never_quiet(void **state)
{
    pass(50);
    welcome();
    for (int i = 0; i < 12; i++) {
        heartbeat();
        pass(250);
        assert_int_equal(h.next_in_ms, 0);
    }
    assert_in_range(h.n_heartbeats, 11, 12);
}

/* A request on a quiet link sends a heartbeat before itself. From then on the head has the usual
 * time, and does not get it again by further requests that come and go. */
static void test_a_request_ends_the_quiet(void **state)
{
    const uint32_t ids[] = {1};
    const struct msg m = submit(ids, 1);
    become_quiet();
    pass(1000);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_OK);
    assert_int_equal(h.n_heartbeats, 1);
    assert_int_equal(h.next_in_ms, 0);
    pass(1200);
    assert_false(h.c.is_quiet); /* the head was not heard */
    assert_true(h.n_heartbeats >= 4);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_OK);
    assert_int_equal(h.link_downs, 0);
    pass(400);
    assert_int_equal(h.link_downs, 1);
}

/* A request that waits in the gateway ends the quiet too, and keeps the link from it. */
static void test_open_requests_keep_the_link_awake(void **state)
{
    become_quiet();
    h.c.in_use = true;
    pass(50);
    assert_int_equal(h.n_heartbeats, 1);
    for (int i = 0; i < 12; i++) {
        heartbeat();
        pass(250);
    }
    assert_in_range(h.n_heartbeats, 12, 13);
    assert_int_equal(h.next_in_ms, 0);
}

/* When the connection is lost, the usual time applies, as without the quiet. */
static void test_a_lost_connection_ends_the_quiet(void **state)
{
    become_quiet();
    h.connected = false;
    engine_client_on_connection(&h.c, false, "gone", h.now_ns);
    pass(1400);
    assert_int_equal(h.link_downs, 0);
    pass(200);
    assert_int_equal(h.link_downs, 1);
}

static void test_wrong_number(void **state)
{
    pass(50);
    welcome();
    h.link.seq_out++; /* the sequence number skips a frame, as if it were lost */
    heartbeat();
    assert_int_equal(h.link_downs, 1);
    assert_int_equal(h.n_reconnects, 1);
}

static void test_replayed_frame(void **state)
{
    pass(50);
    welcome();
    heartbeat();
    h.link.seq_out--;
    heartbeat();
    assert_int_equal(h.link_downs, 1);
}

static void test_foreign_session_is_dropped(void **state)
{
    pass(50);
    welcome();
    uint64_t session = h.link.session;
    h.link.session = 12345;
    heartbeat();
    h.link.session = session;
    h.link.seq_out--;
    assert_int_equal(h.c.n_dropped, 1);
    heartbeat();
    assert_int_equal(h.link_downs, 0);
}

static void test_new_connection_is_a_new_session(void **state)
{
    pass(50);
    welcome();
    /* this event of the first connection is late */
    engine_client_on_connection(&h.c, true, "", h.now_ns);
    assert_int_equal(h.link_downs, 0);
    engine_client_on_connection(&h.c, false, "gone", h.now_ns);
    assert_int_equal(h.link_downs, 0); /* only missing heartbeats end the link */
    engine_client_on_connection(&h.c, true, "", h.now_ns);
    assert_int_equal(h.link_downs, 1);
    assert_int_equal(h.n_hellos, 2);
    welcome();
    assert_int_equal(h.link_ups, 2);
    assert_int_equal(h.n_reconnects, 0);
}

static void test_refused(void **state)
{
    pass(50);
    h.link.session = 0;
    struct msg m = {.type = MSG_REFUSED,
                    .refused = {.status = STATUS_VERSION, .text = STR("3.0 is spoken here")}};
    head_send(&m);
    assert_int_equal(h.n_reconnects, 1);
    assert_int_equal(h.link_ups, 0);
    pass(3000);
    /* the client tries again, because another head may have started */
    assert_true(h.n_hellos >= 2);
}

/* `on_refused` is called once when the gateway is refused, and once when the refusal ends. */
static void test_refusals_are_told(void **state)
{
    static const struct vocabulary ours = {.n_tokens = 77};
    struct msg m = {.type = MSG_REFUSED,
                    .refused = {.status = STATUS_UNSUPPORTED, .text = STR("other tokens")}};
    h.c.o.vocabulary = &ours;
    for (int i = 0; i < 2; i++) {
        pass(300);
        h.link.session = 0;
        head_send(&m);
        assert_int_equal(h.refused, STATUS_UNSUPPORTED);
        assert_int_equal(h.n_refusals, 1);
    }
    assert_true(h.has_vocabulary);
    assert_string_equal(h.c.why_refused, "other tokens");
    pass(300);
    welcome();
    assert_int_equal(h.refused, STATUS_OK);
    assert_int_equal(h.n_refusals, 2);
}

/* The refusal ends when the head cannot be reached. */
static void test_a_refusal_ends_with_silence(void **state)
{
    struct msg m = {.type = MSG_REFUSED, .refused = {.status = STATUS_UNSUPPORTED}};
    pass(50);
    h.link.session = 0;
    head_send(&m);
    assert_int_equal(h.refused, STATUS_UNSUPPORTED);
    pass(4000); /* the next Hello gets no answer */
    assert_int_equal(h.refused, STATUS_OK);
}

/* With several heads, the client tries the next address at once. Requests at a head that has
 * disappeared are already lost. */
static void test_several_heads(void **state)
{
    h.c.o.several = true;
    engine_client_tick(&h.c, h.now_ns);
    welcome();
    assert_int_equal(h.n_reconnects, 0);
    h.connected = false;
    engine_client_on_connection(&h.c, false, "lost", h.now_ns);
    pass(150);
    assert_int_equal(h.n_reconnects, 1); /* the reconnect happens before 1.5 s of silence */
    pass(400);
    assert_int_equal(h.n_reconnects, 1); /* the next head has 0.5 s to answer */
    pass(250);
    assert_int_equal(h.n_reconnects, 2);
    /* a refused connection ends the wait */
    engine_client_on_connection(&h.c, false, "nobody there", h.now_ns);
    pass(150);
    assert_int_equal(h.n_reconnects, 3);
    assert_int_equal(h.link_downs, 0);
    h.connected = true;
    engine_client_on_connection(&h.c, true, "", h.now_ns);
    assert_int_equal(h.link_downs, 1);
    welcome();
    assert_int_equal(h.link_ups, 2);
    pass(1000);
    assert_int_equal(h.n_reconnects, 3);
}

/* The Welcome of a head with an older term is ignored. Term 0 = the head has no term yet. */
static void test_a_head_of_an_older_term(void **state)
{
    engine_client_tick(&h.c, h.now_ns);
    h.c.term_seen = 4;
    welcome(); /* a head of term 3 sends this Welcome */
    assert_int_equal(h.link_ups, 0);
    assert_int_equal(h.n_reconnects, 1);
    h.c.term_seen = 3;
    pass(200);
    welcome();
    assert_int_equal(h.link_ups, 1);
}

static void test_credit(void **state)
{
    /* ids of a message of about 1.5 KB: half the window fits two messages, not three */
    static uint32_t ids[375];
    struct msg m = submit(ids, 375);
    pass(50);
    welcome();
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_OK);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_OK);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_AGAIN);
    struct msg credit = {.type = MSG_CREDIT, .credit = {.bytes = 3200}};
    head_send(&credit);
    assert_int_equal(h.n_writable, 1);
    assert_int_equal(engine_client_send(&h.c, &m), STATUS_OK);
    /* In the other direction, the client returns credit after each half window of Tokens. */
    struct tokens_item item = {.id = {1, 2}, .attempt = 1, .ids = {ids, 75}};
    struct msg tokens = {.type = MSG_TOKENS, .tokens = {.items = &item, .n_items = 1}};
    head_send(&tokens);
    assert_int_equal(h.n_credits, 0);
    head_send(&tokens);
    assert_int_equal(h.n_credits, 1);
    assert_int_equal(h.n_tokens, 2);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_opening),
        TEST(test_silence),
        TEST(test_own_stall_is_no_silence),
        TEST(test_a_loop_that_is_always_late),
        TEST(test_a_late_loop_without_an_answer),
        TEST(test_a_quiet_link),
        TEST(test_an_older_head_is_never_quiet),
        TEST(test_a_request_ends_the_quiet),
        TEST(test_open_requests_keep_the_link_awake),
        TEST(test_a_lost_connection_ends_the_quiet),
        TEST(test_wrong_number),
        TEST(test_replayed_frame),
        TEST(test_foreign_session_is_dropped),
        TEST(test_new_connection_is_a_new_session),
        TEST(test_refused),
        TEST(test_refusals_are_told),
        TEST(test_a_refusal_ends_with_silence),
        TEST(test_credit),
        TEST(test_several_heads),
        TEST(test_a_head_of_an_older_term),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
