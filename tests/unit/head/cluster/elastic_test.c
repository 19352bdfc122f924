/* Tests replicas with fewer ranks than TP: when they form, from which workers, and when they
 * become whole again. A head with --elastic-tp and scripted workers (`elastic_fixture.h`) live
 * in virtual time, which only `wait_ms` and `live_ms` advance. The fixture checks the head's
 * invariants after each slice of time. Masks such as 0x1E name living connections, one bit each.
 * All tests run on one thread. */
#include <jansson.h>

#include "tests/unit/head/cluster/elastic_fixture.h"

#include "head/admin/json.h"

static void fewer_are_formed_after_the_wait(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 4);
    obey(f);
    expect_replica(replica0(f), 4, BLOCKS);
    leave(f, 2);
    leave(f, 3);
    obey(f);
    assert_int_equal(replica0(f)->state, REPLICA_WAITING);
    assert_int_equal(replica0(f)->tp, 4);
    wait_ms(f, 4950, 0x12);
    assert_null(box_find(f, 1, MSG_FORM));
    wait_ms(f, 50, 0x12);
    const struct msg *a = box_find(f, 1, MSG_FORM), *b = box_find(f, 4, MSG_FORM);
    assert_true(a && b);
    assert_true(a->form.tp == 2 && a->form.pp == 1 && a->form.rank == 0 && a->form.make_id);
    assert_true(b->form.tp == 2 && b->form.rank == 1 && b->form.stage == 0);
    assert_true(a->form.n_comm_addresses == 2 && a->form.n_blocks.ptr[0] == BLOCKS_OF_TWO);
    obey(f);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    fixture_free(f);
}

static void as_many_as_offer_it(void **state)
{
    static const struct {
        bool elastic;
        uint8_t n_left; /* workers left, out of four */
        /* offers of each worker that is left: 2 = TP 2 and 1, 1 = TP 2 only, 0 = none */
        uint8_t n_offers[4];
        uint32_t tp; /* TP of the new replica; 4 = no replica forms */
    } cases[] = {
        {true, 3, {2, 2, 2}, 2}, {true, 2, {2, 2}, 2},    {true, 1, {2}, 1},
        {true, 1, {1}, 4},       {true, 3, {0, 2, 0}, 1}, {true, 3, {0, 2, 1}, 2},
        {true, 2, {0, 1}, 4},    {true, 3, {0, 0, 0}, 4}, {false, 3, {2, 2, 2}, 4},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct fixture *f = elastic_new(4);
        f->core->cluster.config.elastic_tp = cases[k].elastic;
        for (uint8_t i = 1; i <= 4; i++) {
            struct msg m = elastic_hello(f, i);
            m.hello.worker.n_elastic = cases[k].n_offers[i - 1];
            say(f, i, &m);
        }
        obey(f);
        for (uint8_t i = 4; i > cases[k].n_left; i--)
            leave(f, i);
        live_ms(f, 12000, 0x1E);
        if (replica0(f)->tp != cases[k].tp || head_core_is_ready(f->core) != (cases[k].tp < 4))
            fail_msg("case %zu: TP %u", k, replica0(f)->tp);
        fixture_free(f);
    }
}

static void a_cluster_that_was_never_whole_serves(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 1);
    live_ms(f, 3000, 0x2);
    join_workers(f, 2, 2);
    live_ms(f, 1000, 0x6);
    join_workers(f, 3, 3);
    live_ms(f, 3500, 0xE);
    assert_int_equal(f->core->cluster.n_replicas,
                     0); /* the first worker does not form alone, because the others have joined */
    live_ms(f, 500, 0xE);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    fixture_free(f);
}

/* A worker connects for one second in every two. The other workers do not wait for it for ever. */
static void who_comes_and_goes_keeps_nobody_waiting(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 4);
    obey(f);
    for (uint8_t i = 2; i <= 4; i++)
        leave(f, i);
    obey(f);
    for (uint32_t s = 0; s < 10; s += 2) { /* with that worker a replica of two could form */
        assert_false(head_core_is_ready(f->core));
        join_workers(f, 2, 2);
        live_ms(f, 1000, 0x6);
        leave(f, 2);
        obey(f);
        live_ms(f, s < 4 ? 1000 : 0, 0x2);
        if (s >= 4)
            break;
    }
    live_ms(f, 250, 0x2);
    expect_replica(replica0(f), 1, BLOCKS_OF_ONE);
    uint64_t epoch = replica0(f)->epoch;
    /* The worker does not disturb the small replica, which lacks three ranks. */
    for (uint32_t i = 0; i < 20; i++) {
        join_workers(f, 2, 2);
        live_ms(f, 1000, 0x6);
        leave(f, 2);
    }
    assert_int_equal(replica0(f)->epoch, epoch);
    fixture_free(f);
}

static void spares_stay_spares(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 6);
    live_ms(f, 20000, 0x7E);
    assert_int_equal(f->core->cluster.n_replicas, 1);
    expect_replica(replica0(f), 4, BLOCKS);
    fixture_free(f);
}

/* Prefill replicas and decode replicas are two kinds. Each kind has its own spares, and a spare
 * does not change its kind. */
static void roles_do_not_mix(void **state)
{
    struct fixture *f = elastic_new(4);
    for (uint8_t i = 1; i <= 8; i++) {
        struct msg m = elastic_hello(f, i);
        m.hello.worker.replica_role = i <= 5 ? REPLICA_PREFILL : REPLICA_DECODE;
        say(f, i, &m);
    }
    obey(f);
    live_ms(f, 6000, 0x1FE); /* the decode replica never was whole, so it has to wait */
    const struct replica *second = f->core->cluster.replicas[1];
    assert_int_equal(f->core->n_live, 2);
    expect_replica(replica0(f), 4, BLOCKS);
    expect_replica(second, 2, BLOCKS_OF_TWO);
    assert_int_equal(second->role, REPLICA_DECODE);
    for (uint8_t i = 6; i <= 8; i++)
        leave(f, i);
    obey(f);
    live_ms(f, 20000, 0x3E);
    assert_int_equal(f->core->n_live, 1); /* the spare prefill worker remains a spare */
    fixture_free(f);
}

/* One worker is too few for any offered TP. It does not become a spare of the other replica,
 * because more workers may join. */
static void what_is_too_little_is_kept(void **state)
{
    struct fixture *f = elastic_new(4);
    for (uint8_t i = 1; i <= 8; i++) {
        struct msg m = elastic_hello(f, i);
        m.hello.worker.n_elastic = 1; /* this worker offers TP 2 only */
        say(f, i, &m);
    }
    obey(f);
    for (uint8_t i = 6; i <= 8; i++)
        leave(f, i);
    obey(f);
    live_ms(f, 100000, 0x3E);
    assert_int_equal(f->core->n_live, 1);
    struct msg m = elastic_hello(f, 6);
    say(f, 6, &m);
    live_ms(f, 6000, 0x7E);
    assert_int_equal(f->core->n_live, 2);
    expect_replica(f->core->cluster.replicas[1], 2, BLOCKS_OF_TWO);
    leave(f, 5);
    leave(f, 6);
    obey(f);
    live_ms(f, 65000, 0x1E); /* the second replica has no worker left */
    assert_int_equal(f->core->cluster.n_replicas, 1);
    fixture_free(f);
}

static void whole_replicas_come_first(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 8);
    obey(f);
    assert_int_equal(f->core->n_live, 2);
    leave(f, 2);
    leave(f, 7);
    live_ms(f, 1000, 0x17A);
    assert_int_equal(f->core->n_live, 1);
    expect_replica(replica0(f), 4, BLOCKS);
    live_ms(f, 5000, 0x17A);
    expect_replica(f->core->cluster.replicas[1], 2, BLOCKS_OF_TWO);
    fixture_free(f);
}

/* Returns a cluster whose replica of TP 4 lost two ranks and serves with the other two.
 * Connection 7 is a gateway. */
static struct fixture *shrunk_to_two(void)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 4);
    say_gateway_hello(f, GATEWAY, 9);
    obey(f);
    leave(f, 3);
    leave(f, 4);
    obey(f);
    live_ms(f, 5250, 0x86);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    return f;
}

static void it_is_whole_again_when_they_are_back(void **state)
{
    struct fixture *f = shrunk_to_two();
    uint64_t epoch = replica0(f)->epoch;
    join_workers(f, 3, 3);
    live_ms(f, 6000, 0x8E);
    assert_int_equal(replica0(f)->epoch, epoch); /* three ranks are not enough for TP 4 */
    join_workers(f, 4, 4);
    wait_ms(f, 250, 0x9E);
    assert_null(box_find(f, 1, MSG_ABORT)); /* the replica is still within the settle time */
    wait_ms(f, 100, 0x9E);
    assert_non_null(box_find(f, 1, MSG_ABORT));
    obey(f);
    live_ms(f, 500, 0x9E);
    expect_replica(replica0(f), 4, BLOCKS);
    for (uint32_t i = 0; i < 4; i++) /* the workers are in the rank slots of their ordinals */
        assert_int_equal(replica0(f)->members[i]->peer->instance, 101 + i);
    assert_int_equal(f->core->cluster.n_formation_failures, 0);
    fixture_free(f);
}

/* Enough free workers for a whole replica are connected. The small replica then grows at once,
 * even if it has not served for long, since the next loss still leaves a spare. */
static void it_grows_at_once_where_spares_are_left(void **state)
{
    struct fixture *f = shrunk_to_two();
    uint64_t epoch = replica0(f)->epoch;
    join_workers(f, 3, 6);
    live_ms(f, 250, 0xFE);
    assert_int_equal(replica0(f)->epoch, epoch); /* the replica is still within the settle time */
    live_ms(f, 500, 0xFE);
    assert_int_equal(f->core->n_live, 1);
    expect_replica(replica0(f), 4, BLOCKS);
    leave(f, 3);
    obey(f);
    live_ms(f, 500, 0xF6);
    expect_replica(replica0(f), 4, BLOCKS);
    fixture_free(f);
}

/* Two replicas each lost two ranks while the other replica was whole. The remaining ranks of
 * both replicas form one whole replica. */
static void two_small_replicas_become_a_whole_one(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 4);
    obey(f);
    leave(f, 1);
    leave(f, 2);
    obey(f);
    live_ms(f, 5250, 0x18);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    uint64_t epoch = replica0(f)->epoch;
    /* These workers are ranks of another replica, whose other ranks never returned. */
    for (uint8_t i = 5; i <= 6; i++) {
        struct msg m = elastic_hello(f, i);
        m.hello.worker.replica_id = 1;
        m.hello.worker.replica_tp = 2;
        m.hello.worker.rank = i - 5u;
        m.hello.term_seen = 2;
        m.hello.worker.term_epoch = 2ull << 32 | 40;
        say(f, i, &m);
    }
    live_ms(f, 250, 0x78);
    assert_int_equal(f->core->n_live, 2);
    assert_int_equal(replica0(f)->epoch, epoch);
    while (!box_find(f, 5, MSG_ABORT)) {
        box_clear(f);
        wait_ms(f, 50, 0x78);
        if (f->now % (250 * MS) == 0)
            for (uint8_t i = 3; i <= 6; i++)
                beat(f, i);
    }
    static const uint8_t in_order[] = {5, 3, 4, 6}; /* replica 0 is dissolved before replica 1 */
    for (size_t i = 0; i < sizeof in_order; i++) {
        assert_null(box_find(f, 3, MSG_FORM));
        const struct msg *m = box_find(f, in_order[i], MSG_ABORT);
        assert_non_null(m);
        say(f, in_order[i], &(struct msg){.type = MSG_ABORTED, .aborted = {m->abort_.term_epoch}});
    }
    live_ms(f, 500, 0x78);
    assert_int_equal(f->core->n_live, 1);
    expect_replica(f->core->engine_slots[f->core->live[0]].replica, 4, BLOCKS);
    fixture_free(f);
}

/* Two free workers could form a replica of their own, because their old replica did not become
 * whole again. The small replica that lacks a rank gets one of these workers first, and the
 * other worker stays a spare. */
static void a_small_replica_comes_before_a_new_one(void **state)
{
    struct fixture *f = elastic_new(2);
    join_workers(f, 1, 2);
    obey(f);
    leave(f, 2);
    obey(f);
    live_ms(f, 5250, 0x2);
    expect_replica(replica0(f), 1, BLOCKS_OF_ONE);
    join_workers(f, 4, 5); /* the workers with ordinals 3 and 4 do not belong to one replica */
    live_ms(f, 6000, 0x32);
    assert_int_equal(f->core->n_live, 1);
    expect_replica(replica0(f), 2, BLOCKS);
    join_workers(f, 6, 6);
    live_ms(f, 1000, 0x72);
    assert_int_equal(f->core->n_live, 2); /* the spare now has a partner */
    fixture_free(f);
}

/* Replicas 0 and 2 have two ranks each, and there is a spare. Both replicas lose a rank at once,
 * and the ordinals of the remaining workers fit replica 1. Replica 1 must not form. With three
 * replicas there would be no spare, and one replica could never be whole. */
static void no_replica_is_made_while_others_wait(void **state)
{
    struct fixture *f = elastic_new(2);
    join_workers(f, 1, 2);
    join_workers(f, 5, 6);
    obey(f);
    leave(f, 6);
    obey(f);
    join_workers(f, 3, 3);
    live_ms(f, 1000, 0x2E);
    join_workers(f, 4, 4); /* this worker becomes the spare */
    live_ms(f, 6000, 0x3E);
    assert_int_equal(f->core->n_live, 2);
    assert_true(replica_find(&f->core->cluster, 0) && replica_find(&f->core->cluster, 2));
    leave(f, 2);
    leave(f, 5);
    obey(f);
    live_ms(f, 8000, 0x1A);
    assert_int_equal(f->core->cluster.n_replicas, 2);
    /* the cluster has a whole replica and one with a single rank */
    assert_int_equal(f->core->n_live, 2);
    join_workers(f, 2, 2);
    join_workers(f, 5, 5);
    live_ms(f, 20000, 0x3E);
    assert_int_equal(f->core->cluster.n_replicas, 2);
    for (uint32_t i = 0; i < 2; i++)
        expect_replica(f->core->engine_slots[f->core->live[i]].replica, 2, BLOCKS);
    fixture_free(f);
}

/* Two of three replicas lost a rank. The first of them shrank, and the second has no ranks and
 * waits. A replica that grows has priority over a replica that only waits. */
static void who_grows_comes_before_who_waits(void **state)
{
    struct fixture *f = elastic_new(2);
    join_workers(f, 1, 6);
    obey(f);
    assert_int_equal(f->core->n_live, 3);
    leave(f, 2);
    leave(f, 5);
    leave(f, 6);
    obey(f);
    live_ms(f, 5500, 0x1A);
    assert_int_equal(f->core->n_live, 2);
    const struct replica *g0 = replica_find(&f->core->cluster, 0);
    expect_replica(g0, 1, BLOCKS_OF_ONE);
    live_ms(f, 5500, 0x1A);
    assert_int_equal(replica_find(&f->core->cluster, 2)->state, REPLICA_WAITING);
    join_workers(f, 8, 9); /* these workers have ordinals of no existing replica */
    live_ms(f, 1000, 0x31A);
    expect_replica(g0, 2, BLOCKS);
    live_ms(f, 6000, 0x31A); /* the waiting replica forms from the remaining worker */
    expect_replica(replica_find(&f->core->cluster, 2), 1, BLOCKS_OF_ONE);
    fixture_free(f);
}

/* Ranks repeatedly join and leave. A replica forms at most once in each waiting time, up or
 * down. */
static void it_does_not_flap(void **state)
{
    static const struct {
        uint32_t up_ms, down_ms, least, most;
        uint8_t last; /* last connection that joins and leaves; the first is 3 */
    } cases[] = {{250, 250, 0, 0, 4},   {1500, 6000, 2, 12, 4}, {7000, 6000, 2, 12, 4},
                 {500, 5500, 0, 12, 4}, {250, 250, 0, 0, 6},    {500, 5500, 2, 12, 6},
                 {1500, 6000, 2, 12, 6}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct fixture *f = shrunk_to_two();
        uint64_t first = f->core->cluster.n_formations;
        for (uint32_t ms = 0; ms < 60000; ms += cases[k].up_ms + cases[k].down_ms) {
            join_workers(f, 3, cases[k].last);
            live_ms(f, cases[k].up_ms, cases[k].last == 4 ? 0x9E : 0xFE);
            for (uint8_t i = 3; i <= cases[k].last; i++)
                leave(f, i);
            obey(f);
            live_ms(f, cases[k].down_ms, 0x86);
        }
        uint64_t n = f->core->cluster.n_formations - first;
        if (n < cases[k].least || n > cases[k].most)
            fail_msg("case %zu: %llu formations in a minute", k, (unsigned long long)n);
        fixture_free(f);
    }
}

/* A fault that ends a shrunk replica does not make the replica wait again. */
static void trouble_of_a_shrunk_replica_is_short(void **state)
{
    struct fixture *f = shrunk_to_two();
    uint64_t epoch = replica0(f)->epoch;
    say(f, 1, &(struct msg){.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch}});
    obey(f);
    live_ms(f, 250, 0x86);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    assert_true(replica0(f)->epoch > epoch);
    leave(f, 2);
    obey(f);
    live_ms(f, 250, 0x82);
    expect_replica(replica0(f), 1, BLOCKS_OF_ONE);
    fixture_free(f);
}

static void a_rank_that_reads_its_shard_is_waited_for(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 4);
    obey(f);
    uint64_t epoch = replica0(f)->epoch;
    leave(f, 3);
    leave(f, 4);
    struct msg loads = {.type = MSG_HEARTBEAT, .heartbeat = {.load_permille = 10}};
    for (uint32_t s = 0; s < 40; s++) { /* connection 2 answers Abort when its load is done */
        loads.heartbeat.load_permille++;
        say(f, 2, &loads);
        if (s == 0)
            say(f, 1, &(struct msg){.type = MSG_ABORTED, .aborted = {epoch}});
        wait_ms(f, 1000, 0x2);
        assert_null(box_find(f, 1, MSG_FORM));
        box_clear(f);
    }
    beat(f, 2);
    say(f, 2, &(struct msg){.type = MSG_ABORTED, .aborted = {epoch}});
    live_ms(f, 250, 0x6);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    fixture_free(f);
}

/* The pool of a replica has the size of its smallest rank. The worker with the smallest offer
 * becomes the spare. */
static void the_larger_offers_are_taken(void **state)
{
    static const uint32_t some[][4] = {
        {20, 6, 20, 1}, {6, 20, 20, 1}, {20, 20, 6, 1}, {7, 6, 8, 1}, {6, 6, 6, 1}};
    static const uint32_t least[] = {20, 20, 20, 7, 6};
    static const uint32_t out[] = {2, 1, 3, 2, 0}; /* worker that is left out; 0 = any */
    for (size_t k = 0; k < sizeof least / sizeof least[0]; k++) {
        struct fixture *f = elastic_new(4);
        for (uint8_t i = 1; i <= 4; i++) {
            struct msg m = elastic_hello(f, i);
            struct elastic_shape offer = {.tp = 2, .n_blocks = {&some[k][i - 1], 1}};
            m.hello.worker.elastic = &offer;
            m.hello.worker.n_elastic = 1;
            say(f, i, &m);
        }
        obey(f);
        leave(f, 4);
        obey(f);
        live_ms(f, 5500, 0xE);
        expect_replica(replica0(f), 2, least[k]);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_not_equal(replica0(f)->members[i]->peer->instance, 100 + out[k]);
        fixture_free(f);
    }
}

/* With fewer ranks, each rank holds more bytes of a block. A worker that reports no size is
 * counted with the size of the full TP. */
static void blocks_have_the_bytes_of_their_tp(void **state)
{
    static const struct kv_group kv = {
        .block_tokens = 16, .bytes_per_block = 1000, .n_blocks = BLOCKS};
    static const uint32_t bytes = 2000;
    for (uint32_t says = 0; says < 2; says++) {
        struct fixture *f = elastic_new(4);
        struct elastic_shape offer = {.tp = 2, .n_blocks = {blocks_of_two, 1}};
        offer.block_bytes = (struct u32_span){&bytes, says};
        for (uint8_t i = 1; i <= 4; i++) {
            struct msg m = elastic_hello(f, i);
            m.hello.worker.kv_groups = &kv;
            m.hello.worker.elastic = &offer;
            m.hello.worker.n_elastic = 1;
            say(f, i, &m);
        }
        obey(f);
        assert_int_equal(replica0(f)->kv_groups[0].bytes_per_block, 1000);
        leave(f, 3);
        leave(f, 4);
        obey(f);
        live_ms(f, 5500, 0x6);
        expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
        assert_int_equal(replica0(f)->kv_groups[0].bytes_per_block, says ? 2000 : 1000);
        fixture_free(f);
    }
}

/* The first rank of the last stage sends the results. In a shrunk replica another worker is this
 * rank. */
static void stages_stay(void **state)
{
    struct fixture *f = elastic_new(2);
    f->core->cluster.config.pp = f->core->config.cluster.pp = 2;
    f->core->cluster.world = 4;
    join_workers(f, 1, 4);
    obey(f);
    expect_replica(replica0(f), 2, BLOCKS);
    leave(f, 2);
    obey(f);
    wait_ms(f, 5000, 0x1A);
    uint32_t rank_slots = 0;
    for (uint8_t i = 1; i <= 4; i++) {
        const struct msg *m = box_find(f, i, MSG_FORM);
        if (!m)
            continue;
        assert_true(m->form.tp == 1 && m->form.pp == 2 && m->form.rank == 0);
        rank_slots |= 1u << m->form.stage;
    }
    assert_int_equal(rank_slots, 3);
    obey(f);
    expect_replica(replica0(f), 1, BLOCKS_OF_ONE);
    fixture_free(f);
}

/* ---- requests ---- */

static const uint32_t ids[3] = {5, 6, 7};

static void submit(struct fixture *f, uint64_t lo, uint32_t max_tokens, uint64_t deadline_ms)
{
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, lo},
                               .attempt = 1,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .deadline_ms = deadline_ms,
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = max_tokens}}};
    say(f, GATEWAY, &m);
}

static const struct request *request_of(const struct fixture *f, uint64_t lo)
{
    return request_table_find(f->core->requests, (struct request_id){1, lo}, 0);
}

static bool runs(const struct fixture *f, uint64_t lo)
{
    return request_of(f, lo)->i_replica != NO_REPLICA;
}

static void what_does_not_fit_waits_for_the_whole(void **state)
{
    struct fixture *f = elastic_new(4);
    join_workers(f, 1, 4);
    say_gateway_hello(f, GATEWAY, 9);
    obey(f);
    submit(f, 1, 400, 0); /* 403 ids need 26 of the 64 blocks */
    submit(f, 2, 100, 0);
    assert_true(runs(f, 1) && runs(f, 2));
    leave(f, 3);
    leave(f, 4);
    obey(f);
    live_ms(f, 5250, 0x86);
    expect_replica(replica0(f), 2, BLOCKS_OF_TWO);
    assert_true(!runs(f, 1) && runs(f, 2));
    submit(f, 3, 400, 0);
    submit(f, 4, 400, 2000);
    submit(f, 5, 317, 0); /* 320 ids, of which the last one is never run, need all 20 blocks */
    submit(f, 6, 319, 0); /* 322 ids need one block too many */
    assert_true(!runs(f, 3) && !runs(f, 4) && runs(f, 5) && !runs(f, 6));
    json_t *s = admin_json_status(f->core, false);
    char *text = json_dumps(json_object_get(s, "warnings"), 0);
    assert_non_null(strstr(text,
                           "replica 0 serves with tp 2 of 4: it needs 2 more workers to be whole; "
                           "4 requests wait until then"));
    const json_t *g = json_array_get(json_object_get(s, "groups"), 0);
    assert_int_equal(json_integer_value(json_object_get(g, "tp")), 2);
    assert_int_equal(json_integer_value(json_object_get(g, "whole_tp")), 4);
    assert_int_equal(json_array_size(json_object_get(g, "workers")), 2);
    free(text);
    json_decref(s);
    struct head_stats stats;
    head_core_get_stats(f->core, &stats);
    assert_int_equal(stats.n_replicas_shrunk, 1);
    wait_ms(f, 2050, 0x86);
    /* The deadline of request 4 applies while the head holds it. */
    const struct msg *t = box_find(f, GATEWAY, MSG_TOKENS);
    assert_non_null(t);
    assert_int_equal(t->tokens.items[0].id.lo, 4);
    assert_int_equal(t->tokens.items[0].finish, FINISH_TIMEOUT);
    obey(f);
    join_workers(f, 3, 4);
    live_ms(f, 4000, 0x9E);
    expect_replica(replica0(f), 4, BLOCKS);
    assert_true(runs(f, 1) && runs(f, 2) && runs(f, 3) && runs(f, 5) && runs(f, 6));
    head_core_get_stats(f->core, &stats);
    /* Only the request with the deadline failed. */
    assert_true(stats.n_failed == 1 && stats.n_replicas_shrunk == 0);
    fixture_free(f);
}

/* Another replica has free blocks. A request that fits only into that replica is placed there. */
static void what_does_not_fit_goes_to_a_whole_replica(void **state)
{
    struct fixture *f = elastic_new(2);
    for (uint8_t i = 1; i <= 4; i++) {
        struct msg m = elastic_hello(f, i);
        say(f, i, &m);
    }
    say_gateway_hello(f, GATEWAY, 9);
    obey(f);
    leave(f, 1);
    obey(f);
    live_ms(f, 5250, 0x9C);
    expect_replica(replica0(f), 1, BLOCKS_OF_ONE);
    for (uint64_t k = 1; k <= 4; k++) {
        submit(f, k, 200, 0);
        assert_int_equal(request_of(f, k)->i_replica, 1);
    }
    leave(f, 3);
    leave(f, 4);
    obey(f);
    live_ms(f, 500, 0x84);
    for (uint64_t k = 1; k <= 4; k++)
        assert_false(runs(f, k));
    fixture_free(f);
}

/* Hosts have different amounts of memory. One replica may hold a request that another cannot.
 * Such a request is not refused while the larger replica is away for a moment. */
static void replicas_of_different_sizes(void **state)
{
    static const struct kv_group little = {.block_tokens = 16, .n_blocks = 4};
    struct fixture *f = elastic_new(2);
    f->core->cluster.config.elastic_tp = false;
    for (uint8_t i = 1; i <= 4; i++) {
        struct msg m = elastic_hello(f, i);
        if (i <= 2)
            m.hello.worker.kv_groups = &little;
        m.hello.worker.n_elastic = 0;
        say(f, i, &m);
    }
    say_gateway_hello(f, GATEWAY, 9);
    obey(f);
    assert_int_equal(f->core->n_live, 2);
    for (uint64_t k = 1; k <= 3; k++) {
        submit(f, k, 200, 0);
        assert_int_equal(request_of(f, k)->i_replica, 1);
    }
    leave(f, 4);
    obey(f);
    live_ms(f, 250, 0x8E);
    for (uint64_t k = 1; k <= 3; k++)
        assert_true(!runs(f, k) && request_of(f, k)->finish == FINISH_NONE);
    submit(f, 4, 20, 0);
    /* the larger requests do not block request 4 */
    assert_int_equal(request_of(f, 4)->i_replica, 0);
    join_workers(f, 4, 4);
    obey(f);
    live_ms(f, 500, 0x9E);
    for (uint64_t k = 1; k <= 3; k++)
        assert_int_equal(request_of(f, k)->i_replica, 1);
    /* the head's records say that no replica ever held more */
    f->core->cluster.replicas[1]->most_tokens = 64;
    box_clear(f);
    leave(f, 4);
    obey(f);
    submit(f, 5, 200, 0);
    const struct msg *t = box_find(f, GATEWAY, MSG_TOKENS);
    assert_non_null(t);
    assert_int_equal(t->tokens.items[0].finish, FINISH_ERROR);
    fixture_free(f);
}

/* --elastic-tp is needed at the head and at all workers, or at none of them. Any other case is
 * logged, once. */
static void the_flag_of_one_side_is_told(void **state)
{
    static const struct {
        uint32_t tp;
        bool head, workers[2];
        const char *want; /* text of the warning; NULL = none */
    } cases[] = {
        {2, true, {true, true}, NULL},
        {2, false, {false, false}, NULL},
        {1, true, {false, false}, NULL}, /* no TP below 1 exists */
        {2, false, {true, true}, "2 of 2 workers were started with it, but the head was not"},
        {2, false, {false, true}, "1 of 2 workers were started with it, but the head was not"},
        {2, true, {false, false}, "no worker offers a smaller TP"},
        {2, true, {true, false}, "1 of 2 workers offer no smaller TP"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct fixture *f = elastic_new(cases[k].tp);
        f->core->cluster.config.elastic_tp = cases[k].head;
        for (uint8_t i = 1; i <= 2; i++) {
            struct msg m = elastic_hello(f, i);
            m.hello.worker.n_elastic = cases[k].workers[i - 1] ? 1 : 0;
            say(f, i, &m);
        }
        json_t *status = admin_json_status(f->core, false), *events = admin_json_events(f->core, 0);
        char *said = json_dumps(json_object_get(status, "warnings"), 0);
        char *log = json_dumps(events, 0);
        const char *told = strstr(log, "elastic_tp_one_sided");
        const char *want = cases[k].want;
        if (want ? !strstr(said, want) || !told : strstr(said, "--elastic-tp") || told)
            fail_msg("case %zu: %s\n%s", k, said, log);
        assert_true(!told || !strstr(told + 1, "elastic_tp_one_sided"));
        free(said);
        free(log);
        json_decref(status);
        json_decref(events);
        fixture_free(f);
    }
}

static void impossible_shapes_are_refused(void **state)
{
    static const uint32_t n_blocks[] = {0, 1u << 30};
    for (size_t k = 0; k < 2; k++) {
        struct fixture *f = elastic_new(4);
        struct elastic_shape shape = {.tp = 2, .n_blocks = {&n_blocks[k], 1}};
        struct msg m = elastic_hello(f, 1);
        m.hello.worker.elastic = &shape;
        m.hello.worker.n_elastic = 1;
        say(f, 1, &m);
        const struct msg *refused = box_find(f, 1, MSG_REFUSED);
        assert_non_null(refused);
        assert_non_null(strstr(refused->refused.text.ptr, "the worker's offer for --tp 2"));
        fixture_free(f);
    }
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewer_are_formed_after_the_wait),
        cmocka_unit_test(as_many_as_offer_it),
        cmocka_unit_test(a_cluster_that_was_never_whole_serves),
        cmocka_unit_test(who_comes_and_goes_keeps_nobody_waiting),
        cmocka_unit_test(spares_stay_spares),
        cmocka_unit_test(roles_do_not_mix),
        cmocka_unit_test(what_is_too_little_is_kept),
        cmocka_unit_test(whole_replicas_come_first),
        cmocka_unit_test(it_is_whole_again_when_they_are_back),
        cmocka_unit_test(it_grows_at_once_where_spares_are_left),
        cmocka_unit_test(two_small_replicas_become_a_whole_one),
        cmocka_unit_test(a_small_replica_comes_before_a_new_one),
        cmocka_unit_test(no_replica_is_made_while_others_wait),
        cmocka_unit_test(who_grows_comes_before_who_waits),
        cmocka_unit_test(it_does_not_flap),
        cmocka_unit_test(trouble_of_a_shrunk_replica_is_short),
        cmocka_unit_test(a_rank_that_reads_its_shard_is_waited_for),
        cmocka_unit_test(the_larger_offers_are_taken),
        cmocka_unit_test(blocks_have_the_bytes_of_their_tp),
        cmocka_unit_test(stages_stay),
        cmocka_unit_test(what_does_not_fit_waits_for_the_whole),
        cmocka_unit_test(what_does_not_fit_goes_to_a_whole_replica),
        cmocka_unit_test(replicas_of_different_sizes),
        cmocka_unit_test(the_flag_of_one_side_is_told),
        cmocka_unit_test(impossible_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
