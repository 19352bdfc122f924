/* Tests requests during which replicas are lost. The head tries such a request again, then runs
 * it alone as a suspect, and then ends it with an error. Scripted workers (`core_fixture.h`)
 * answer plans or report a fault, and the tests read which requests run and how they end. Time
 * advances only by the fixture. All tests run on one thread. */
#include "tests/unit/head/core/core_fixture.h"

static const uint32_t ids[3] = {5, 6, 7};

static void submit(struct fixture *f, uint64_t lo)
{
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, lo},
                               .attempt = 1,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = 400}}};
    say(f, 3, &m);
}

static const struct request *request_of(const struct fixture *f, uint64_t lo)
{
    return request_table_find(f->core->requests, (struct request_id){1, lo}, 0);
}

static bool runs(const struct fixture *f, uint64_t lo)
{
    return request_of(f, lo)->i_replica != NO_REPLICA;
}

/* Rank 0 answers each run of the oldest plan in the box with a token. */
static void answer(struct fixture *f)
{
    static const uint32_t token = 1000;
    static const float gap = 1;
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_non_null(p);
    struct result_item items[8];
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->plan.n_runs; i++)
        if (p->plan.runs[i].sample)
            items[n++] = (struct result_item){
                .slot = p->plan.runs[i].slot, .ids = {&token, 1}, .gaps = {&gap, 1}};
    struct msg m = {
        .type = MSG_RESULT,
        .result = {
            .term_epoch = p->plan.term_epoch, .step = p->plan.step, .items = items, .n_items = n}};
    uint32_t n_done = 0; /* letters up to that plan; later plans still need an answer */
    while (&f->box[n_done++].m != p)
        ;
    for (uint32_t i = 0; i < n_done; i++)
        arena_fini(&f->box[i].arena);
    memmove(f->box, f->box + n_done, (f->n_box - n_done) * sizeof f->box[0]);
    f->n_box -= n_done;
    say(f, 1, &m);
}

/* The replica fails, is dissolved and forms again. */
static void lose_replica(struct fixture *f)
{
    uint64_t epoch = f->core->cluster.replicas[0]->epoch;
    say(f, 1, &(struct msg){.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch}});
    for (uint8_t i = 1; i <= 2; i++)
        say(f, i, &(struct msg){.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}});
    box_clear(f);
    while (!box_find(f, 1, MSG_FORM)) {
        box_clear(f);
        wait_ms(f, 250, 1u << 1 | 1u << 2 | 1u << 3);
    }
    epoch = f->core->cluster.replicas[0]->epoch;
    struct msg id = {.type = MSG_COMM_ID,
                     .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}};
    say(f, 1, &id);
    box_clear(f);
    for (uint8_t i = 1; i <= 2; i++)
        say(f, i, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    assert_true(head_core_is_ready(f->core));
}

/* Waits until a suspect may be tried. */
static void calm(struct fixture *f)
{
    wait_ms(f, 2050, 1u << 1 | 1u << 2 | 1u << 3);
}

static struct fixture *ready_cluster(void)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    say_gateway_hello(f, 3, 9);
    box_clear(f);
    return f;
}

static void after_three_replicas_a_request_fails(void **state)
{
    struct fixture *f = ready_cluster();
    submit(f, 1);
    lose_replica(f);
    assert_true(runs(f, 1));
    lose_replica(f);
    assert_false(runs(f, 1));
    calm(f);
    assert_true(runs(f, 1));
    lose_replica(f);
    const struct msg *t = box_find(f, 3, MSG_TOKENS);
    assert_non_null(t);
    assert_int_equal(t->tokens.items[0].finish, FINISH_ERROR);
    assert_int_equal(t->tokens.items[0].status, STATUS_INTERNAL);
    assert_non_null(strstr(t->tokens.items[0].text.ptr,
                           "3 replicas were lost while they ran this request, before it generated "
                           "a token."));
    fixture_free(f);
}

/* Tokens were sent, so the error must not say that the request has none. */
static void what_it_made_before_is_told(void **state)
{
    struct fixture *f = ready_cluster();
    submit(f, 1);
    answer(f);
    answer(f);
    /* The first loss does not count, because a token was generated before it. */
    for (int i = 0; i < 4; i++) {
        lose_replica(f);
        if (i < 3)
            calm(f);
    }
    const struct msg *t = box_find(f, 3, MSG_TOKENS);
    assert_non_null(t);
    assert_int_equal(t->tokens.items[0].finish, FINISH_ERROR);
    assert_non_null(strstr(t->tokens.items[0].text.ptr,
                           "3 replicas were lost while they ran this request, and it generated no "
                           "token after its first 2. The request may be the cause, so it is not "
                           "tried again."));
    fixture_free(f);
}

/* A request that generates a token between any two losses never ends. */
static void a_token_of_its_own_begins_the_count_anew(void **state)
{
    struct fixture *f = ready_cluster();
    submit(f, 1);
    for (int i = 0; i < 8; i++) {
        lose_replica(f);
        lose_replica(f);
        calm(f);
        answer(f);
    }
    assert_true(runs(f, 1));
    fixture_free(f);
}

/* After two losses the cause may be either request. They run one at a time, so that the head
 * does not blame the wrong request. */
static void suspects_run_one_at_a_time_and_the_innocent_go_on(void **state)
{
    struct fixture *f = ready_cluster();
    submit(f, 1);
    submit(f, 2);
    for (int i = 0; i < 4; i++)
        answer(f); /* both requests have tokens, so the first loss does not count */
    for (int i = 0; i < 2; i++) {
        lose_replica(f);
        assert_true(runs(f, 1) && runs(f, 2));
    }
    lose_replica(f);
    assert_true(!runs(f, 1) && !runs(f, 2));
    calm(f);
    assert_true(runs(f, 1) && !runs(f, 2));
    submit(f, 3); /* request 3 is not a suspect, so it does not wait behind request 2 */
    assert_true(runs(f, 3));
    lose_replica(f); /* this is the third loss of request 1 */
    const struct msg *t = box_find(f, 3, MSG_TOKENS);
    assert_true(t && t->tokens.n_items == 1 && t->tokens.items[0].id.lo == 1);
    assert_int_equal(t->tokens.items[0].finish, FINISH_ERROR);
    assert_true(!runs(f, 2) && runs(f, 3));
    assert_int_equal(request_of(f, 2)->n_losses, 2);
    calm(f);
    assert_true(runs(f, 2));
    for (int i = 0; i < 3; i++)
        answer(f); /* two plans were sent before the first run of the request */
    assert_false(request_is_suspect(request_of(f, 2)));
    fixture_free(f);
}

/* When machines fail one after another, no request is blamed. */
static void a_storm_of_losses_is_waited_out(void **state)
{
    struct fixture *f = ready_cluster();
    submit(f, 1);
    for (int i = 0; i < 5; i++) {
        lose_replica(f);
        assert_int_equal(runs(f, 1), i < 1);
    }
    assert_int_equal(request_of(f, 1)->n_losses, 2);
    calm(f);
    assert_true(runs(f, 1));
    answer(f);
    assert_false(request_is_suspect(request_of(f, 1)));
    fixture_free(f);
}

/* A suspect is tried at some time even after endless losses or beside other suspects. */
static void a_suspect_is_tried_after_ten_seconds_whatever_fails(void **state)
{
    const uint64_t begin_ns = 100 * NS_PER_S;
    struct request r = {.n_prompt = 3, .n_ids = 3};
    assert_true(request_may_be_tried(&r, begin_ns, begin_ns)); /* the request is not a suspect */
    request_count_loss(&r, begin_ns);
    assert_true(request_may_be_tried(&r, begin_ns, begin_ns));
    request_count_loss(&r, begin_ns);
    assert_false(request_may_be_tried(&r, begin_ns, begin_ns));
    assert_false(request_may_be_tried(&r, begin_ns, begin_ns + 2 * NS_PER_S - 1));
    assert_true(request_may_be_tried(&r, begin_ns, begin_ns + 2 * NS_PER_S));
    const uint64_t late_ns = begin_ns + 10 * NS_PER_S;
    assert_false(request_may_be_tried(&r, late_ns - 1, late_ns - 1));
    assert_true(request_may_be_tried(&r, late_ns, late_ns));
}

static void a_drain_is_no_loss(void **state)
{
    struct fixture *f = ready_cluster();
    f->core->cluster.config.drain_timeout_ns = NS_PER_S;
    submit(f, 1);
    assert_int_equal(head_core_drain_worker(f->core, 101, true, "a test", f->now), STATUS_OK);
    wait_ms(f, 1050, 1u << 1 | 1u << 2 | 1u << 3); /* the request does not end in this time */
    assert_int_equal(f->core->cluster.replicas[0]->state, REPLICA_ABORTING);
    assert_int_equal(request_of(f, 1)->n_losses, 0);
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_three_replicas_a_request_fails),
        cmocka_unit_test(what_it_made_before_is_told),
        cmocka_unit_test(a_token_of_its_own_begins_the_count_anew),
        cmocka_unit_test(suspects_run_one_at_a_time_and_the_innocent_go_on),
        cmocka_unit_test(a_storm_of_losses_is_waited_out),
        cmocka_unit_test(a_suspect_is_tried_after_ten_seconds_whatever_fails),
        cmocka_unit_test(a_drain_is_no_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
