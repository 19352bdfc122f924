/* Tests the compute thread of a worker, with a fake executor that blocks on request. The tests
 * push plans and orders, and the loop's callbacks write one word for each result into `log`.
 * Cases: order of results, dropped steps at an abort, interrupts, the bound of the queue, two
 * steps in flight. No test waits for a clock: the loop stops after a given number of results. */
#include "worker/compute.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/codec/codec.h"

struct fake {
    struct executor base;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool gate, interrupted; /* gate: steps wait until it opens or an interrupt arrives */
    bool deaf;              /* a reset waits for the gate and ignores interrupts */
    uint32_t n_begun, n_under_way, most_under_way;
    const struct msg_plan *under_way[EXECUTOR_MAX_IN_FLIGHT];
    struct arena *arenas[EXECUTOR_MAX_IN_FLIGHT];
    uint32_t n_steps, n_aborts, n_resets, n_joins, n_losses;
    char id[8];
};

static enum status fake_step(struct executor *e, const struct msg_plan *p, struct arena *arena,
                             struct msg_result *out, struct error *err)
{
    struct fake *f = (struct fake *)e;
    pthread_mutex_lock(&f->mutex);
    while (!f->gate && !f->interrupted)
        pthread_cond_wait(&f->wake, &f->mutex);
    bool stop = f->interrupted;
    f->n_steps++;
    pthread_mutex_unlock(&f->mutex);
    if (stop)
        return error_set(err, STATUS_CLOSED, "interrupted");
    if (p->step == 13)
        return error_set(err, STATUS_PROTOCOL, "thirteen");
    uint32_t *id = arena_try_alloc(arena, sizeof *id);
    struct result_item *item = arena_try_array(arena, 1, sizeof *item);
    *id = (uint32_t)p->step + 1000;
    *item = (struct result_item){.slot = 5, .ids = {id, 1}};
    *out = (struct msg_result){
        .term_epoch = p->term_epoch, .step = p->step, .items = item, .n_items = 1};
    return STATUS_OK;
}

/* Begins a step, as on a device that computes on its own. No result is due until the gate opens. */
static enum status fake_begin(struct executor *e, const struct msg_plan *p, struct arena *arena,
                              struct error *err)
{
    struct fake *f = (struct fake *)e;
    pthread_mutex_lock(&f->mutex);
    f->n_begun++;
    bool refused = p->step == 13;
    if (!refused) {
        assert_true(f->n_under_way < EXECUTOR_MAX_IN_FLIGHT);
        f->under_way[f->n_under_way] = p;
        f->arenas[f->n_under_way++] = arena;
        f->most_under_way = f->n_under_way > f->most_under_way ? f->n_under_way : f->most_under_way;
    }
    pthread_mutex_unlock(&f->mutex);
    return refused ? error_set(err, STATUS_PROTOCOL, "thirteen") : STATUS_OK;
}

static bool fake_is_due(struct executor *e)
{
    struct fake *f = (struct fake *)e;
    pthread_mutex_lock(&f->mutex);
    bool due = f->gate || f->interrupted;
    pthread_mutex_unlock(&f->mutex);
    return due;
}

/* Finishes the oldest step. Its plan must still be there. */
static enum status fake_finish(struct executor *e, struct msg_result *out, struct error *err)
{
    struct fake *f = (struct fake *)e;
    const struct msg_plan *p = f->under_way[0];
    struct arena *arena = f->arenas[0];
    f->under_way[0] = f->under_way[1];
    f->arenas[0] = f->arenas[1];
    f->n_under_way--;
    return fake_step(e, p, arena, out, err);
}

static enum status fake_join(struct executor *e, const struct executor_comm *c, struct error *err)
{
    struct fake *f = (struct fake *)e;
    f->n_joins++;
    f->n_losses = 2;
    snprintf(f->id, sizeof f->id, "%.*s", (int)c->id.n, (const char *)c->id.ptr);
    assert_int_equal(c->n_blocks.ptr[0], 77);
    assert_true(str_eq_c(c->addresses[1], "b:1"));
    return STATUS_OK;
}

static enum status fake_reset(struct executor *e, struct error *err)
{
    struct fake *f = (struct fake *)e;
    pthread_mutex_lock(&f->mutex);
    f->n_resets++;
    pthread_cond_broadcast(&f->wake);
    while (f->deaf && !f->gate)
        pthread_cond_wait(&f->wake, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
    return STATUS_OK;
}

static void fake_abort(struct executor *e)
{
    struct fake *f = (struct fake *)e;
    pthread_mutex_lock(&f->mutex);
    f->interrupted = false;
    f->n_under_way = 0;
    f->n_aborts++;
    pthread_mutex_unlock(&f->mutex);
}

static void fake_interrupt(struct executor *e)
{
    struct fake *f = (struct fake *)e;
    pthread_mutex_lock(&f->mutex);
    f->interrupted = true;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->mutex);
}

static enum status fake_check(struct executor *e, struct error *err)
{
    return error_set(err, STATUS_IO, "nobody there");
}

static enum status fake_adapter(struct executor *e, struct msg_adapter *m, struct error *err)
{
    return m->id == 7 && m->on && str_eq_c(m->name, "sql") ? STATUS_OK : STATUS_INVALID;
}

static enum status fake_sleep(struct executor *e, enum sleep_level level, struct error *err)
{
    atomic_store(&e->sleep_level, (uint32_t)level);
    return STATUS_OK;
}

static bool fake_lost_adapter(struct executor *e, uint64_t *id, struct error *why)
{
    struct fake *f = (struct fake *)e;
    if (f->n_losses == 0)
        return false;
    *id = f->n_losses--;
    (void)error_set(why, STATUS_IO, "%llu is gone", (unsigned long long)*id);
    return true;
}

static const struct executor_ops fake_ops = {.adapter = fake_adapter,
                                             .sleep = fake_sleep,
                                             .lost_adapter = fake_lost_adapter,
                                             .step = fake_step,
                                             .join_comm = fake_join,
                                             .reset = fake_reset,
                                             .check = fake_check,
                                             .abort_comm = fake_abort,
                                             .interrupt = fake_interrupt};

static const struct executor_ops fake_async_ops = {.begin = fake_begin,
                                                   .is_due = fake_is_due,
                                                   .finish = fake_finish,
                                                   .adapter = fake_adapter,
                                                   .lost_adapter = fake_lost_adapter,
                                                   .reset = fake_reset,
                                                   .abort_comm = fake_abort,
                                                   .interrupt = fake_interrupt};

struct fixture {
    struct fake fake;
    struct loop *loop;
    struct compute *compute;
    /* one word per result: "p1 " done, "d2 " dropped, "i3 " interrupted, "x4 " refused */
    char log[8192];
    uint32_t n_done, stop_after;
    uint64_t bytes;
};

static void on_done(void *ctx, const struct job_done *d)
{
    struct fixture *f = ctx;
    const char kinds[] = "pjrcals";
    char kind = kinds[d->kind];
    if (d->kind == JOB_CHECK) {
        assert_int_equal(d->status, STATUS_IO);
        assert_string_equal(d->error->text, "nobody there");
        assert_true(d->term_epoch == (1ull << 32 | 2));
    }
    if (d->kind == JOB_JOIN) {
        assert_true(d->losses && d->losses->id == 1 && d->losses->next->id == 2);
        assert_string_equal(d->losses->next->why.text, "2 is gone");
        assert_null(d->losses->next->next);
    } else {
        assert_null(d->losses);
    }
    if (d->kind == JOB_ADAPTER)
        assert_true(d->status == STATUS_OK && d->adapter->id == 7);
    if (d->kind == JOB_PLAN) {
        f->bytes += d->frame_bytes;
        assert_int_equal(d->session, 9);
        if (d->dropped)
            kind = 'd';
        else if (d->status == STATUS_CLOSED)
            kind = 'i';
        else if (d->status != STATUS_OK)
            kind = 'x';
        assert_int_equal(d->result != NULL, kind == 'p');
        if (d->result)
            assert_int_equal(d->result->items[0].ids.ptr[0], d->step + 1000);
    }
    size_t n = strlen(f->log);
    snprintf(f->log + n, sizeof f->log - n, "%c%llu ", kind, (unsigned long long)d->step);
    if (++f->n_done == f->stop_after)
        loop_stop(f->loop);
}

static int set_up_with(void **state, const struct executor_ops *ops)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct error err;
    f->fake.base.ops = ops;
    f->fake.base.in_halves = ops->begin != NULL;
    pthread_mutex_init(&f->fake.mutex, NULL);
    pthread_cond_init(&f->fake.wake, NULL);
    const struct compute_options o = {.executor = &f->fake.base, .on_done = on_done, .ctx = f};
    assert_int_equal(loop_new(&f->loop, &err), STATUS_OK);
    assert_int_equal(compute_start(f->loop, &o, &f->compute, &err), STATUS_OK);
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, &fake_ops);
}

static int set_up_async(void **state)
{
    return set_up_with(state, &fake_async_ops);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    compute_stop(f->compute);
    loop_free(f->loop);
    pthread_cond_destroy(&f->fake.wake);
    pthread_mutex_destroy(&f->fake.mutex);
    free(f);
    return 0;
}

static enum status push(struct fixture *f, uint64_t step, uint64_t *bytes)
{
    struct arena scratch;
    struct strbuf frame;
    struct error err = {0};
    const struct msg m = {.type = MSG_PLAN, .plan = {.term_epoch = 1ull << 32 | 1, .step = step}};
    arena_init(&scratch, 0);
    strbuf_init(&frame, 0);
    assert_int_equal(codec_encode(&m, 9, 1, &scratch, &frame), STATUS_OK);
    enum status s = compute_push_plan(f->compute, &m.plan, 9, strbuf_str(&frame), &err);
    if (s == STATUS_OK && bytes)
        *bytes += frame.len;
    strbuf_fini(&frame);
    arena_fini(&scratch);
    return s;
}

static void open_gate(struct fixture *f)
{
    pthread_mutex_lock(&f->fake.mutex);
    f->fake.gate = true;
    pthread_cond_broadcast(&f->fake.wake);
    pthread_mutex_unlock(&f->fake.mutex);
}

static void run_until(struct fixture *f, uint32_t n_done)
{
    f->stop_after = n_done;
    loop_run(f->loop);
}

static void test_order(void **state)
{
    struct fixture *f = *state;
    struct error err;
    uint64_t bytes = 0;
    const uint32_t n_blocks[] = {77};
    const struct str addresses[] = {STR("a:1"), STR("b:1")};
    open_gate(f);
    assert_int_equal(compute_push_join(f->compute,
                                       &(struct executor_comm){.term_epoch = 1ull << 32 | 1,
                                                               .tp = 2,
                                                               .pp = 1,
                                                               .addresses = addresses,
                                                               .n_addresses = 2,
                                                               .n_blocks = {n_blocks, 1},
                                                               .id = {(const uint8_t *)"xyz", 3}},
                                       &err),
                     STATUS_OK);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(push(f, i, &bytes), STATUS_OK);
    compute_push_reset(f->compute, 1ull << 32 | 2);
    assert_int_equal(push(f, 13, &bytes), STATUS_OK);
    assert_int_equal(push(f, 14, &bytes), STATUS_OK);
    compute_push_check(f->compute, 1ull << 32 | 2);
    run_until(f, 8);
    assert_string_equal(f->log, "j0 p1 p2 p3 r0 x13 p14 c0 ");
    assert_string_equal(f->fake.id, "xyz");
    assert_int_equal(f->bytes, bytes); /* every byte is returned as credit */
}

static void test_abort_drops_and_interrupts(void **state)
{
    struct fixture *f = *state;
    uint64_t bytes = 0;
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(push(f, i, &bytes), STATUS_OK);
    while (!compute_busy(f->compute)) /* step 1 hangs at the gate */
        sched_yield();
    const struct msg load = {.type = MSG_ADAPTER,
                             .adapter = {7, true, STR("sql"), STR("/sql"), {0, 0}}};
    assert_int_equal(compute_push_adapter(f->compute, &load), STATUS_OK);
    compute_push_sleep(f->compute, SLEEP_LEVEL_KV);
    compute_push_abort(f->compute);
    run_until(f, 7);
    /* Dropped steps may be reported before the interrupted step. The abort is always reported
     * last. */
    assert_non_null(strstr(f->log, "i1 "));
    assert_non_null(strstr(f->log, "d2 d3 d4 "));
    /* Orders to load an adapter or to sleep do not belong to an epoch, so they are not dropped. */
    assert_string_equal(f->log + strlen(f->log) - 9, "l0 s0 a0 ");
    assert_int_equal(atomic_load(&f->fake.base.sleep_level), SLEEP_LEVEL_KV);
    assert_int_equal(f->fake.n_steps, 1);
    assert_int_equal(f->bytes, bytes);
    /* The next epoch runs. */
    open_gate(f);
    f->log[0] = '\0';
    assert_int_equal(push(f, 1, &bytes), STATUS_OK);
    run_until(f, 8);
    assert_string_equal(f->log, "p1 ");
}

static void test_queue_is_bounded(void **state)
{
    struct fixture *f = *state;
    uint64_t step = 0;
    while (push(f, step + 1, NULL) == STATUS_OK)
        step++;
    assert_in_range(step, COMPUTE_QUEUE_MAX, COMPUTE_QUEUE_MAX + 1);
    compute_push_abort(f->compute); /* The teardown stops with a full queue and a hanging step. */
}

/* A reset that reads a shard ignores interrupts. The process may end before the reset does. */
static void test_what_hears_no_interrupt(void **state)
{
    struct fixture *f = *state;
    f->fake.deaf = true;
    compute_push_reset(f->compute, 1);
    pthread_mutex_lock(&f->fake.mutex);
    while (f->fake.n_resets == 0)
        pthread_cond_wait(&f->fake.wake, &f->fake.mutex);
    pthread_mutex_unlock(&f->fake.mutex);
    compute_push_reset(f->compute, 2);
    assert_false(compute_end(f->compute, 0));
    assert_false(compute_end(f->compute, 10));
    open_gate(f);
    assert_true(compute_end(f->compute, 60000));
    assert_int_equal(f->fake.n_resets, 1); /* no second reset began */
}

static void wait_begun(struct fixture *f, uint32_t n)
{
    uint32_t begun = 0;
    while (begun < n) {
        pthread_mutex_lock(&f->fake.mutex);
        begun = f->fake.n_begun;
        pthread_mutex_unlock(&f->fake.mutex);
        sched_yield();
    }
}

/* A step begins before the step in front of it is done. All other jobs wait. */
static void test_two_under_way(void **state)
{
    struct fixture *f = *state;
    uint64_t bytes = 0;
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(push(f, i, &bytes), STATUS_OK);
    compute_push_reset(f->compute, 1ull << 32 | 2);
    wait_begun(f, 2);
    assert_true(compute_busy(f->compute));
    assert_int_equal(f->fake.n_resets, 0);
    open_gate(f);
    assert_int_equal(push(f, 5, &bytes), STATUS_OK);
    run_until(f, 6);
    assert_string_equal(f->log, "p1 p2 p3 p4 r0 p5 ");
    assert_int_equal(f->fake.most_under_way, 2);
    assert_false(compute_busy(f->compute));
    assert_int_equal(f->bytes, bytes);
}

/* A refused step that was queued after a running one does not overtake it. */
static void test_refused_behind_one(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(push(f, 1, NULL), STATUS_OK);
    assert_int_equal(push(f, 13, NULL), STATUS_OK);
    wait_begun(f, 2);
    open_gate(f);
    assert_int_equal(push(f, 14, NULL), STATUS_OK);
    run_until(f, 3);
    assert_string_equal(f->log, "p1 x13 p14 ");
}

static void test_abort_of_what_has_begun(void **state)
{
    struct fixture *f = *state;
    uint64_t bytes = 0;
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(push(f, i, &bytes), STATUS_OK);
    wait_begun(f, 2);
    compute_push_abort(f->compute);
    run_until(f, 4);
    assert_non_null(strstr(f->log, "i1 i2 "));
    assert_non_null(strstr(f->log, "d3 "));
    assert_string_equal(f->log + strlen(f->log) - 3, "a0 ");
    assert_int_equal(f->fake.n_begun, 2);
    assert_int_equal(f->bytes, bytes);
    open_gate(f);
    f->log[0] = '\0';
    assert_int_equal(push(f, 1, NULL), STATUS_OK);
    run_until(f, 5);
    assert_string_equal(f->log, "p1 ");
}

static void test_end_with_steps_under_way(void **state)
{
    struct fixture *f = *state;
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(push(f, i, NULL), STATUS_OK);
    wait_begun(f, 2);
    assert_true(compute_end(f->compute, 60000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abort_drops_and_interrupts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_hears_no_interrupt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_under_way, set_up_async, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_behind_one, set_up_async, tear_down),
        cmocka_unit_test_setup_teardown(test_abort_of_what_has_begun, set_up_async, tear_down),
        cmocka_unit_test_setup_teardown(test_end_with_steps_under_way, set_up_async, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
