/* Tests the sessions between the head and its peers. Scripted peers (`core_fixture.h`) send
 * frames with chosen keys, roles, sessions and sequence numbers. The tests read which peers the
 * head accepts, which frames break a session, and when a silent peer counts as lost. Time
 * advances only by the fixture. All tests run on one thread. */
#include <stdio.h>

#include "tests/unit/head/core/core_fixture.h"

static void hello_is_welcomed_and_numbered(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    assert_int_equal(f->box[0].m.type, MSG_WELCOME);
    assert_int_equal(f->box[0].h.seq, 1);
    assert_true(f->box[0].h.session != 0);
    assert_int_equal(f->box[1].m.type, MSG_CLUSTER);
    assert_int_equal(f->box[1].h.seq, 2);
    fixture_free(f);
}

static void another_major_version_is_refused_by_name(void **state)
{
    struct fixture *f = fixture_new(2);
    char frame[FRAME_HEADER_BYTES] = {'C', 'X', 9, 0, MSG_HELLO};
    frame[16] = 1;
    head_core_on_frame(f->core, addr_of(3), ROLE_NONE, "", (struct str){frame, sizeof frame},
                       f->now);
    const struct msg *m = box_find(f, 3, MSG_REFUSED);
    assert_non_null(m);
    assert_int_equal(m->refused.status, STATUS_VERSION);
    fixture_free(f);
}

/* The role in a Hello must be the role of the key. Each row has the role of the key, the role in
 * the Hello, --insecure, and whether the head accepts it. */
static void the_role_must_be_the_keys(void **state)
{
    static const struct {
        enum peer_role key, said;
        bool insecure, ok;
    } cases[] = {
        {ROLE_GATEWAY, ROLE_GATEWAY, false, true},   {ROLE_WORKER, ROLE_GATEWAY, false, false},
        {ROLE_OPERATOR, ROLE_GATEWAY, false, false}, {ROLE_NONE, ROLE_GATEWAY, false, false},
        {ROLE_NONE, ROLE_GATEWAY, true, true},       {ROLE_WORKER, ROLE_GATEWAY, true, false},
        {ROLE_NONE, ROLE_HEAD, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(2);
        f->core->peers.config.insecure = cases[i].insecure;
        struct msg m = {.type = MSG_HELLO,
                        .hello = {.instance = 5, .role = cases[i].said, .credit_bytes = 1 << 20}};
        struct strbuf b;
        struct arena scratch;
        strbuf_init(&b, 0);
        arena_init(&scratch, 0);
        if (codec_encode(&m, 0, 1, &scratch, &b) == STATUS_OK)
            head_core_on_frame(f->core, addr_of(3), cases[i].key, "", strbuf_str(&b), f->now);
        if (cases[i].ok != (box_find(f, 3, MSG_WELCOME) != NULL))
            fail_msg("case %zu", i);
        strbuf_fini(&b);
        arena_fini(&scratch);
        fixture_free(f);
    }
}

static void say_hello_with_key(struct fixture *f, uint8_t at, const char *key)
{
    struct msg m = {.type = MSG_HELLO,
                    .hello = {.instance = 5, .role = ROLE_GATEWAY, .credit_bytes = 1 << 20}};
    struct strbuf b;
    struct arena scratch;
    strbuf_init(&b, 0);
    arena_init(&scratch, 0);
    box_clear(f);
    if (codec_encode(&m, 0, 1, &scratch, &b) == STATUS_OK)
        head_core_on_frame(f->core, addr_of(at), ROLE_GATEWAY, key, strbuf_str(&b), f->now);
    strbuf_fini(&b);
    arena_fini(&scratch);
}

/* A key is removed. Its session ends, and its connection, which still exists, opens no other
 * session. The same instance may connect at once with the next key. */
static void a_key_that_is_taken_off_ends_its_session(void **state)
{
    struct fixture *f = fixture_new(2);
    struct authorized a = {.n_entries = 2};
    a.entries = mem_array(2, sizeof *a.entries);
    a.entries[0].role = a.entries[1].role = ROLE_GATEWAY;
    snprintf(a.entries[0].public_key, sizeof a.entries[0].public_key, "old");
    snprintf(a.entries[1].public_key, sizeof a.entries[1].public_key, "new");
    head_core_authorize(f->core, &a, f->now);
    say_hello_with_key(f, 3, "old");
    assert_non_null(box_find(f, 3, MSG_WELCOME));
    say_hello_with_key(f, 4, "new"); /* a session of a valid key cannot be taken over */
    assert_int_equal(box_find(f, 4, MSG_REFUSED)->refused.status, STATUS_EXISTS);
    box_clear(f);
    a.entries[0] = a.entries[--a.n_entries];
    head_core_authorize(f->core, &a, f->now);
    assert_non_null(box_find(f, 3, MSG_GOODBYE));
    assert_false(f->core->peers.all[0]->open);
    say_hello_with_key(f, 3, "old");
    assert_null(box_find(f, 3, MSG_WELCOME));
    assert_int_equal(box_find(f, 3, MSG_REFUSED)->refused.status, STATUS_CLOSED);
    say_hello_with_key(f, 4, "new");
    assert_non_null(box_find(f, 4, MSG_WELCOME));
    assert_int_equal(f->core->peers.n, 1);
    a.entries[0].role = ROLE_WORKER; /* the same key with another role is another key */
    head_core_authorize(f->core, &a, f->now);
    assert_false(f->core->peers.all[0]->open);
    fixture_free(f);
    authorized_fini(&a);
}

static void frames_of_an_unknown_session_are_dropped(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    struct msg m = {.type = MSG_HEARTBEAT};
    frame_raw(f, 3, &m, f->links[3].session + 1, 2);
    /* the frame has the right session but comes from the wrong connection */
    frame_raw(f, 4, &m, f->links[3].session, 2);
    assert_int_equal(f->core->peers.n_unknown_session, 2);
    beat(f, 3);
    assert_int_equal(f->core->peers.n_broken, 0);
    fixture_free(f);
}

static void a_wrong_sequence_number_closes_the_session(void **state)
{
    for (int skip = 0; skip < 2; skip++) {
        struct fixture *f = fixture_new(2);
        say_gateway_hello(f, 3, 9);
        struct msg m = {.type = MSG_HEARTBEAT};
        frame_raw(f, 3, &m, f->links[3].session, skip ? 3 : 1);
        assert_int_equal(f->core->peers.n_broken, 1);
        assert_non_null(box_find(f, 3, MSG_GOODBYE));
        frame_raw(f, 3, &m, f->links[3].session, 2);
        assert_int_equal(f->core->peers.n_unknown_session, 1);
        fixture_free(f);
    }
}

static void a_message_of_another_role_closes_the_session(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    struct msg m = {.type = MSG_ABORTED, .aborted = {.term_epoch = 1}};
    say(f, 3, &m);
    assert_int_equal(f->core->peers.n_broken, 1);
    const struct msg *bye = box_find(f, 3, MSG_GOODBYE);
    assert_non_null(bye);
    assert_true(str_eq_c(bye->goodbye.text, "a gateway must not send the message aborted"));
    fixture_free(f);
}

static void a_malformed_header_closes_the_session(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    char frame[FRAME_HEADER_BYTES] = {'C', 'X', PROTOCOL_MAJOR, 0, (char)200};
    head_core_on_frame(f->core, addr_of(3), ROLE_NONE, "", (struct str){frame, sizeof frame},
                       f->now);
    assert_non_null(box_find(f, 3, MSG_GOODBYE));
    head_core_on_frame(f->core, addr_of(4), ROLE_NONE, "", (struct str){frame, sizeof frame},
                       f->now);
    assert_null(box_find(f, 4, MSG_GOODBYE)); /* an unknown peer gets no answer */
    assert_int_equal(f->core->peers.n_malformed, 2);
    fixture_free(f);
}

/* The head frees the memory that a large frame took. */
static void a_large_frame_leaves_no_memory_behind(void **state)
{
    struct fixture *f = fixture_new(2);
    static uint32_t ids[1 << 20];
    say_gateway_hello(f, 3, 9);
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.attempt = 1, .n_prompt = 1 << 20, .ids = {ids, 1 << 20}}};
    say(f, 3, &m);
    assert_true(f->core->peers.decode.first != NULL);
    wait_ms(f, 50, 0);
    assert_true(f->core->peers.decode.first == NULL);
    fixture_free(f);
}

static void an_instance_keeps_its_identity_and_its_key(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    say_gateway_hello(f, 4, 9);
    assert_int_equal(f->core->n_gateways, 1);
    assert_int_equal(f->core->peers.n, 1);
    snprintf(f->core->peers.all[0]->key, 41, "somebody");
    say_gateway_hello(f, 5, 9);
    assert_non_null(box_find(f, 5, MSG_REFUSED));
    fixture_free(f);
}

/* The worker retries twice a second, and its refusals must not fill up the events. */
static void the_same_refusal_is_told_once_a_minute(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg m = worker_hello(7, -1);
    m.hello.worker.tp = 1;
    uint64_t before = f->core->events.next_seq;
    for (int i = 0; i < 5; i++)
        say(f, 3, &m);
    assert_int_equal(f->core->peers.n_refused, 5);
    assert_int_equal(f->core->events.next_seq - before, 1);
    f->now += 61 * NS_PER_S;
    say(f, 3, &m);
    assert_int_equal(f->core->events.next_seq - before, 2);
    fixture_free(f);
}

static void the_table_is_bounded(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint8_t i = 0; i < 9; i++)
        say_gateway_hello(f, i, 50 + i);
    assert_non_null(box_find(f, 7, MSG_WELCOME));
    const struct msg *m = box_find(f, 8, MSG_REFUSED);
    assert_non_null(m);
    assert_int_equal(m->refused.status, STATUS_LIMIT);
    fixture_free(f);
}

static void silence_makes_suspect_then_lost(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg hello = worker_hello(101, 0);
    say(f, 1, &hello);
    wait_ms(f, 950, 0);
    assert_false(f->core->peers.all[0]->suspect);
    wait_ms(f, 50, 0);
    assert_true(f->core->peers.all[0]->suspect);
    wait_ms(f, 500, 0);
    /* The head keeps the worker until it has read all frames that arrived. */
    assert_int_equal(f->core->cluster.n_workers, 1);
    wait_ms(f, 50, 0);
    assert_int_equal(f->core->cluster.n_workers, 0);
    assert_int_equal(f->core->peers.n, 0);
    fixture_free(f);
}

/* Returns the number of the head's heartbeats to the connection. */
static uint32_t n_heartbeats(const struct fixture *f, uint8_t conn)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_box; i++)
        n += f->box[i].to == conn && f->box[i].m.type == MSG_HEARTBEAT;
    return n;
}

static void say_next_in(struct fixture *f, uint8_t conn, uint32_t ms)
{
    say(f, conn, &(struct msg){.type = MSG_HEARTBEAT, .heartbeat = {.next_in_ms = ms}});
}

/* A gateway may announce a longer time to its next heartbeat. The head then waits longer, and sends
 * as seldom, until the next heartbeat. A longer time than the head allows counts as that time. */
static void a_quiet_gateway_is_heard_seldom(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    assert_int_equal(box_find(f, 3, MSG_WELCOME)->welcome.quiet_ms, 2000);
    const struct peer *x = f->core->peers.all[0];
    say_next_in(f, 3, 1000000000);
    box_clear(f);
    wait_ms(f, 2950, 0);
    assert_false(x->suspect);
    assert_int_equal(n_heartbeats(f, 3), 1);
    wait_ms(f, 100, 0);
    assert_true(x->suspect);
    say_next_in(f, 3, 0);
    assert_false(x->suspect);
    box_clear(f);
    wait_ms(f, 950, 0);
    assert_false(x->suspect);
    assert_in_range(n_heartbeats(f, 3), 3, 4);
    wait_ms(f, 600, 0);
    assert_int_equal(f->core->peers.n, 0); /* lost after the usual 1.5 s */
    fixture_free(f);
}

/* A worker computes for others, so it is never quiet. */
static void a_worker_is_never_quiet(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg hello = worker_hello(101, 0);
    say(f, 1, &hello);
    assert_int_equal(box_find(f, 1, MSG_WELCOME)->welcome.quiet_ms, 0);
    say_next_in(f, 1, 2000);
    wait_ms(f, 1550, 0);
    assert_int_equal(f->core->cluster.n_workers, 0);
    fixture_free(f);
}

/* A tick is late and finds a long silence, while frames are still unread. The delay is too short
 * to count as a stall of the head. */
static void a_late_tick_reads_before_it_blames(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg hello = worker_hello(101, 0);
    say(f, 1, &hello);
    for (int i = 0; i < 50; i++) {
        wait_ms(f, 1100, 0);
        f->now += 450 * MS; /* heartbeats of the worker arrive in this time */
        head_core_tick(f->core, f->now);
        assert_int_equal(f->core->cluster.n_workers, 1);
        beat(f, 1);
        wait_ms(f, 50, 0);
        assert_int_equal(f->core->cluster.n_workers, 1);
        beat(f, 1);
    }
    fixture_free(f);
}

static void nobody_is_blamed_while_the_head_stood_still(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg hello = worker_hello(101, 0);
    say(f, 1, &hello);
    wait_ms(f, 100, 0);
    f->now += 30 * NS_PER_S;
    head_core_tick(f->core, f->now);
    assert_int_equal(f->core->cluster.n_workers, 1);
    wait_ms(f, 1550, 0);
    assert_int_equal(f->core->cluster.n_workers, 0);
    fixture_free(f);
}

static void heartbeats_go_out_four_times_a_second(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    box_clear(f);
    wait_ms(f, 1000, 1u << 3);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_box; i++)
        n += f->box[i].m.type == MSG_HEARTBEAT;
    assert_int_equal(n, 4);
    fixture_free(f);
}

static void who_hears_of_us_anyway_gets_no_heartbeat(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    struct peer *gateway = peers_find_instance(&f->core->peers, ROLE_GATEWAY, 9);
    assert_non_null(gateway);
    box_clear(f);
    for (int i = 0; i < 10; i++) {
        struct msg m = {.type = MSG_CREDIT, .credit = {.bytes = 1}};
        assert_int_equal(peers_send(&f->core->peers, gateway, &m), STATUS_OK);
        wait_ms(f, 200, 1u << 3);
    }
    assert_null(box_find(f, 3, MSG_HEARTBEAT));
    wait_ms(f, 100, 1u << 3);
    assert_non_null(box_find(f, 3, MSG_HEARTBEAT));
    fixture_free(f);
}

/* A peer is never sent a message type that is newer than its version. Each row has the minor
 * version of its Hello and the status for a type of minor version 1. The session continues in
 * both cases. */
static void nobody_is_sent_a_type_that_its_version_has_not(void **state)
{
    static const struct {
        uint8_t minor;
        enum status want;
    } cases[] = {{0, STATUS_UNSUPPORTED}, {1, STATUS_OK}, {PROTOCOL_MINOR + 1, STATUS_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(2);
        struct msg hello = worker_hello(7, 0);
        struct strbuf b;
        struct arena scratch;
        strbuf_init(&b, 0);
        arena_init(&scratch, 0);
        assert_int_equal(codec_encode(&hello, 0, 1, &scratch, &b), STATUS_OK);
        b.ptr[3] = (char)cases[i].minor;
        head_core_on_frame(f->core, addr_of(3), ROLE_WORKER, "", strbuf_str(&b), f->now);
        assert_int_equal(f->core->peers.n, 1);
        struct peer *p = f->core->peers.all[0];
        uint64_t seq = p->link.seq_out;
        struct msg transfer = {.type = MSG_KV_TRANSFER,
                               .kv_transfer = {.term_epoch = 1,
                                               .id = 1,
                                               .from_address = STR("h:1"),
                                               .to_address = STR("h:2"),
                                               .comm_id = {(const uint8_t *)"id", 2},
                                               .blocks = {&(uint32_t){3}, 1}}};
        assert_int_equal(peers_send(&f->core->peers, p, &transfer), cases[i].want);
        assert_int_equal(p->link.seq_out - seq, cases[i].want == STATUS_OK);
        assert_true(p->open);
        strbuf_fini(&b);
        arena_fini(&scratch);
        fixture_free(f);
    }
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_is_welcomed_and_numbered),
        cmocka_unit_test(another_major_version_is_refused_by_name),
        cmocka_unit_test(the_role_must_be_the_keys),
        cmocka_unit_test(a_key_that_is_taken_off_ends_its_session),
        cmocka_unit_test(frames_of_an_unknown_session_are_dropped),
        cmocka_unit_test(a_wrong_sequence_number_closes_the_session),
        cmocka_unit_test(a_message_of_another_role_closes_the_session),
        cmocka_unit_test(a_malformed_header_closes_the_session),
        cmocka_unit_test(a_large_frame_leaves_no_memory_behind),
        cmocka_unit_test(an_instance_keeps_its_identity_and_its_key),
        cmocka_unit_test(the_same_refusal_is_told_once_a_minute),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(silence_makes_suspect_then_lost),
        cmocka_unit_test(a_quiet_gateway_is_heard_seldom),
        cmocka_unit_test(a_worker_is_never_quiet),
        cmocka_unit_test(a_late_tick_reads_before_it_blames),
        cmocka_unit_test(nobody_is_blamed_while_the_head_stood_still),
        cmocka_unit_test(heartbeats_go_out_four_times_a_second),
        cmocka_unit_test(who_hears_of_us_anyway_gets_no_heartbeat),
        cmocka_unit_test(nobody_is_sent_a_type_that_its_version_has_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
