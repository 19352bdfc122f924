/* Tests replicas with fewer ranks than TP when a new head starts: which of them are adopted, and
 * what happens to the ranks of the others. */
#include "tests/unit/head/cluster/elastic_fixture.h"

static void say_held(struct fixture *f, uint8_t conn, uint32_t rank, uint32_t replica_tp)
{
    struct msg m = elastic_hello(f, conn);
    m.hello.term_seen = 5;
    m.hello.worker.term_epoch = 5ull << 32 | 3;
    m.hello.worker.rank = rank;
    m.hello.worker.replica_tp = replica_tp;
    m.hello.worker.step_received = m.hello.worker.step_executed = 40;
    say(f, conn, &m);
}

static void a_shrunk_replica_is_adopted(void **state)
{
    struct fixture *f = elastic_new(4);
    say_held(f, 3, 1, 2);
    say_held(f, 2, 0, 2);
    wait_ms(f, 50, 0xC);
    const struct msg *m = box_find(f, 3, MSG_RESET);
    assert_true(m && m->reset.old_term_epoch == (5ull << 32 | 3));
    obey(f);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    assert_int_equal(replica0(f)->members[1]->peer->instance, 103);
    join_workers(f, 1, 1);
    join_workers(f, 4, 4);
    live_ms(f, 6000, 0x1E);
    expect_replica(replica0(f), 4, BLOCKS);
    fixture_free(f);
}

static void others_are_not(void **state)
{
    static const struct {
        bool elastic;
        uint32_t rank, replica_tp; /* values that the second of two workers reports */
    } cases[] = {{false, 1, 2}, {true, 1, 3}, {true, 1, 4}, {true, 2, 2}, {true, 0, 2}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct fixture *f = elastic_new(4);
        f->core->cluster.config.elastic_tp = cases[k].elastic;
        say_held(f, 1, 0, 2);
        say_held(f, 2, cases[k].rank, cases[k].replica_tp);
        for (uint32_t s = 0; s < 4 && !box_find(f, 1, MSG_ABORT); s++)
            wait_ms(f, 1000, 0x6);
        if (!box_find(f, 1, MSG_ABORT) || box_find(f, 1, MSG_RESET) || box_find(f, 2, MSG_RESET))
            fail_msg("case %zu", k);
        obey(f);
        live_ms(f, 10000, 0x6); /* afterwards the two workers form a replica as new workers do */
        assert_int_equal(head_core_is_ready(f->core), cases[k].elastic);
        fixture_free(f);
    }
}

/* The head and one rank were lost at once. The three remaining workers form two replicas, and
 * none of these workers becomes a spare of the other replica. */
static void what_is_left_of_an_old_replica_is_one(void **state)
{
    struct fixture *f = elastic_new(2);
    for (uint8_t i = 1; i <= 3; i++) {
        struct msg m = elastic_hello(f, i);
        m.hello.term_seen = 5;
        m.hello.worker.term_epoch = 5ull << 32 | (i < 3 ? 1 : 2);
        m.hello.worker.replica_id = i < 3 ? 0 : 1;
        m.hello.worker.rank = (i - 1) % 2;
        say(f, i, &m);
    }
    live_ms(f, 9000, 0xE);
    assert_int_equal(f->core->n_live, 2);
    fixture_free(f);
}

/* A rank of a whole replica was lost with the head. Spares connect before the wait for that rank
 * is over. They are kept for the old replica. A new replica would leave the old one small for
 * good, without any spare. */
static void spares_wait_for_what_is_left(void **state)
{
    struct fixture *f = elastic_new(2);
    for (uint8_t i = 1; i <= 3; i++) {
        struct msg m = elastic_hello(f, i);
        m.hello.term_seen = 5;
        m.hello.worker.ordinal = -1;
        m.hello.worker.term_epoch = 5ull << 32 | (i < 3 ? 1 : 2);
        m.hello.worker.replica_id = i < 3 ? 0 : 1;
        m.hello.worker.rank = (i - 1) % 2;
        say(f, i, &m);
    }
    for (uint8_t i = 4; i <= 5; i++) {
        struct msg m = elastic_hello(f, i);
        m.hello.worker.ordinal = -1;
        say(f, i, &m);
    }
    live_ms(f, 12000, 0x3E);
    assert_int_equal(f->core->n_live, 2);
    for (uint32_t i = 0; i < 2; i++)
        expect_replica(f->core->engine_slots[f->core->live[i]].replica, 2, BLOCKS);
    fixture_free(f);
}

/* Sends Hello as a rank of a replica that the head does not know. */
static void say_old_replica(struct fixture *f, uint8_t conn, uint64_t replica_id, uint64_t epoch)
{
    struct msg m = elastic_hello(f, conn);
    m.hello.worker.ordinal = -1;
    m.hello.term_seen = 5;
    m.hello.worker.term_epoch = 5ull << 32 | epoch;
    m.hello.worker.replica_id = replica_id;
    m.hello.worker.rank = 0;
    say(f, conn, &m);
}

/* A replica of an earlier head exists while a worker names it. When the worker names another
 * replica, or leaves, no empty replica stays behind. The number of replicas is bounded. */
static void old_replicas_are_those_of_somebody(void **state)
{
    struct fixture *f = elastic_new(4);
    f->core->cluster.config.elastic_wait_ns = 1000 * NS_PER_S;
    for (uint32_t i = 0; i < 12; i++) {
        say_old_replica(f, 5, 100 + i, 1 + i);
        live_ms(f, 3250, 0x20);
        if (f->core->cluster.n_replicas != 1 || !replica_find(&f->core->cluster, 100 + i))
            fail_msg("%u groups after %u names", f->core->cluster.n_replicas, i + 1);
    }
    leave(f, 5);
    live_ms(f, 250, 0);
    assert_int_equal(f->core->cluster.n_replicas, 0);
    for (uint8_t i = 5; i <= 6; i++) /* both workers name the same replica */
        say_old_replica(f, i, 7, 50);
    live_ms(f, 3250, 0x60);
    assert_int_equal(f->core->cluster.n_replicas, 1);
    leave(f, 5);
    live_ms(f, 250, 0x40);
    assert_int_equal(f->core->cluster.n_replicas, 1); /* the replica still has one of its workers */
    join_workers(f, 1, 4); /* a whole replica forms first, from any of the workers */
    live_ms(f, 500, 0x5E);
    assert_int_equal(f->core->n_live, 1);
    expect_replica(f->core->engine_slots[f->core->live[0]].replica, 4, BLOCKS);
    fixture_free(f);
}

/* Old replicas never use all slots for replicas, however many sessions a key opens and whatever
 * replicas they name. */
static void old_replicas_leave_room_for_new_ones(void **state)
{
    struct fixture *f = elastic_new(4);
    for (uint8_t i = 8; i <= 13; i++)
        say_old_replica(f, i, 100 + i, i);
    f->core->cluster.config.elastic_wait_ns = 1000 * NS_PER_S;
    live_ms(f, 3250, 0x3F00);
    assert_true(f->core->cluster.n_replicas < f->core->cluster.config.max_replicas);
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shrunk_replica_is_adopted),
        cmocka_unit_test(others_are_not),
        cmocka_unit_test(what_is_left_of_an_old_replica_is_one),
        cmocka_unit_test(spares_wait_for_what_is_left),
        cmocka_unit_test(old_replicas_are_those_of_somebody),
        cmocka_unit_test(old_replicas_leave_room_for_new_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
