/* Tests sleep and rest at the head: which orders workers get, what wakes the cluster, and what
 * happens to requests meanwhile. Scripted workers (`core_fixture.h`) have TP 2. Connection 3 is a
 * gateway, 4 a third worker. Time advances only by the fixture. */
#include "tests/unit/head/core/core_fixture.h"

#include "head/core/scale.h"
#include "head/state/requests.h"

enum { WORKERS = 1u << 1 | 1u << 2, ALL = WORKERS | 1u << 3 };

static void submit(struct fixture *f, uint64_t lo)
{
    static const uint32_t ids[3] = {5, 6, 7};
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, lo},
                               .attempt = 1,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = 2}}};
    say(f, 3, &m);
}

static const struct request *request_of(const struct fixture *f, uint64_t lo)
{
    return request_table_find(f->core->requests, (struct request_id){1, lo}, 0);
}

static struct fixture *start(bool with_gateway)
{
    struct fixture *f = fixture_new(2);
    (void)form_pair(f);
    if (with_gateway)
        say_gateway_hello(f, 3, 300);
    box_clear(f);
    return f;
}

/* Lets seconds pass, and forgets what the head sent meanwhile. */
static void pass(struct fixture *f, uint32_t seconds, uint32_t alive)
{
    for (uint32_t i = 0; i < seconds; i++) {
        box_clear(f);
        wait_ms(f, 1000, alive);
    }
}

static void order(struct fixture *f, enum sleep_level level, bool abort)
{
    head_core_sleep(f->core, level, abort, "test", f->now);
    head_core_turn(f->core, f->now);
}

static enum sleep_state state(const struct fixture *f)
{
    return head_core_sleep_state(f->core)->state;
}

static void slept(struct fixture *f, uint8_t conn, enum sleep_level level)
{
    say(f, conn, &(struct msg){.type = MSG_SLEPT, .slept = {.level = level}});
}

/* Both workers end the epoch and follow the order to sleep. */
static void follow(struct fixture *f, enum sleep_level level)
{
    const struct msg *a = box_find(f, 1, MSG_ABORT);
    assert_non_null(a);
    uint64_t epoch = a->abort_.term_epoch;
    for (uint8_t i = 1; i <= 2; i++) {
        assert_null(box_find(f, i, MSG_SLEEP)); /* only a free worker gets an order */
        say(f, i, &(struct msg){.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}});
    }
    for (uint8_t i = 1; i <= 2; i++) {
        assert_int_equal(box_find(f, i, MSG_SLEEP)->sleep.level, level);
        assert_int_equal(state(f), SLEEP_FALLING);
        slept(f, i, level);
    }
    assert_int_equal(state(f), SLEEP_ASLEEP);
    box_clear(f);
}

/* Both workers join the replica that the head forms. */
static void join(struct fixture *f)
{
    assert_non_null(box_find(f, 1, MSG_FORM));
    uint64_t epoch = box_find(f, 1, MSG_FORM)->form.term_epoch;
    say(f, 1,
        &(struct msg){.type = MSG_COMM_ID,
                      .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}});
    for (uint8_t i = 1; i <= 2; i++)
        say(f, i, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    assert_int_equal(state(f), SLEEP_AWAKE);
    assert_int_equal(f->core->n_live, 1);
}

/* Rank 0 answers the oldest plan with a token for each run. */
static void answer(struct fixture *f)
{
    static const uint32_t token = 1000;
    static const float gap = 1;
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_non_null(p);
    struct result_item item = {.slot = p->plan.runs[0].slot, .ids = {&token, 1}, .gaps = {&gap, 1}};
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = p->plan.term_epoch,
                               .step = p->plan.step,
                               .items = &item,
                               .n_items = p->plan.n_runs > 0}};
    uint32_t n_done = 0; /* letters up to that plan; later plans still need an answer */
    while (&f->box[n_done++].m != p)
        ;
    for (uint32_t i = 0; i < n_done; i++)
        arena_fini(&f->box[i].arena);
    memmove(f->box, f->box + n_done, (f->n_box - n_done) * sizeof f->box[0]);
    f->n_box -= n_done;
    say(f, 1, &m);
}

static void test_a_request_wakes_it(void **unused)
{
    struct fixture *f = start(true);
    order(f, SLEEP_LEVEL_WEIGHTS, false);
    follow(f, SLEEP_LEVEL_WEIGHTS);
    pass(f, 120, ALL);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_null(box_find(f, 1, MSG_FORM));
    /* nothing has to serve, and gateways let requests wait */
    assert_true(head_core_is_ready(f->core) && scale_seconds_to_start(f->core) > 0);
    assert_int_equal(head_core_desired_workers(f->core), 2);
    box_clear(f);
    submit(f, 1);
    assert_int_equal(state(f), SLEEP_WAKING); /* in the turn of the request, not at a tick */
    assert_true(head_core_is_ready(f->core));
    assert_null(box_find(f, 1, MSG_SLEEP)); /* the join wakes the workers */
    join(f);
    assert_non_null(box_find(f, 2, MSG_PLAN));
    assert_int_equal(f->core->cluster.replicas[0]->n_recoveries, 0);
    assert_int_equal(f->core->cluster.n_failures, 0);
    fixture_free(f);
}

static void test_running_requests_end_first(void **unused)
{
    struct fixture *f = start(true);
    submit(f, 1);
    order(f, SLEEP_LEVEL_KV, false);
    assert_int_equal(state(f), SLEEP_WAITING);
    submit(f, 2);
    assert_int_equal(request_of(f, 2)->i_replica, NO_REPLICA); /* new ones wait */
    answer(f);
    assert_int_equal(state(f), SLEEP_WAITING);
    answer(f);
    assert_null(request_of(f, 1)); /* it has ended */
    wait_ms(f, 100, ALL);
    assert_int_equal(state(f), SLEEP_FALLING);
    const struct msg *a = box_find(f, 1, MSG_ABORT);
    for (uint8_t i = 1; i <= 2; i++)
        say(f, i, &(struct msg){.type = MSG_ABORTED, .aborted = {a->abort_.term_epoch}});
    slept(f, 1, SLEEP_LEVEL_KV);
    box_clear(f);
    slept(f, 2, SLEEP_LEVEL_KV);
    assert_int_equal(head_core_sleep_state(f->core)->n_falls, 1); /* it slept, if only a moment */
    assert_int_equal(state(f), SLEEP_WAKING);                     /* request 2 has woken it */
    join(f);
    assert_int_not_equal(request_of(f, 2)->i_replica, NO_REPLICA);
    fixture_free(f);
}

static void test_an_order_does_not_wait_for_ever(void **unused)
{
    struct fixture *f = start(true);
    f->core->config.sleep_wait_ns = 2 * NS_PER_S; /* less than the time until a result is missing */
    submit(f, 1);
    order(f, SLEEP_LEVEL_KV, false);
    submit(f, 2);
    pass(f, 3, ALL);
    assert_int_equal(state(f), SLEEP_AWAKE);
    assert_int_equal(head_core_sleep_state(f->core)->n_called_off, 1);
    assert_int_not_equal(request_of(f, 2)->i_replica, NO_REPLICA);
    /* with mode=abort every request ends at once, with an error */
    box_clear(f);
    order(f, SLEEP_LEVEL_KV, true);
    const struct msg *t = box_find(f, 3, MSG_TOKENS);
    assert_non_null(t);
    assert_int_equal(t->tokens.n_items, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(t->tokens.items[i].status, STATUS_CLOSED);
    fixture_free(f);
}

static void test_levels(void **unused)
{
    struct fixture *f = start(false);
    order(f, SLEEP_LEVEL_KV, false);
    follow(f, SLEEP_LEVEL_KV);
    order(f, SLEEP_LEVEL_WEIGHTS, false);
    for (uint8_t i = 1; i <= 2; i++) {
        assert_int_equal(box_find(f, i, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_WEIGHTS);
        slept(f, i, SLEEP_LEVEL_WEIGHTS);
    }
    assert_int_equal(state(f), SLEEP_ASLEEP);
    box_clear(f);
    order(f, SLEEP_LEVEL_KV, false); /* no change */
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_null(box_find(f, 1, MSG_SLEEP));
    head_core_wake(f->core, "test", f->now);
    head_core_turn(f->core, f->now);
    join(f);
    fixture_free(f);
}

static void test_a_worker_is_lost_and_another_comes(void **unused)
{
    struct fixture *f = start(true);
    order(f, SLEEP_LEVEL_WEIGHTS, false);
    follow(f, SLEEP_LEVEL_WEIGHTS);
    wait_ms(f, 3000, ALL & ~(1u << 2)); /* worker 2 is killed */
    assert_int_equal(f->core->cluster.n_workers, 1);
    submit(f, 1);
    wait_ms(f, 1000, ALL & ~(1u << 2));
    assert_int_equal(state(f), SLEEP_WAKING);
    /* the worker that cannot be placed reads its shard meanwhile */
    assert_int_equal(box_find(f, 1, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_AWAKE);
    slept(f, 1, SLEEP_LEVEL_AWAKE);
    box_clear(f);
    struct msg hello = worker_hello(202, 1);
    say(f, 2, &hello);
    wait_ms(f, 1000, ALL);
    join(f);
    assert_non_null(box_find(f, 1, MSG_PLAN));
    fixture_free(f);
}

static void test_spares_sleep_and_wake_too(void **unused)
{
    struct fixture *f = start(false);
    struct msg hello = worker_hello(204, 2);
    say(f, 4, &hello);
    order(f, SLEEP_LEVEL_WEIGHTS, false);
    assert_int_equal(box_find(f, 4, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_WEIGHTS);
    slept(f, 4, SLEEP_LEVEL_WEIGHTS);
    follow(f, SLEEP_LEVEL_WEIGHTS);
    head_core_wake(f->core, "test", f->now);
    head_core_turn(f->core, f->now);
    join(f);
    head_core_turn(f->core, f->now);
    assert_int_equal(box_find(f, 4, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_AWAKE);
    fixture_free(f);
}

/* Says `m` as a worker of version 2.4 does. */
static void say_older(struct fixture *f, uint8_t conn, const struct msg *m)
{
    struct strbuf b;
    struct arena scratch;
    strbuf_init(&b, 0);
    arena_init(&scratch, 0);
    uint64_t seq = link_next_seq(&f->links[conn]);
    assert_int_equal(codec_encode(m, f->links[conn].session, seq, &scratch, &b), STATUS_OK);
    b.ptr[3] = 4;
    head_core_on_frame(f->core, addr_of(conn), ROLE_NONE, "", strbuf_str(&b), f->now);
    head_core_turn(f->core, f->now);
    strbuf_fini(&b);
    arena_fini(&scratch);
}

static void test_a_worker_that_cannot_or_knows_no_sleep(void **unused)
{
    struct fixture *f = start(false);
    order(f, SLEEP_LEVEL_KV, false);
    uint64_t epoch = box_find(f, 1, MSG_ABORT)->abort_.term_epoch;
    struct msg aborted = {.type = MSG_ABORTED, .aborted = {epoch}};
    say_older(f, 2, &aborted);
    say(f, 1, &aborted);
    assert_null(box_find(f, 2, MSG_SLEEP));
    say(f, 1,
        &(struct msg){.type = MSG_SLEPT,
                      .slept = {SLEEP_LEVEL_WEIGHTS, STATUS_NO_MEMORY, STR("no room")}});
    assert_int_equal(state(f), SLEEP_ASLEEP);
    fixture_free(f);
}

static void test_the_next_head_lets_them_sleep(void **unused)
{
    struct fixture *f = fixture_new(2);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        hello.hello.worker.sleep_level = SLEEP_LEVEL_WEIGHTS;
        say(f, i, &hello);
    }
    say_gateway_hello(f, 3, 300);
    wait_ms(f, 10000, ALL);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_null(box_find(f, 1, MSG_FORM));
    box_clear(f);
    submit(f, 1);
    join(f);
    fixture_free(f);
}

/* Rank 0 of a replica of TP 1 gives its communicator id, and so gets Join. */
static uint64_t begin_alone(struct fixture *f, uint8_t conn)
{
    assert_non_null(box_find(f, conn, MSG_FORM));
    uint64_t epoch = box_find(f, conn, MSG_FORM)->form.term_epoch;
    say(f, conn,
        &(struct msg){.type = MSG_COMM_ID,
                      .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}});
    assert_non_null(box_find(f, conn, MSG_JOIN));
    return epoch;
}

static void formed(struct fixture *f, uint8_t conn, uint64_t epoch, enum status status)
{
    say(f, conn, &(struct msg){.type = MSG_FORMED, .formed = {epoch, status, STR("")}});
}

static void aborted(struct fixture *f, uint8_t conn)
{
    const struct msg *a = box_find(f, conn, MSG_ABORT);
    assert_non_null(a);
    say(f, conn, &(struct msg){.type = MSG_ABORTED, .aborted = {a->abort_.term_epoch}});
}

/* Two replicas of TP 1, with the workers 1 and 2, that sleep and then get the order to wake. */
static struct fixture *start_two_waking(void)
{
    struct fixture *f = fixture_new(1);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        hello.hello.worker.tp = 1;
        hello.hello.worker.sleep_level = SLEEP_LEVEL_WEIGHTS;
        say(f, i, &hello);
    }
    assert_int_equal(state(f), SLEEP_ASLEEP);
    box_clear(f);
    head_core_wake(f->core, "test", f->now);
    wait_ms(f, 400, WORKERS);
    return f;
}

/* The join has woken a worker, although its replica was dissolved before it answered. */
static void test_a_joining_worker_sleeps_too(void **unused)
{
    struct fixture *f = start_two_waking();
    formed(f, 1, begin_alone(f, 1), STATUS_OK);
    assert_int_equal(state(f), SLEEP_AWAKE);
    uint64_t epoch = begin_alone(f, 2);
    box_clear(f);
    order(f, SLEEP_LEVEL_WEIGHTS, false);
    aborted(f, 1);
    slept(f, 1, SLEEP_LEVEL_WEIGHTS);
    formed(f, 2, epoch, STATUS_OK); /* it has loaded its shard meanwhile */
    aborted(f, 2);
    assert_int_equal(state(f), SLEEP_FALLING);
    assert_int_equal(box_find(f, 2, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_WEIGHTS);
    slept(f, 2, SLEEP_LEVEL_WEIGHTS);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    fixture_free(f);
}

/* An abort may come before a join begins, so the head does not know whether the join has woken
 * the worker. */
static void test_a_worker_whose_join_failed_gets_an_order(void **unused)
{
    struct fixture *f = start_two_waking();
    formed(f, 1, begin_alone(f, 1), STATUS_OK);
    uint64_t epoch = begin_alone(f, 2);
    slept(f, 2, SLEEP_LEVEL_WEIGHTS); /* this answers an order that came before the join */
    box_clear(f);
    formed(f, 2, epoch, STATUS_IO);
    aborted(f, 2);
    wait_ms(f, HEAD_TICK_MS, WORKERS);
    assert_int_equal(box_find(f, 2, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_AWAKE);
    fixture_free(f);
}

/* A model that cannot wake, because a worker is missing or does not load, can be put to sleep. */
static void test_a_waking_cluster_sleeps_again(void **unused)
{
    struct fixture *f = start(true);
    order(f, SLEEP_LEVEL_KV, false);
    follow(f, SLEEP_LEVEL_KV);
    submit(f, 1);
    assert_int_equal(state(f), SLEEP_WAKING);
    assert_non_null(box_find(f, 1, MSG_FORM));
    order(f, SLEEP_LEVEL_WEIGHTS, true);
    assert_int_equal(box_find(f, 3, MSG_TOKENS)->tokens.items[0].status, STATUS_CLOSED);
    assert_int_equal(state(f), SLEEP_FALLING);
    follow(f, SLEEP_LEVEL_WEIGHTS);
    pass(f, 5, ALL);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    fixture_free(f);
}

/* The last order counts: a second order to sleep cancels an order to wake that came before it. */
static void test_the_last_order_counts(void **unused)
{
    struct fixture *f = start(false);
    order(f, SLEEP_LEVEL_KV, false);
    head_core_wake(f->core, "test", f->now);
    assert_int_equal(state(f), SLEEP_FALLING);
    order(f, SLEEP_LEVEL_KV, false);
    follow(f, SLEEP_LEVEL_KV);
    pass(f, 5, ALL);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    fixture_free(f);
}

/* The workers must read an adapter, so an order to load one wakes them; a refused one does not. */
static void test_an_adapter_wakes_it(void **unused)
{
    struct error err = {0};
    struct fixture *f = fixture_new(2);
    f->config.max_loras = 2;
    head_core_free(f->core);
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    (void)form_pair(f);
    order(f, SLEEP_LEVEL_KV, false);
    follow(f, SLEEP_LEVEL_KV);
    assert_int_not_equal(
        head_core_load_adapter(f->core, STR(""), STR("/a"), false, "test", f->now, &err),
        STATUS_OK);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_int_equal(
        head_core_load_adapter(f->core, STR("a"), STR("/a"), false, "test", f->now, &err),
        STATUS_OK);
    assert_int_equal(state(f), SLEEP_WAKING);
    fixture_free(f);
}

/* A worker that cannot wake is asked again after a while, since no other order would wake it. */
static void test_a_refused_wake_is_repeated(void **unused)
{
    const uint32_t alive = WORKERS | 1u << 4;
    struct fixture *f = start(false);
    struct msg hello = worker_hello(204, 2);
    hello.hello.worker.sleep_level = SLEEP_LEVEL_WEIGHTS;
    say(f, 4, &hello); /* a spare */
    for (uint32_t again = 0; again < 2; again++) {
        assert_int_equal(box_find(f, 4, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_AWAKE);
        box_clear(f);
        say(f, 4,
            &(struct msg){.type = MSG_SLEPT, .slept = {again, STATUS_IO, STR("no such file")}});
        wait_ms(f, 1000, alive);
        assert_null(box_find(f, 4, MSG_SLEEP));
        pass(f, 3, alive);
        wait_ms(f, 2000, alive);
    }
    box_clear(f);
    slept(f, 4, SLEEP_LEVEL_KV); /* a late answer: the worker does not do what was ordered last */
    assert_int_equal(box_find(f, 4, MSG_SLEEP)->sleep.level, SLEEP_LEVEL_AWAKE);
    slept(f, 4, SLEEP_LEVEL_AWAKE);
    box_clear(f);
    pass(f, 6, alive);
    assert_null(box_find(f, 4, MSG_SLEEP));
    fixture_free(f);
}

/* A request that came and ended since the last update of the hint must not undo an order to rest,
 * because that would start the workers which the order is to end. */
static void test_a_rest_holds_after_a_request(void **unused)
{
    struct error err = {0};
    struct fixture *f = start(true);
    f->core->config.scale.min_replicas = 0;
    pass(f, 6, ALL); /* the hint is known */
    assert_int_equal(head_core_desired_workers(f->core), 2);
    submit(f, 1);
    answer(f);
    answer(f);
    assert_null(request_of(f, 1));
    assert_int_equal(head_core_rest(f->core, &err), STATUS_OK);
    wait_ms(f, 1500, ALL);
    assert_int_equal(head_core_desired_workers(f->core), 0);
    box_clear(f);
    submit(f, 2); /* the next one asks for workers at once */
    wait_ms(f, HEAD_TICK_MS, ALL);
    assert_int_equal(head_core_desired_workers(f->core), 2);
    fixture_free(f);
}

/* ---- held sleep ---- */

static void rest_at(struct fixture *f, enum sleep_level level, enum status expected)
{
    struct error err = {0};
    assert_int_equal(head_core_rest_asleep(f->core, level, f->now, &err), expected);
    head_core_turn(f->core, f->now);
}

static struct fixture *start_held(enum sleep_level level)
{
    struct fixture *f = start(true);
    f->core->config.scale.min_replicas = 0;
    f->core->config.scale.idle_ns = 2 * NS_PER_S;
    pass(f, 6, ALL); /* the hint is known */
    box_clear(f);
    rest_at(f, level, STATUS_OK);
    assert_int_equal(head_core_count_asleep(f->core), 0);
    follow(f, level);
    assert_int_equal(head_core_count_asleep(f->core), 2);
    assert_int_equal(head_core_desired_workers(f->core), 0);
    return f;
}

/* The memory of the workers may be in use, so a request only asks for them, as long as it waits. */
static void test_only_an_order_ends_a_held_sleep(void **unused)
{
    struct fixture *f = start_held(SLEEP_LEVEL_WEIGHTS);
    head_core_wake(f->core, "a person", f->now);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_int_equal(head_core_desired_workers(f->core), 2);
    pass(f, 4, ALL);
    assert_int_equal(head_core_desired_workers(f->core), 0); /* nobody has waited since */
    submit(f, 1);
    assert_int_equal(head_core_desired_workers(f->core), 2); /* at once, not at a tick */
    pass(f, 10, ALL);                                        /* longer than idle_ns */
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_int_equal(head_core_desired_workers(f->core), 2);
    assert_true(head_core_is_ready(f->core) && scale_seconds_to_start(f->core) > 0);
    box_clear(f);
    head_core_end_rest(f->core, f->now);
    head_core_turn(f->core, f->now);
    assert_int_equal(state(f), SLEEP_WAKING);
    join(f);
    assert_int_not_equal(request_of(f, 1)->i_replica, NO_REPLICA);
    fixture_free(f);
}

static void test_a_held_sleep_deepens_while_requests_wait(void **unused)
{
    struct fixture *f = start_held(SLEEP_LEVEL_KV);
    submit(f, 1);
    wait_ms(f, HEAD_TICK_MS, ALL);
    rest_at(f, SLEEP_LEVEL_WEIGHTS, STATUS_OK);
    assert_int_equal(state(f), SLEEP_FALLING);
    assert_int_equal(head_core_count_asleep(f->core), 0);
    slept(f, 1, SLEEP_LEVEL_WEIGHTS);
    slept(f, 2, SLEEP_LEVEL_WEIGHTS);
    assert_int_equal(head_core_count_asleep(f->core), 2);
    pass(f, 2, ALL);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_int_equal(head_core_desired_workers(f->core), 2); /* it still waits */
    fixture_free(f);
}

static void test_a_held_sleep_is_refused_with_requests(void **unused)
{
    struct fixture *f = start(true);
    f->core->config.scale.min_replicas = 0;
    pass(f, 6, ALL);
    box_clear(f);
    submit(f, 1);
    rest_at(f, SLEEP_LEVEL_WEIGHTS, STATUS_EXISTS);
    assert_int_equal(state(f), SLEEP_AWAKE);
    assert_false(head_core_sleep_state(f->core)->held);
    fixture_free(f);
}

/* A worker that could not give its memory back is not counted, although the head waits no longer.
 */
static void test_a_worker_that_cannot_sleep_is_not_counted(void **unused)
{
    struct fixture *f = start(true);
    f->core->config.scale.min_replicas = 0;
    pass(f, 6, ALL);
    box_clear(f);
    rest_at(f, SLEEP_LEVEL_WEIGHTS, STATUS_OK);
    uint64_t epoch = box_find(f, 1, MSG_ABORT)->abort_.term_epoch;
    for (uint8_t i = 1; i <= 2; i++)
        say(f, i, &(struct msg){.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}});
    slept(f, 1, SLEEP_LEVEL_WEIGHTS);
    say(f, 2, &(struct msg){.type = MSG_SLEPT, .slept = {0, STATUS_IO, STR("no")}});
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_int_equal(head_core_count_asleep(f->core), 1);
    fixture_free(f);
}

/* A head that starts again does not know to which model the memory was given. */
static void test_the_next_head_holds_the_sleep(void **unused)
{
    struct fixture *f = fixture_new(2);
    f->config.wake_by_order = true;
    f->config.scale.min_replicas = 0;
    f->config.scale.settle_ns = 0;
    head_core_free(f->core);
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        hello.hello.worker.sleep_level = SLEEP_LEVEL_WEIGHTS;
        say(f, i, &hello);
    }
    say_gateway_hello(f, 3, 300);
    pass(f, 5, ALL);
    assert_int_equal(head_core_desired_workers(f->core), 0); /* nobody has asked */
    submit(f, 1);
    pass(f, 5, ALL);
    assert_int_equal(state(f), SLEEP_ASLEEP);
    assert_true(head_core_sleep_state(f->core)->held);
    assert_int_equal(head_core_desired_workers(f->core), 2);
    box_clear(f);
    head_core_end_rest(f->core, f->now);
    head_core_turn(f->core, f->now);
    join(f);
    fixture_free(f);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(test_a_request_wakes_it),
        T(test_running_requests_end_first),
        T(test_an_order_does_not_wait_for_ever),
        T(test_levels),
        T(test_a_worker_is_lost_and_another_comes),
        T(test_spares_sleep_and_wake_too),
        T(test_a_worker_that_cannot_or_knows_no_sleep),
        T(test_the_next_head_lets_them_sleep),
        T(test_a_joining_worker_sleeps_too),
        T(test_a_worker_whose_join_failed_gets_an_order),
        T(test_a_waking_cluster_sleeps_again),
        T(test_the_last_order_counts),
        T(test_an_adapter_wakes_it),
        T(test_a_refused_wake_is_repeated),
        T(test_a_rest_holds_after_a_request),
        T(test_only_an_order_ends_a_held_sleep),
        T(test_a_held_sleep_deepens_while_requests_wait),
        T(test_a_held_sleep_is_refused_with_requests),
        T(test_a_worker_that_cannot_sleep_is_not_counted),
        T(test_the_next_head_holds_the_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
