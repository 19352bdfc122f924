/* Tests what the head counts for tenants while requests run: steps that tenants share, requests
 * that are cancelled, lost with their replica, or replaced by a later Submit. Scripted workers
 * (`core_fixture.h`) answer plans with step times of the test. fixture_free checks that the
 * tenants sum to the totals. Time advances only by the fixture. */
#include "tests/unit/head/core/core_fixture.h"

enum { N_PROMPT = 40 };
static uint32_t ids[N_PROMPT + 8];

static struct msg submit_of(uint64_t lo, uint64_t tenant, uint32_t n_prompt)
{
    for (uint32_t i = 0; i < N_PROMPT; i++)
        ids[i] = 5 + i;
    for (uint32_t i = 0; i < 8; i++)
        ids[N_PROMPT + i] = 1000;
    struct str name = tenant == 1 ? STR("one") : STR("two");
    return (struct msg){.type = MSG_SUBMIT,
                        .submit = {.id = {1, lo},
                                   .attempt = 1,
                                   .tenant = tenant,
                                   .tenant_name = name,
                                   .n_prompt = n_prompt,
                                   .ids = {ids, n_prompt},
                                   .asks_usage = true,
                                   .sampling = {.top_p = 1,
                                                .repetition_penalty = 1,
                                                .n_logprobs = -1,
                                                .n_prompt_logprobs = -1,
                                                .max_tokens = 8}}};
}

static struct usage_counts used_by(const struct fixture *f, const char *name)
{
    const struct usage *u = &f->core->usage;
    for (uint32_t i = 1; i <= u->n_rows; i++)
        if (strcmp(u->rows[i].name, name) == 0)
            return usage_row_now(u, &u->rows[i]);
    fail_msg("%s has no row", name);
    return (struct usage_counts){0};
}

static struct usage_counts used_by_all(const struct fixture *f)
{
    return usage_totals_now(&f->core->usage);
}

/* Rank 0 answers the oldest plan in the box, whose step took execute_ms, after wait_ms more. */
static void answer(struct fixture *f, uint64_t execute_ms, uint64_t wait_ms)
{
    static const uint32_t token = 1000;
    static const float gap = 1, value = -1;
    static const struct logprob_row row = {{&token, 1}, {&value, 1}, 1};
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_non_null(p);
    struct result_item items[8];
    uint32_t n = 0, n_done = 0;
    for (uint32_t i = 0; i < p->plan.n_runs; i++)
        if (p->plan.runs[i].sample)
            items[n++] = (struct result_item){.slot = p->plan.runs[i].slot,
                                              .ids = {&token, 1},
                                              .gaps = {&gap, 1},
                                              .logprobs = &row,
                                              .n_logprobs = 1};
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = p->plan.term_epoch,
                               .step = p->plan.step,
                               .execute_ns = execute_ms * MS,
                               .items = items,
                               .n_items = n}};
    while (&f->box[n_done++].m != p)
        ;
    for (uint32_t i = 0; i < n_done; i++)
        arena_fini(&f->box[i].arena);
    memmove(f->box, f->box + n_done, (f->n_box - n_done) * sizeof f->box[0]);
    f->n_box -= n_done;
    f->now += wait_ms * MS;
    say(f, 1, &m);
}

static struct fixture *ready_cluster(void)
{
    struct fixture *f = fixture_new(2);
    f->config.depth = 1;
    head_core_free(f->core);
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    form_pair(f);
    say_gateway_hello(f, 3, 9);
    box_clear(f);
    return f;
}

static void say_submit(struct fixture *f, uint64_t lo, uint64_t tenant, uint32_t n_prompt)
{
    struct msg m = submit_of(lo, tenant, n_prompt);
    say(f, 3, &m);
}

static void two_tenants_share_a_step(void **state)
{
    struct fixture *f = ready_cluster();
    say_submit(f, 1, 1, 40);
    answer(f, 10, 12); /* 40 tokens of `one` */
    say_submit(f, 2, 2, 20);
    answer(f, 3, 3);    /* a decode of `one`, which was planned before */
    answer(f, 21, 100); /* a decode of `one`; `two` finds 16 of 20 tokens: another salt, so none */
    struct usage_counts one = used_by(f, "one"), two = used_by(f, "two"), all = used_by_all(f);
    assert_int_equal(one.n_requests + two.n_requests, 2);
    assert_int_equal(one.n_prompt_tokens, 40);
    assert_int_equal(two.n_prompt_tokens, 20);
    assert_int_equal(one.n_generated_tokens, 3);
    assert_int_equal(two.n_generated_tokens, 1);
    assert_int_equal(one.step_ns, 14 * MS);
    assert_int_equal(two.step_ns, 20 * MS);
    assert_int_equal(all.step_ns, 34 * MS);
    /* `one` holds 3 blocks for 115 ms, `two` 2 blocks for 100 ms */
    assert_int_equal(one.block_ms, 3 * 115);
    assert_int_equal(two.block_ms, 2 * 100);
    fixture_free(f);
}

static void a_step_takes_no_longer_than_the_head_waited(void **state)
{
    struct fixture *f = ready_cluster();
    say_submit(f, 1, 1, 40);
    answer(f, 5000, 7);
    assert_int_equal(used_by(f, "one").step_ns, 7 * MS);
    fixture_free(f);
}

static void cached_tokens_count_apart(void **state)
{
    struct fixture *f = ready_cluster();
    say_submit(f, 1, 1, 40);
    answer(f, 1, 1);
    say_submit(f, 2, 1, 40);
    answer(f, 1, 1);
    answer(f, 1, 1);
    struct usage_counts one = used_by(f, "one");
    assert_true(one.n_cached_tokens >= 32);
    assert_int_equal(one.n_cached_tokens + one.n_prompt_tokens, 80);
    fixture_free(f);
}

static void time_of_a_cancelled_request_is_charged(void **state)
{
    struct fixture *f = ready_cluster();
    say_submit(f, 1, 1, 40);
    say(f, 3, &(struct msg){.type = MSG_CANCEL, .cancel = {.id = {1, 1}, .attempt = 1}});
    answer(f, 10, 10);
    struct usage_counts one = used_by(f, "one");
    assert_int_equal(one.n_prompt_tokens, 40);
    assert_int_equal(one.n_generated_tokens, 0);
    assert_int_equal(one.step_ns, 10 * MS);
    assert_int_equal(one.block_ms, 0);
    assert_int_equal(f->core->usage.n_blocks, 0);
    fixture_free(f);
}

/* The replica fails and forms again. */
static void lose_replica(struct fixture *f)
{
    for (uint32_t again = 0; again < 2; again++) {
        uint64_t epoch = f->core->cluster.replicas[0]->epoch;
        if (again) {
            struct msg id = {.type = MSG_COMM_ID,
                             .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}};
            say(f, 1, &id);
            box_clear(f);
        } else {
            say(f, 1, &(struct msg){.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch}});
        }
        for (uint8_t i = 1; i <= 2; i++) {
            struct msg m = {.type = again ? MSG_FORMED : MSG_ABORTED};
            if (again)
                m.formed.term_epoch = epoch;
            else
                m.aborted.term_epoch = epoch;
            say(f, i, &m);
        }
        while (!again && !box_find(f, 1, MSG_FORM)) {
            box_clear(f);
            wait_ms(f, 250, 1u << 1 | 1u << 2 | 1u << 3);
        }
    }
}

static void work_that_is_done_twice_counts_as_time_only(void **state)
{
    struct fixture *f = ready_cluster();
    say_submit(f, 1, 1, 40);
    answer(f, 10, 10);
    answer(f, 1, 1);
    lose_replica(f); /* the step in flight is lost, so nobody knows its time */
    assert_int_equal(f->core->usage.n_blocks, 3);
    answer(f, 12, 12);
    struct usage_counts one = used_by(f, "one");
    assert_int_equal(one.n_requests, 1);
    assert_int_equal(one.n_prompt_tokens, 40);
    assert_int_equal(one.n_cached_tokens, 0);
    assert_int_equal(one.n_generated_tokens, 3);
    assert_int_equal(one.step_ns, 23 * MS);
    fixture_free(f);
}

/* The gateway returns without rows of log-probabilities that were sent. The request begins anew. */
static void a_replaced_request_counts_once(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 40);
    m.submit.sampling.n_logprobs = 0;
    say(f, 3, &m);
    for (int i = 0; i < 4; i++)
        answer(f, 1, 1);
    const struct request *r = request_table_find(f->core->requests, (struct request_id){1, 1}, 0);
    assert_int_equal(r->n_delivered, 4);
    say_gateway_hello(f, 4, 9);
    m.submit.attempt = 2;
    m.submit.ids.n = 41;
    f->now += 100 * MS; /* the first request still holds its blocks */
    say(f, 4, &m);
    r = request_table_find(f->core->requests, (struct request_id){1, 1}, 0);
    assert_int_equal(request_n_generated(r), 1); /* another request: it has one token */
    assert_int_equal(r->usage.block_ms, used_by(f, "one").block_ms);
    for (int i = 0; i < 4; i++) /* the first answer is to a plan of the first request */
        answer(f, 1, 1);
    assert_int_equal(used_by(f, "one").n_generated_tokens, 4);
    answer(f, 1, 1);
    struct usage_counts one = used_by(f, "one");
    assert_int_equal(one.n_requests, 1);
    assert_int_equal(one.n_prompt_tokens + one.n_cached_tokens, 40);
    assert_int_equal(one.n_generated_tokens, 5);
    assert_int_equal(f->core->usage.n_rows, 1);
    fixture_free(f);
}

static void items_say_what_the_request_used(void **state)
{
    struct fixture *f = ready_cluster();
    say_submit(f, 1, 1, 40);
    answer(f, 10, 10);
    answer(f, 2, 5);
    const struct tokens_item *t = NULL;
    for (uint32_t i = 0; i < f->n_box; i++)
        if (f->box[i].m.type == MSG_TOKENS)
            t = &f->box[i].m.tokens.items[0];
    assert_non_null(t);
    assert_int_equal(t->step_ns, 12 * MS);
    assert_int_equal(t->block_ms, 3 * 15);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_tenants_share_a_step),
        cmocka_unit_test(a_step_takes_no_longer_than_the_head_waited),
        cmocka_unit_test(cached_tokens_count_apart),
        cmocka_unit_test(time_of_a_cancelled_request_is_charged),
        cmocka_unit_test(work_that_is_done_twice_counts_as_time_only),
        cmocka_unit_test(a_replaced_request_counts_once),
        cmocka_unit_test(items_say_what_the_request_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
