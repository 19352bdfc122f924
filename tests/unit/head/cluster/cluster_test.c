/* Tests the replicas of a head: formation, its failures, adoption, placement of ranks, drains.
 * Scripted workers (`core_fixture.h`) send Hello, heartbeats and the answers of a formation, and
 * the tests read the messages that the head sends to each connection. Time advances only by
 * `wait_ms` and similar calls. Masks such as 0x6 name connections, one bit each. All tests run
 * on one thread. */
#include "head/state/served_model.h"
#include "tests/unit/head/core/core_fixture.h"

static const struct replica *replica0(const struct fixture *f)
{
    return f->core->cluster.replicas[0];
}

static void say_aborted(struct fixture *f, uint8_t conn, uint64_t epoch)
{
    struct msg m = {.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}};
    say(f, conn, &m);
}

static void a_pair_forms_in_term_one(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = form_pair(f);
    assert_int_equal(epoch, 1ull << 32 | 1);
    assert_int_equal(replica0(f)->id, 0);
    fixture_free(f);
}

static void the_term_is_above_every_term_seen(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg a = worker_hello(101, 0), b = worker_hello(102, 1);
    a.hello.term_seen = 7;
    say(f, 1, &a);
    say(f, 2, &b);
    assert_int_equal(box_find(f, 1, MSG_FORM)->form.term_epoch >> 32, 8);
    /* A peer that saw a higher term connects later. The next epochs are above that term. */
    struct msg c = worker_hello(103, 2);
    c.hello.term_seen = 20;
    say(f, 3, &c);
    assert_int_equal(f->core->cluster.term, 21);
    /* The peer repeats the term that this head sent it, so nothing changes. */
    c.hello.term_seen = 21;
    say(f, 3, &c);
    assert_int_equal(f->core->cluster.term, 21);
    /* A peer that never received this head's term has seen the same number. The number must then
     * be another head's term. */
    struct msg d = worker_hello(104, 3);
    d.hello.term_seen = 21;
    say(f, 4, &d);
    assert_int_equal(f->core->cluster.term, 22);
    fixture_free(f);
}

static uint64_t foreign_term;

static void note_foreign_term(void *ctx, uint64_t term)
{
    foreign_term = term;
}

/* A head with a lease has its term from the lease. It does not take a higher term only because a
 * peer saw one. */
static void with_a_lease_a_higher_term_is_looked_into(void **state)
{
    struct fixture *f = fixture_new(2);
    f->core->peers.io.on_foreign_term = note_foreign_term;
    foreign_term = 0;
    head_core_set_term(f->core, 5, f->now);
    struct msg a = worker_hello(101, 0), b = worker_hello(102, 1);
    a.hello.term_seen = 4;
    say(f, 1, &a);
    assert_int_equal(box_find(f, 1, MSG_WELCOME)->welcome.term, 5);
    /* A peer that never received this head's term may report an equal term. This term belongs to
     * another head too. */
    for (uint64_t seen = 5; seen <= 9; seen += 4) {
        box_clear(f);
        b.hello.term_seen = seen;
        say(f, 2, &b);
        assert_int_equal(box_find(f, 2, MSG_REFUSED)->refused.status, STATUS_AGAIN);
        assert_int_equal(foreign_term, seen);
        assert_int_equal(f->core->cluster.term, 5);
    }
    /* the lease still belongs to this head, with a higher term */
    head_core_set_term(f->core, 10, f->now);
    say(f, 2, &b);
    assert_int_equal(box_find(f, 2, MSG_WELCOME)->welcome.term, 10);
    assert_int_equal(box_find(f, 1, MSG_FORM)->form.term_epoch >> 32, 10);
    fixture_free(f);
}

static void a_term_without_a_successor_is_refused(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg m = {
        .type = MSG_HELLO,
        .hello = {.instance = 9, .role = ROLE_GATEWAY, .credit_bytes = 1, .term_seen = UINT64_MAX}};
    say(f, 3, &m);
    m.hello.term_seen = UINT32_MAX;
    say(f, 4, &m);
    assert_non_null(box_find(f, 3, MSG_REFUSED));
    assert_non_null(box_find(f, 4, MSG_REFUSED));
    box_clear(f);
    assert_int_equal(form_pair(f) >> 32, 1);
    fixture_free(f);
}

static void a_worker_started_for_another_tp_is_refused(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg m = worker_hello(103, -1);
    m.hello.worker.tp = 1;
    say(f, 3, &m);
    m.hello.worker.tp = 2;
    m.hello.worker.pp = 2;
    say(f, 4, &m);
    assert_non_null(box_find(f, 3, MSG_REFUSED));
    assert_non_null(box_find(f, 4, MSG_REFUSED));
    assert_int_equal(f->core->cluster.n_workers, 0);
    fixture_free(f);
}

/* Sizes that no scheduler accepts are refused at once. Otherwise each formation would fail. */
static void impossible_sizes_are_refused(void **state)
{
    static const struct {
        uint32_t max_model_len, vocab_size, block_tokens, n_blocks;
    } cases[] = {{1, 9, 16, 9},    {1u << 30, 9, 16, 9},  {64, 0, 16, 9},
                 {64, 9, 2048, 9}, {64, 9, 16, 1u << 30}, {64, 9, 16, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(2);
        struct msg m = worker_hello(103, -1);
        struct kv_group kv = {.block_tokens = cases[i].block_tokens, .n_blocks = cases[i].n_blocks};
        m.hello.worker.kv_groups = &kv;
        m.hello.worker.max_model_len = cases[i].max_model_len;
        m.hello.worker.vocab_size = cases[i].vocab_size;
        say(f, 3, &m);
        if (!box_find(f, 3, MSG_REFUSED))
            fail_msg("case %zu", i);
        fixture_free(f);
    }
}

static void a_worker_that_is_in_no_replica_changes_no_limit(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = form_pair(f);
    struct msg odd = worker_hello(103, -1), bye = {.type = MSG_GOODBYE};
    odd.hello.worker.max_model_len = 16;
    odd.hello.worker.vocab_size = 77;
    odd.hello.worker.config_hash[0] = 1;
    say(f, 3, &odd);
    assert_int_equal(served_model_now(f->core).max_model_len, 512);
    assert_int_equal(served_model_now(f->core).vocab_size, 20000);
    say(f, 1, &bye); /* no replica serves, but the last model still counts */
    say(f, 2, &bye);
    assert_true(epoch != 0 && !head_core_is_ready(f->core));
    assert_int_equal(served_model_now(f->core).max_model_len, 512);
    assert_int_equal(served_model_now(f->core).vocab_size, 20000);
    fixture_free(f);
}

static void a_lost_rank_waits_for_the_other_ones_aborted(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = form_pair(f);
    struct msg third = worker_hello(103, 0), bye = {.type = MSG_GOODBYE};
    say(f, 3, &third); /* this worker is a spare with the same ordinal */
    say(f, 1, &bye);
    assert_int_equal(replica0(f)->state, REPLICA_ABORTING);
    assert_non_null(box_find(f, 2, MSG_ABORT));
    assert_null(box_find(f, 3, MSG_FORM));
    say_aborted(f, 2, epoch - 1); /* an answer for another epoch does not count */
    assert_int_equal(replica0(f)->state, REPLICA_ABORTING);
    say_aborted(f, 2, epoch);
    assert_int_equal(replica0(f)->state, REPLICA_FORMING);
    assert_int_equal(box_find(f, 3, MSG_FORM)->form.term_epoch, epoch + 1);
    fixture_free(f);
}

/* Rank 1 is dead, and its process starts again before the silence counts as a loss. The head
 * detects this within two heartbeats. Until then the new process joins no replica. */
static void a_process_that_was_started_again_is_the_loss_of_the_one_before(void **state)
{
    static const struct {
        const char *what, *node;
        uint64_t silent_ms;
        int32_t ordinal;
        bool waits, lives, is_lost;
    } cases[] = {{"silent for long", "n", 750, 1, .waits = true, .is_lost = true},
                 {"silent for a moment", "n", 250, 1, .waits = true, .is_lost = true},
                 {"two that live", "n", 250, 1, .waits = true, .lives = true},
                 {"another ordinal", "n", 250, 2, .waits = false},
                 {"of another node", "m", 250, 1, .waits = false},
                 {"without an ordinal", "n", 250, -1, .waits = false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = fixture_new(2);
        uint32_t alive = 1u << 1 | 1u << 4 | (cases[i].lives ? 1u << 2 : 0);
        form_pair(f);
        beat(f, 2);
        struct msg hello = worker_hello(300, 3);
        say(f, 4, &hello); /* this worker becomes a spare */
        wait_ms(f, cases[i].silent_ms, alive);
        box_clear(f);
        hello = worker_hello(200, cases[i].ordinal);
        hello.hello.node = str_from(cases[i].node);
        say(f, 3, &hello);
        wait_ms(f, 400, alive | 1u << 3);
        if ((box_find(f, 3, MSG_FORM) == NULL) != cases[i].waits)
            fail_msg("%s: placed at once, or not", cases[i].what);
        wait_ms(f, 350, alive | 1u << 3);
        const struct msg *m = box_find(f, 1, MSG_ABORT);
        if ((m != NULL) != cases[i].is_lost ||
            (f->core->cluster.n_workers == 3) != cases[i].is_lost)
            fail_msg("%s", cases[i].what);
        if (m)
            say(f, 1, &(struct msg){.type = MSG_ABORTED, .aborted = {m->abort_.term_epoch}});
        wait_ms(f, 350, alive | 1u << 3);
        /* The new process is a partner of the spare, or has its old rank slot. */
        assert_non_null(box_find(f, 3, MSG_FORM));
        fixture_free(f);
    }
}

/* A new process has the node name and ordinal of another worker. A heartbeat shows that the
 * other worker still lives, however late the head checks. */
static void who_is_heard_from_again_has_no_successor(void **state)
{
    for (uint64_t late_ms = 50; late_ms <= 450; late_ms += 50) {
        struct fixture *f = fixture_new(2);
        form_pair(f);
        wait_ms(f, 50, 1u << 1 | 1u << 2);
        struct msg hello = worker_hello(200, 1);
        say(f, 3, &hello);
        wait_ms(f, 50, 0);
        beat(f, 2);
        wait_ms(f, 400, 0);
        f->now += late_ms * MS; /* the silence is still within the allowed time */
        head_core_tick(f->core, f->now);
        assert_int_equal(f->core->cluster.n_workers, 3);
        assert_int_equal(replica0(f)->state, REPLICA_READY);
        fixture_free(f);
    }
}

static void a_failed_join_backs_off_and_doubles(void **state)
{
    struct fixture *f = fixture_new(2);
    static const uint32_t want_ms[] = {200, 400, 800, 1600, 3200, 5000, 5000};
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        say(f, i, &hello);
    }
    for (size_t k = 0; k < sizeof want_ms / sizeof want_ms[0]; k++) {
        uint64_t epoch = replica0(f)->epoch;
        struct msg id = {.type = MSG_COMM_ID,
                         .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}};
        say(f, 1, &id);
        struct msg formed = {.type = MSG_FORMED,
                             .formed = {.term_epoch = epoch, .status = STATUS_IO}};
        say(f, 2, &formed);
        say_aborted(f, 1, epoch);
        say_aborted(f, 2, epoch);
        uint64_t waited = 0;
        while (replica0(f)->state == REPLICA_WAITING && waited < 10000) {
            wait_ms(f, 50, 0x6);
            waited += 50;
        }
        assert_int_equal(waited, want_ms[k]);
        box_clear(f);
    }
    fixture_free(f);
}

static void a_formation_has_thirty_seconds(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        say(f, i, &hello);
    }
    for (int s = 0; s < 29; s++) {
        wait_ms(f, 1000, 0x6);
        box_clear(f);
    }
    assert_int_equal(replica0(f)->state, REPLICA_FORMING);
    wait_ms(f, 1000, 0x6);
    assert_int_equal(replica0(f)->state, REPLICA_ABORTING);
    fixture_free(f);
}

static void beats_loading(struct fixture *f, uint32_t seconds, uint32_t first, uint32_t add)
{
    for (uint32_t s = 0; s < seconds; s++) {
        struct msg loads = {.type = MSG_HEARTBEAT, .heartbeat = {.load_permille = first + s * add}};
        say(f, 2, &loads);
        wait_ms(f, 1000, 0x2);
        box_clear(f);
    }
}

/* Rank 1 reads another shard before it joins. That takes minutes, and its peer stops waiting
 * meanwhile. */
static void a_rank_that_loads_is_waited_for(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        say(f, i, &hello);
    }
    uint64_t epoch = replica0(f)->epoch;
    struct msg id = {.type = MSG_COMM_ID,
                     .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}};
    say(f, 1, &id);
    beats_loading(f, 20, 1, 3);
    say(f, 2, &(struct msg){.type = MSG_HEARTBEAT, .heartbeat = {.load_permille = 61}});
    const struct worker *slow = cluster_find_worker(&f->core->cluster, 102);
    assert_string_equal(worker_state_name(slow), "loading");
    struct msg formed = {.type = MSG_FORMED, .formed = {.term_epoch = epoch, .status = STATUS_IO}};
    say(f, 1, &formed);
    assert_int_equal(replica0(f)->state, REPLICA_ABORTING);
    say_aborted(f, 1, epoch);
    beats_loading(f, 240, 60, 1);
    assert_int_equal(f->core->cluster.n_workers, 2);
    assert_int_equal(f->core->cluster.n_failures, 0); /* a slow load is no failure */
    beat(f, 2);
    say_aborted(f, 2, epoch);
    /* the replica forms at once, without a back-off */
    assert_int_equal(replica0(f)->state, REPLICA_FORMING);
    fixture_free(f);
}

static void a_formation_that_outlasts_its_time_waits_for_a_rank_that_loads(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        say(f, i, &hello);
    }
    beats_loading(f, 31, 1, 1);
    assert_int_equal(replica0(f)->state, REPLICA_ABORTING);
    assert_int_equal(f->core->cluster.n_formation_failures, 0);
    say_aborted(f, 1, replica0(f)->epoch);
    beats_loading(f, 310, 40, 0); /* the load makes no progress for five minutes */
    assert_int_equal(f->core->cluster.n_workers, 1);
    fixture_free(f);
}

static void a_stuck_rank_is_lost_and_a_slow_one_is_not(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    struct msg busy = {.type = MSG_HEARTBEAT, .heartbeat = {.busy = true}};
    for (uint32_t i = 0; i < 60; i++) { /* the load makes progress for 12 s */
        busy.heartbeat.progress = i;
        say(f, 1, &busy);
        wait_ms(f, 200, 1u << 2);
        box_clear(f);
    }
    assert_int_equal(f->core->cluster.n_workers, 2);
    for (uint32_t i = 0; i < 50; i++) { /* the load makes no progress for 10 s */
        say(f, 1, &busy);
        wait_ms(f, 200, 1u << 2);
        box_clear(f);
    }
    assert_int_equal(f->core->cluster.n_workers, 1);
    fixture_free(f);
}

static void say_held(struct fixture *f, uint8_t conn, uint64_t received, uint64_t executed)
{
    struct msg m = worker_hello(100 + conn, conn - 1);
    m.hello.term_seen = 5;
    m.hello.worker.term_epoch = 5ull << 32 | 3;
    m.hello.worker.rank = conn - 1u;
    m.hello.worker.step_received = received;
    m.hello.worker.step_executed = executed;
    say(f, conn, &m);
}

static void an_idle_whole_replica_is_adopted(void **state)
{
    struct fixture *f = fixture_new(2);
    say_held(f, 1, 40, 39);
    say_held(f, 2, 40, 40);
    wait_ms(f, 100, 0x6);
    assert_null(box_find(f, 1, MSG_RESET)); /* rank 0 still executes step 40 */
    struct msg m = {
        .type = MSG_HEARTBEAT,
        .heartbeat = {.term_epoch = 5ull << 32 | 3, .step_received = 40, .step_executed = 40}};
    say(f, 1, &m);
    wait_ms(f, 50, 0);
    const struct msg *reset = box_find(f, 2, MSG_RESET);
    assert_non_null(reset);
    assert_int_equal(reset->reset.old_term_epoch, 5ull << 32 | 3);
    assert_int_equal(reset->reset.term_epoch >> 32, 6);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg formed = {.type = MSG_FORMED, .formed = {.term_epoch = reset->reset.term_epoch}};
        say(f, i, &formed);
    }
    assert_true(head_core_is_ready(f->core));
    assert_null(box_find(f, 1, MSG_FORM));
    fixture_free(f);
}

static void ranks_at_different_steps_are_aborted_after_the_window(void **state)
{
    struct fixture *f = fixture_new(2);
    say_held(f, 1, 40, 40);
    say_held(f, 2, 41, 41);
    struct msg beats[2];
    for (uint8_t i = 0; i < 2; i++)
        beats[i] = (struct msg){.type = MSG_HEARTBEAT,
                                .heartbeat = {.term_epoch = 5ull << 32 | 3,
                                              .step_received = 40u + i,
                                              .step_executed = 40u + i}};
    for (int k = 0; k < 16; k++) {
        assert_null(box_find(f, 1, MSG_ABORT));
        wait_ms(f, 200, 0);
        say(f, 1, &beats[0]);
        say(f, 2, &beats[1]);
        if (k == 13)
            assert_null(box_find(f, 2, MSG_ABORT));
        if (box_find(f, 1, MSG_ABORT))
            break;
    }
    assert_null(box_find(f, 1, MSG_RESET));
    assert_non_null(box_find(f, 1, MSG_ABORT));
    assert_non_null(box_find(f, 2, MSG_ABORT));
    fixture_free(f);
}

static void the_adoption_window_is_three_seconds(void **state)
{
    struct fixture *f = fixture_new(2);
    say_held(f, 1, 40, 40);
    wait_ms(f, 2900, 1u << 1);
    assert_null(box_find(f, 1, MSG_ABORT));
    wait_ms(f, 200, 1u << 1);
    const struct msg *m = box_find(f, 1, MSG_ABORT);
    assert_non_null(m);
    assert_int_equal(m->abort_.term_epoch, 5ull << 32 | 3);
    fixture_free(f);
}

static void a_new_worker_in_the_missing_rank_slot_ends_the_wait(void **state)
{
    struct fixture *f = fixture_new(2);
    say_held(f, 1, 40, 40);
    struct msg fresh = worker_hello(102, 1);
    say(f, 2, &fresh);
    wait_ms(f, 50, 0);
    assert_non_null(box_find(f, 1, MSG_ABORT));
    assert_null(box_find(f, 1, MSG_FORM));
    say_aborted(f, 1, 5ull << 32 | 3);
    assert_non_null(box_find(f, 1, MSG_FORM));
    fixture_free(f);
}

static void different_configurations_do_not_mix(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg a = worker_hello(101, 0), b = worker_hello(102, 1), c = worker_hello(103, -1);
    b.hello.worker.config_hash[0] = 1;
    say(f, 1, &a);
    say(f, 2, &b);
    wait_ms(f, 500, 0x6);
    assert_int_equal(cluster_count_replicas(&f->core->cluster, REPLICA_FORMING), 0);
    say(f, 3, &c);
    /* The ordinals belong to other rank slots, so these workers form after the settle time. */
    wait_ms(f, 500, 0xE);
    assert_non_null(box_find(f, 1, MSG_FORM));
    assert_non_null(box_find(f, 3, MSG_FORM));
    assert_null(box_find(f, 2, MSG_FORM));
    fixture_free(f);
}

static void who_keeps_coming_is_not_mixed(void **state)
{
    struct fixture *f = fixture_new(2);
    /* Each ordinal belongs to another replica, as when a large cluster starts slowly. */
    for (uint8_t i = 1; i <= 5; i++) {
        struct msg m = worker_hello(100 + i, 2 * i);
        say(f, i, &m);
        wait_ms(f, 250, 0x3E);
        assert_int_equal(f->core->cluster.n_replicas, 0);
    }
    wait_ms(f, 100, 0x3E);
    assert_int_equal(f->core->cluster.n_replicas, 2);
    fixture_free(f);
}

static void who_has_been_free_for_long_waits_for_nobody(void **state)
{
    struct fixture *f = fixture_new(2);
    f->core->cluster.config.settle_max_ns = 1000 * MS;
    for (uint8_t i = 1; i <= 6; i++) {
        struct msg m = worker_hello(100 + i, 2 * i);
        say(f, i, &m);
        assert_null(box_find(f, 1, MSG_FORM));
        wait_ms(f, 200, 0x7E);
    }
    /* the replica forms after 1.2 s, with the second worker */
    assert_non_null(box_find(f, 1, MSG_FORM));
    assert_non_null(box_find(f, 2, MSG_FORM));
    assert_null(box_find(f, 3, MSG_FORM));
    fixture_free(f);
}

static void another_configuration_waits_until_the_first_has_gone(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    for (uint8_t i = 3; i <= 4; i++) {
        struct msg m = worker_hello(100 + i, i - 1);
        m.hello.worker.config_hash[31] = 1;
        say(f, i, &m);
    }
    wait_ms(f, 2000, 0x1E);
    assert_null(box_find(f, 3, MSG_FORM));
    assert_int_equal(cluster_count_replicas(&f->core->cluster, REPLICA_READY), 1);
    for (int i = 0; i < 29; i++) { /* both ranks of the first replica are lost and may return */
        wait_ms(f, 1000, 0x18);
        assert_null(box_find(f, 3, MSG_FORM));
        box_clear(f);
    }
    assert_int_equal(cluster_count_replicas(&f->core->cluster, REPLICA_READY), 0);
    wait_ms(f, 4000, 0x18);
    assert_non_null(box_find(f, 3, MSG_FORM));
    assert_non_null(box_find(f, 4, MSG_FORM));
    fixture_free(f);
}

static void ordinals_choose_replica_and_rank(void **state)
{
    struct fixture *f = fixture_new(2);
    static const int32_t ordinals[] = {3, 0, 2, 1}; /* ordinals of connections 1 to 4 */
    for (uint8_t i = 1; i <= 4; i++) {
        struct msg m = worker_hello(100 + i, ordinals[i - 1]);
        say(f, i, &m);
    }
    for (uint8_t i = 1; i <= 4; i++) {
        const struct msg *m = box_find(f, i, MSG_FORM);
        assert_non_null(m);
        assert_int_equal(m->form.replica_id, ordinals[i - 1] / 2);
        assert_int_equal(m->form.rank, ordinals[i - 1] % 2);
    }
    fixture_free(f);
}

/* Replica 0 forms again from connection 1 and another connection, and both workers receive a
 * Join. Returns the other connection. */
static uint8_t partner_of_one(struct fixture *f)
{
    uint8_t conn = box_find(f, 3, MSG_FORM) ? 3 : 4;
    const struct msg *m = box_find(f, conn, MSG_FORM);
    assert_non_null(m);
    assert_int_equal(m->form.rank, 1);
    struct msg id = {
        .type = MSG_COMM_ID,
        .comm_id = {.term_epoch = replica0(f)->epoch, .id = {(const uint8_t *)"id", 2}}};
    say(f, 1, &id);
    assert_non_null(box_find(f, conn, MSG_JOIN));
    return conn;
}

/* Rank 1 is lost and a spare takes its place. A spare that received a Join loads the shard even
 * if the formation fails meanwhile. The next formation must use the same worker. */
static void a_spare_that_took_a_shard_is_asked_for_it_again(void **state)
{
    static const struct {
        int32_t shard; /* shard that the spares report; -1 = the device has none */
        enum status formed;
        uint8_t want;
    } cases[] = {{0, STATUS_OK, 3}, {0, STATUS_TIMEOUT, 3}, {-1, STATUS_OK, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(2);
        struct msg bye = {.type = MSG_GOODBYE}, spare = worker_hello(103, -1);
        uint64_t epoch = form_pair(f);
        spare.hello.worker.shard_rank = spare.hello.worker.shard_stage = cases[i].shard;
        say(f, 3, &spare);
        say(f, 2, &bye);
        say_aborted(f, 1, epoch);
        wait_ms(f, 500, 0xA);
        assert_int_equal(partner_of_one(f), 3);
        epoch = replica0(f)->epoch;
        struct msg formed = {.type = MSG_FORMED, .formed = {.term_epoch = epoch}};
        say(f, 3, &formed);
        formed.formed.status = cases[i].formed;
        say(f, 1, &formed);
        spare.hello.instance = 104; /* all spares are equally good, apart from the shard */
        say(f, 4, &spare);
        struct msg trouble = {.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch}};
        say(f, 1, &trouble);
        box_clear(f);
        say_aborted(f, 1, epoch);
        say_aborted(f, 3, epoch);
        wait_ms(f, 1000, 0x1A);
        assert_int_equal(partner_of_one(f), cases[i].want);
        fixture_free(f);
    }
}

static void the_smallest_rank_bounds_the_blocks(void **state)
{
    struct fixture *f = fixture_new(2);
    struct kv_group small = {.block_tokens = 16, .n_blocks = 5};
    struct msg a = worker_hello(101, 0), b = worker_hello(102, 1);
    b.hello.worker.kv_groups = &small;
    say(f, 1, &a);
    say(f, 2, &b);
    const struct msg *m = box_find(f, 1, MSG_FORM);
    assert_int_equal(m->form.n_blocks.n, 1);
    assert_int_equal(m->form.n_blocks.ptr[0], 5);
    fixture_free(f);
}

static void a_worker_that_wishes_to_go_is_let_go_when_free(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = form_pair(f);
    struct msg wish = {.type = MSG_DRAIN_WISH};
    say(f, 2, &wish);
    assert_null(box_find(f, 2, MSG_DRAIN));
    wait_ms(f, 50, 0x6); /* no request runs, so the replica ends at once */
    assert_non_null(box_find(f, 2, MSG_ABORT));
    say_aborted(f, 1, epoch);
    say_aborted(f, 2, epoch);
    const struct msg *m = box_find(f, 2, MSG_DRAIN);
    assert_non_null(m);
    assert_true(m->drain.on);
    wait_ms(f, 1000, 0x6);
    assert_null(box_find(f, 1, MSG_FORM)); /* connection 1 has no partner left */
    fixture_free(f);
}

static const struct event *newest_event(const struct fixture *f, const char *name)
{
    const struct events *all = &f->core->events;
    const struct event *found = NULL;
    for (uint64_t seq = 1; seq < all->next_seq; seq++) {
        const struct event *e = events_get(all, seq);
        if (strcmp(e->name, name) == 0)
            found = e;
    }
    return found;
}

/* A worker that leaves because of a signal, and says so, is no loss. A worker that reports a
 * fault is a loss. Older workers do not send the flag. */
static void a_planned_departure_is_no_loss(void **state)
{
    static const struct {
        const char *text;
        bool planned, wished, lost;
    } cases[] = {
        {"told to end (SIGTERM)", true, true, false},
        {"told to end (SIGTERM), twice", true, true, false},
        /* The worker's DrainWish was lost with a session. */
        {"told to end (SIGINT)", true, false, false},
        {"the GPU is lost", false, true, true},
        {"", false, true, true},
        {"drained", false, true, false},
        {"drain took too long", false, true, false},
        {"told to stop twice", false, true, false},
        /* An older worker never sends this text without a DrainWish. */
        {"drained", false, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture_new(2);
        form_pair(f);
        if (cases[i].wished)
            say(f, 2,
                &(struct msg){.type = MSG_DRAIN_WISH,
                              .drain_wish = {STR("told to end (SIGTERM)")}});
        say(f, 2,
            &(struct msg){.type = MSG_GOODBYE,
                          .goodbye = {str_from(cases[i].text), cases[i].planned}});
        struct head_stats stats;
        head_core_get_stats(f->core, &stats);
        assert_int_equal(stats.n_workers, 1);
        assert_int_equal(stats.n_worker_losses, cases[i].lost);
        assert_int_equal(stats.n_worker_departures, !cases[i].lost);
        assert_int_equal(f->core->cluster.n_failures, cases[i].lost);
        const struct event *e = newest_event(f, cases[i].lost ? "worker_lost" : "worker_left");
        assert_non_null(e);
        assert_int_equal(e->level, cases[i].lost ? LOG_WARN : LOG_INFO);
        assert_non_null(strstr(e->fields, cases[i].text));
        e = newest_event(f, "group_dissolved");
        assert_int_equal(e->level, cases[i].lost ? LOG_WARN : LOG_INFO);
        assert_null(newest_event(f, cases[i].lost ? "worker_left" : "worker_lost"));
        fixture_free(f);
    }
}

static void events_say_who_asked(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    assert_int_equal(head_core_drain_worker(f->core, 102, true, "alice", f->now), STATUS_OK);
    assert_non_null(strstr(newest_event(f, "worker_draining")->fields, "by=\"alice\""));
    assert_int_equal(head_core_drain_worker(f->core, 102, false, "bob", f->now), STATUS_OK);
    assert_non_null(strstr(newest_event(f, "worker_undrained")->fields, "by=\"bob\""));
    head_core_drain_all(f->core, true, "a \"quote\"", f->now);
    assert_non_null(strstr(newest_event(f, "cluster_draining")->fields, "by=\"a \\\"quote\\\"\""));
    head_core_note_scaled(f->core, 2, 4, "carol", f->now);
    assert_string_equal(newest_event(f, "scaled")->fields, "was=2 workers=4 by=\"carol\"");
    say(f, 1, &(struct msg){.type = MSG_DRAIN_WISH, .drain_wish = {STR("told to end (SIGTERM)")}});
    assert_non_null(strstr(newest_event(f, "worker_draining")->fields,
                           "by=\"the worker: told to end (SIGTERM)\""));
    fixture_free(f);
}

static void a_drained_rank_is_replaced_by_a_spare_at_once(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    say_gateway_hello(f, 4, 9);
    static const uint32_t ids[] = {1, 2, 3};
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, 1},
                               .attempt = 1,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = 4}}};
    say(f, 4, &m); /* the request runs */
    assert_int_equal(head_core_drain_worker(f->core, 102, true, "a test", f->now), STATUS_OK);
    wait_ms(f, 200, 0x16);
    /* No worker could take the drained one's place. */
    assert_int_equal(replica0(f)->state, REPLICA_READY);
    struct msg spare = worker_hello(103, 2);
    say(f, 3, &spare);
    wait_ms(f, 50, 0x1E);
    assert_int_equal(replica0(f)->state, REPLICA_ABORTING);
    assert_int_equal(f->core->n_held, 1);
    fixture_free(f);
}

/* The head notifies a worker when its drain ends. Otherwise the worker would report for ever
 * that it is drained. */
static void the_end_of_a_drain_is_told(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg m = worker_hello(101, 0);
    say(f, 1, &m);
    assert_int_equal(head_core_drain_worker(f->core, 101, true, "a test", f->now), STATUS_OK);
    wait_ms(f, 50, 0x2);
    assert_true(box_find(f, 1, MSG_DRAIN)->drain.on);
    box_clear(f);
    assert_int_equal(head_core_drain_worker(f->core, 101, false, "a test", f->now), STATUS_OK);
    wait_ms(f, 50, 0x2);
    assert_non_null(box_find(f, 1, MSG_DRAIN));
    assert_false(box_find(f, 1, MSG_DRAIN)->drain.on);
    box_clear(f);
    wait_ms(f, 500, 0x2);
    assert_null(box_find(f, 1, MSG_DRAIN)); /* the message is sent only once */
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_forms_in_term_one),
        cmocka_unit_test(the_term_is_above_every_term_seen),
        cmocka_unit_test(with_a_lease_a_higher_term_is_looked_into),
        cmocka_unit_test(a_term_without_a_successor_is_refused),
        cmocka_unit_test(a_worker_started_for_another_tp_is_refused),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_worker_that_is_in_no_replica_changes_no_limit),
        cmocka_unit_test(a_lost_rank_waits_for_the_other_ones_aborted),
        cmocka_unit_test(a_process_that_was_started_again_is_the_loss_of_the_one_before),
        cmocka_unit_test(who_is_heard_from_again_has_no_successor),
        cmocka_unit_test(a_failed_join_backs_off_and_doubles),
        cmocka_unit_test(a_formation_has_thirty_seconds),
        cmocka_unit_test(a_rank_that_loads_is_waited_for),
        cmocka_unit_test(a_formation_that_outlasts_its_time_waits_for_a_rank_that_loads),
        cmocka_unit_test(a_stuck_rank_is_lost_and_a_slow_one_is_not),
        cmocka_unit_test(an_idle_whole_replica_is_adopted),
        cmocka_unit_test(ranks_at_different_steps_are_aborted_after_the_window),
        cmocka_unit_test(the_adoption_window_is_three_seconds),
        cmocka_unit_test(a_new_worker_in_the_missing_rank_slot_ends_the_wait),
        cmocka_unit_test(different_configurations_do_not_mix),
        cmocka_unit_test(who_keeps_coming_is_not_mixed),
        cmocka_unit_test(who_has_been_free_for_long_waits_for_nobody),
        cmocka_unit_test(another_configuration_waits_until_the_first_has_gone),
        cmocka_unit_test(ordinals_choose_replica_and_rank),
        cmocka_unit_test(a_spare_that_took_a_shard_is_asked_for_it_again),
        cmocka_unit_test(the_smallest_rank_bounds_the_blocks),
        cmocka_unit_test(a_drained_rank_is_replaced_by_a_spare_at_once),
        cmocka_unit_test(the_end_of_a_drain_is_told),
        cmocka_unit_test(a_worker_that_wishes_to_go_is_let_go_when_free),
        cmocka_unit_test(a_planned_departure_is_no_loss),
        cmocka_unit_test(events_say_who_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
