/* Tests that a gateway whose model has another vocabulary than the workers' model is refused,
 * whichever side connects first. */
#include "head/core/vocabularies.h"
#include "tests/unit/head/core/core_fixture.h"

static struct vocabulary of_kind(char kind)
{
    struct vocabulary_sketcher k;
    struct vocabulary v;
    vocabulary_begin(&k);
    for (uint32_t i = 0; i < 500; i++) {
        uint8_t text[3] = {(uint8_t)kind, (uint8_t)(i >> 8), (uint8_t)i};
        vocabulary_add(&k, i, text, sizeof text);
    }
    vocabulary_end(&k, 500, &v);
    return v;
}

static void gateway_says(struct fixture *f, uint8_t conn, uint64_t instance, char kind)
{
    struct msg m = {.type = MSG_HELLO,
                    .hello = {.node = STR("g"),
                              .instance = instance,
                              .role = ROLE_GATEWAY,
                              .credit_bytes = 1 << 20,
                              .has_vocabulary = true,
                              .vocabulary = of_kind(kind),
                              .model = STR("theirs")}};
    say(f, conn, &m);
}

static void worker_says(struct fixture *f, uint8_t conn, char kind)
{
    say(f, conn,
        &(struct msg){.type = MSG_HEARTBEAT,
                      .heartbeat = {.has_vocabulary = true, .vocabulary = of_kind(kind)}});
}

static bool is_refused(const struct fixture *f, uint8_t conn)
{
    const struct msg *m = box_find(f, conn, MSG_REFUSED);
    assert_true((m != NULL) != (box_find(f, conn, MSG_WELCOME) != NULL));
    if (!m)
        return false;
    assert_int_equal(m->refused.status, STATUS_UNSUPPORTED);
    assert_true(str_eq_c(m->refused.text,
                         "the gateway on g has another model's vocabulary: theirs with 500 tokens, "
                         "but the workers serve null with 500 tokens. Start the gateway with the "
                         "workers' model"));
    return true;
}

static void a_gateway_of_another_model_is_refused(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    worker_says(f, 2, 'a'); /* any rank of the replica may report the vocabulary */
    gateway_says(f, 3, 9, 'b');
    assert_true(is_refused(f, 3));
    assert_non_null(vocabularies_refused(f->core, 0));
    assert_null(vocabularies_refused(f->core, 1));
    gateway_says(f, 4, 10, 'a');
    assert_false(is_refused(f, 4));
    say_gateway_hello(f, 5, 11); /* this older gateway reports no vocabulary */
    assert_false(is_refused(f, 5));
    assert_int_equal(f->core->n_gateways, 2);
    wait_ms(f, 11000, 0x3E);
    assert_null(vocabularies_refused(f->core, 0)); /* the gateway did not connect again */
    assert_int_equal(f->core->n_gateways, 2);
    fixture_free(f);
}

static void nothing_is_compared_that_nobody_says(void **state)
{
    struct fixture *f = fixture_new(2);
    gateway_says(f, 3, 9, 'b');
    form_pair(f); /* older workers or null devices report no vocabulary */
    gateway_says(f, 4, 10, 'c');
    assert_false(is_refused(f, 4));
    wait_ms(f, 1000, 0x1E);
    assert_int_equal(f->core->n_gateways, 2);
    assert_null(box_find(f, 3, MSG_GOODBYE));
    fixture_free(f);
}

static void one_that_has_joined_is_refused_later(void **state)
{
    struct fixture *f = fixture_new(2);
    gateway_says(f, 3, 9, 'b');
    gateway_says(f, 4, 10, 'a');
    form_pair(f);
    wait_ms(f, 200, 0);
    assert_int_equal(f->core->n_gateways, 2);
    worker_says(f, 1, 'a');
    wait_ms(f, HEAD_TICK_MS, 0);
    const struct msg *m = box_find(f, 3, MSG_GOODBYE);
    assert_non_null(m);
    assert_non_null(
        memmem(m->goodbye.text.ptr, m->goodbye.text.len, "another model's vocabulary", 26));
    assert_null(box_find(f, 4, MSG_GOODBYE));
    assert_int_equal(f->core->n_gateways, 1);
    box_clear(f);
    gateway_says(f, 3, 9, 'b');
    assert_true(is_refused(f, 3));
    assert_non_null(vocabularies_refused(f->core, 0));
    assert_null(vocabularies_refused(f->core, 1)); /* only one gateway was refused */
    fixture_free(f);
}

/* A gateway's requests are dropped with the gateway, because their ids mean nothing to the
 * workers' model. */
static void its_requests_go_with_it(void **state)
{
    static const uint32_t ids[3] = {5, 6, 7};
    struct fixture *f = fixture_new(2);
    form_pair(f);
    gateway_says(f, 3, 9, 'b');
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
    say(f, 3, &m);
    assert_non_null(request_table_next(f->core->requests, NULL));
    worker_says(f, 1, 'a');
    wait_ms(f, HEAD_TICK_MS, 0);
    assert_null(request_table_next(f->core->requests, NULL));
    assert_int_equal(f->core->n_gateways, 0);
    fixture_free(f);
}

/* The tokenizer changed between the starts of two workers. A gateway whose vocabulary matches
 * either worker's is accepted. */
static void workers_that_do_not_agree(void **state)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    worker_says(f, 1, 'a');
    worker_says(f, 2, 'b');
    for (uint8_t i = 0; i < 2; i++) {
        gateway_says(f, 3 + i, 9 + i, (char)('a' + i));
        assert_false(is_refused(f, 3 + i));
    }
    gateway_says(f, 5, 11, 'c');
    assert_true(is_refused(f, 5));
    worker_says(f, 2, 'a'); /* this worker was restarted */
    wait_ms(f, HEAD_TICK_MS, 0);
    assert_non_null(box_find(f, 4, MSG_GOODBYE));
    assert_int_equal(f->core->n_gateways, 1);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gateway_of_another_model_is_refused),
        cmocka_unit_test(nothing_is_compared_that_nobody_says),
        cmocka_unit_test(one_that_has_joined_is_refused_later),
        cmocka_unit_test(its_requests_go_with_it),
        cmocka_unit_test(workers_that_do_not_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
