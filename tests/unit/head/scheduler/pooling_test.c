/* Tests requests for a vector at the head. They end with their prompts, and mean pooling needs
 * the whole prompt computed. */
#include "tests/unit/head/scheduler/scheduler_bed.h"

static const float numbers[] = {1.5f, -2, 0, 3};
static const struct f32_span vector = {numbers, 4};

static struct request *add_pooling(struct bed *b, uint32_t n_prompt, enum pooling_kind kind)
{
    struct msg_submit m = submit(b, n_prompt, 7);
    m.sampling.pooling = kind;
    m.sampling.pooling_normalise = true;
    m.sampling.n_logprobs = 3;
    struct request *r = make(b, &m);
    assert_int_equal(scheduler_add(b->s, r), STATUS_OK);
    return r;
}

/* Plans a step and answers it, with the vector `v` in each item. An empty `v` means no vector. */
static void turn_with(struct bed *b, struct f32_span v)
{
    struct answer a;
    const struct msg_plan *p = step(b);
    assert_non_null(p);
    answer(p, STOP_ID, &a);
    for (uint32_t i = 0; i < a.m.n_items; i++)
        a.items[i].vector = v;
    give(b, &a);
}

static void nothing_is_sampled(void **state)
{
    struct scheduler_config c = config(100);
    struct tokens_item t;
    struct bed b;
    open_bed(&b, &c);
    struct request *r = add_pooling(&b, 20, POOLING_LAST);
    assert_int_equal(r->ids_cap, 21);
    const struct msg_plan *p = step(&b);
    const struct sampling_params *s = &p->admits[0].sampling;
    assert_true(s->pooling == POOLING_LAST && s->pooling_normalise);
    assert_true(s->n_logprobs == -1 && s->stop_ids.n == 0 && s->max_tokens == 1);
    assert_true(p->runs[0].n_tokens == 20 && p->runs[0].sample);
    struct answer a;
    answer(p, STOP_ID, &a);
    a.items[0].vector = vector;
    give(&b, &a);
    assert_true(b.n_events == 1 && b.events[0].ended && r->state == REQUEST_FINISHED);
    request_fill_tokens(r, 0, 1, &t);
    assert_int_equal(t.ids.n, 0);
    assert_int_equal(t.finish, FINISH_STOP);
    assert_int_equal(t.vector.n, 4);
    assert_memory_equal(t.vector.ptr, numbers, sizeof numbers);
    /* the vector is a copy, because the frame is gone by then */
    assert_true(t.vector.ptr != numbers);
    assert_null(step(&b));
    close_bed(&b);
}

static void vectors_answer_whom_they_should(void **state)
{
    static const struct {
        enum pooling_kind kind;
        bool vector;
        enum status want;
    } cases[] = {{POOLING_NONE, false, STATUS_OK},
                 {POOLING_NONE, true, STATUS_PROTOCOL},
                 {POOLING_LAST, true, STATUS_OK},
                 {POOLING_LAST, false, STATUS_PROTOCOL},
                 {POOLING_MEAN, false, STATUS_PROTOCOL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scheduler_config c = config(100);
        struct bed b;
        struct answer a;
        struct error err;
        open_bed(&b, &c);
        add_pooling(&b, 5, cases[i].kind);
        answer(step(&b), OTHER_ID, &a);
        if (cases[i].vector)
            a.items[0].vector = vector;
        assert_int_equal(scheduler_on_result(b.s, &a.m, b.now_ns, &b.events, &b.n_events, &err),
                         cases[i].want);
        close_bed(&b);
    }
}

/* A prompt of two chunks ends with the vector of its second step. A last chunk of one token does
 * not count as a decode. */
static void chunks_end_with_the_vector(void **state)
{
    static const uint32_t lengths[] = {65, 100, 128};
    for (size_t i = 0; i < 3; i++) {
        struct scheduler_config c = config(100);
        struct bed b;
        open_bed(&b, &c);
        struct request *r = add_pooling(&b, lengths[i], POOLING_MEAN);
        turn_with(&b, vector); /* the answer to the first chunk has no item */
        assert_int_equal(r->finish, FINISH_NONE);
        turn_with(&b, vector);
        assert_int_equal(r->state, REQUEST_FINISHED);
        close_bed(&b);
    }
}

/* Blocks of an earlier request serve last-token pooling, but not mean pooling. */
static void a_mean_takes_nothing_over(void **state)
{
    struct scheduler_config c = config(100);
    struct bed b;
    c.enable_prefix_caching = true;
    open_bed(&b, &c);
    add(&b, 40, 1);
    turn(&b, OTHER_ID);
    struct request *mean = add_pooling(&b, 40, POOLING_MEAN);
    turn_with(&b, vector);
    struct request *last = add_pooling(&b, 40, POOLING_LAST);
    const struct msg_plan *p = step(&b);
    assert_true(p->admits[0].n_computed >= 32);
    assert_true(mean->n_cached == 0 && last->n_cached >= 32);
    struct answer a;
    answer(p, OTHER_ID, &a);
    a.items[0].vector = vector;
    give(&b, &a);
    close_bed(&b);
}

static void bad_submits_are_refused(void **state)
{
    struct bed b = {.n_requests = 0};
    struct msg_submit m = submit(&b, 5, 1);
    struct request *r;
    struct error err;
    m.sampling.pooling = POOLING_MEAN;
    m.ids.n = 6; /* the token of an earlier attempt cannot exist here */
    assert_int_equal(request_new(NULL, &m, 1024, 1, &r, &err), STATUS_INVALID);
    m.ids.n = 5;
    m.sampling.max_tokens = 0;
    assert_int_equal(request_new(NULL, &m, 1024, 1, &r, &err), STATUS_OK);
    assert_int_equal(r->ids_cap, 6);
    request_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_sampled),
        cmocka_unit_test(vectors_answer_whom_they_should),
        cmocka_unit_test(chunks_end_with_the_vector),
        cmocka_unit_test(a_mean_takes_nothing_over),
        cmocka_unit_test(bad_submits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
