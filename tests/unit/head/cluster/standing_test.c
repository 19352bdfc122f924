/* Tests the state that the head sends workers for their /readyz, while the ranks of a replica of
 * two are replaced. The tests also show which workers of another configuration may serve beside
 * the first ones. */
#include "tests/unit/head/core/core_fixture.h"

#define LONE_MS 10000u

struct told {
    bool serves, spare;
};

/* Returns the newest heartbeat to `conn`. */
static struct told told(const struct fixture *f, uint8_t conn)
{
    const struct msg *last = NULL;
    for (uint32_t i = 0; i < f->n_box; i++)
        if (f->box[i].to == conn && f->box[i].m.type == MSG_HEARTBEAT)
            last = &f->box[i].m;
    assert_non_null(last);
    return (struct told){last->heartbeat.serves, last->heartbeat.spare};
}

static void assert_told(struct fixture *f, uint8_t conn, bool serves, bool spare)
{
    struct told t = told(f, conn);
    if (t.serves != serves || t.spare != spare)
        fail_msg("connection %u: serves %d, spare %d", conn, t.serves, t.spare);
}

static void pass(struct fixture *f, uint64_t ms, uint32_t alive)
{
    for (uint64_t t = 0; t < ms; t += 500) {
        box_clear(f);
        wait_ms(f, 500, alive);
    }
}

static void come(struct fixture *f, uint8_t conn, int32_t ordinal, uint8_t config, uint8_t model)
{
    struct msg m = worker_hello(100u + conn, ordinal);
    m.hello.worker.config_hash[0] = config;
    m.hello.worker.model_hash[0] = model;
    say(f, conn, &m);
}

/* Plays a formation from the CommId of its first rank to the Formed of both ranks. */
static void join_both(struct fixture *f, uint8_t a, uint8_t b)
{
    const struct msg *form = box_find(f, a, MSG_FORM);
    assert_non_null(form);
    uint64_t epoch = form->form.term_epoch;
    uint8_t first = form->form.rank == 0 ? a : b;
    say(f, first,
        &(struct msg){.type = MSG_COMM_ID,
                      .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}});
    say(f, a, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    say(f, b, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
}

static void who_waits_for_its_replica_is_not_ready_before_it_serves(void **state)
{
    struct fixture *f = fixture_new(2);
    come(f, 1, 0, 0, 0);
    pass(f, 2000, 0x2);
    assert_told(f, 1, false, false); /* a partner may still join */
    come(f, 2, 1, 0, 0);
    assert_non_null(box_find(f, 1, MSG_FORM));
    uint32_t permille = 500; /* both workers read their shards for longer than a spare waits */
    for (int i = 0; i < 24; i++) {
        struct msg beats = {.type = MSG_HEARTBEAT, .heartbeat = {.load_permille = ++permille}};
        say(f, 1, &beats);
        say(f, 2, &beats);
        wait_ms(f, 500, 0);
    }
    assert_told(f, 1, false, false);
    assert_told(f, 2, false, false);
    join_both(f, 1, 2);
    assert_true(head_core_is_ready(f->core));
    pass(f, 500, 0x6);
    assert_told(f, 1, true, false);
    assert_told(f, 2, true, false);
    fixture_free(f);
}

static void who_is_too_few_is_a_spare_after_a_while(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    come(f, 3, 2, 0, 0);
    pass(f, LONE_MS - 1000, 0xE);
    assert_told(f, 3, false, false);
    pass(f, 1500, 0xE);
    assert_told(f, 3, false, true);
    assert_told(f, 1, true, false);
    come(f, 4, 3, 0, 0); /* two workers can form a replica, so worker 3 is no spare now */
    pass(f, 500, 0x1E);
    assert_told(f, 3, false, false);
    assert_told(f, 4, false, false);
    fixture_free(f);
}

/* Two ranks are replaced one after the other, as a StatefulSet does it. */
static void another_configuration_of_the_model_serves_beside_the_first(void **state)
{
    struct fixture *f = fixture_new(2);
    come(f, 1, 0, 0, 7);
    come(f, 2, 1, 0, 7);
    join_both(f, 1, 2);
    come(f, 3, 3, 1, 7); /* the first worker of the new configuration joins without a partner */
    pass(f, LONE_MS + 500, 0xE);
    assert_told(f, 3, false, true);
    come(f, 4, 2, 1, 7);
    box_clear(f);
    pass(f, 1000, 0x1E);
    struct told t = told(f, 4);
    assert_false(t.serves || t.spare); /* a spare would look ready before the replica is */
    fixture_free(f);

    f = fixture_new(2);
    come(f, 1, 0, 0, 7);
    come(f, 2, 1, 0, 7);
    join_both(f, 1, 2);
    come(f, 3, 3, 1, 7);
    come(f, 4, 2, 1, 7);
    join_both(f, 3, 4);
    assert_int_equal(cluster_count_replicas(&f->core->cluster, REPLICA_READY), 2);
    pass(f, 500, 0x1E);
    for (uint8_t i = 1; i <= 4; i++)
        assert_told(f, i, true, false);
    fixture_free(f);
}

static void another_model_waits_and_holds_nothing_up(void **state)
{
    struct fixture *f = fixture_new(2);
    come(f, 1, 0, 0, 7);
    come(f, 2, 1, 0, 7);
    join_both(f, 1, 2);
    come(f, 3, 3, 1, 8);
    come(f, 4, 2, 1, 8);
    pass(f, LONE_MS + 500, 0x1E);
    assert_int_equal(cluster_count_replicas(&f->core->cluster, REPLICA_READY), 1);
    assert_null(box_find(f, 3, MSG_FORM));
    assert_told(f, 3, false, true);
    assert_told(f, 4, false, true);
    fixture_free(f);
}

static void whose_model_is_not_known_is_another(void **state)
{
    struct fixture *f = fixture_new(2);
    come(f, 1, 0, 0, 0);
    come(f, 2, 1, 0, 0);
    join_both(f, 1, 2);
    come(f, 3, 3, 1, 0);
    come(f, 4, 2, 1, 7);
    come(f, 5, 4, 1, 7);
    pass(f, 2000, 0x3E);
    assert_int_equal(f->core->cluster.n_replicas, 1);
    fixture_free(f);
}

static void who_is_drained_is_no_spare(void **state)
{
    struct fixture *f = fixture_new(2);
    come(f, 1, 0, 0, 0);
    say(f, 1, &(struct msg){.type = MSG_DRAIN_WISH});
    pass(f, LONE_MS + 1000, 0x2);
    assert_told(f, 1, false, false);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_its_replica_is_not_ready_before_it_serves),
        cmocka_unit_test(who_is_too_few_is_a_spare_after_a_while),
        cmocka_unit_test(another_configuration_of_the_model_serves_beside_the_first),
        cmocka_unit_test(another_model_waits_and_holds_nothing_up),
        cmocka_unit_test(whose_model_is_not_known_is_another),
        cmocka_unit_test(who_is_drained_is_no_spare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
