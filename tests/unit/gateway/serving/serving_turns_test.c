/* Tests that tenants take turns at the link to the head, and that a tenant does not wait for
 * another tenant's large submits. */
#include "serving_world.h"

#include "gateway/dialects/dialects.h"
#include "gateway/prepare/dialect.h"

/* Posts `n` choices of tenant 1, each with a schema of 100 KB. */
static void post_large(uint32_t n)
{
    enum { LEN = 100 << 10 };
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\"prompt\":\"hi\",\"n\":%u,\"response_format\":{\"type\":\"json_schema\",",
                  n);
    strbuf_append_c(&b, "\"json_schema\":{\"name\":\"x\",\"schema\":{\"description\":\"");
    for (int i = 0; i < LEN; i++)
        strbuf_append_c(&b, "x");
    strbuf_append_c(&b, "\"}}}}");
    const struct serving_request q = {
        .dialect = &dialect_completions, .body = strbuf_str(&b), .key = &w.key, .tenant = 1};
    serving_on_request(&w.s, &w.client, &q);
    strbuf_fini(&b);
    assert_int_equal(w.client.status, 0);
}

static void post_small(struct fake_client *c)
{
    const struct serving_request q = {.dialect = &dialect_completions,
                                      .body = STR("{\"prompt\":\"hi\"}"),
                                      .key = &w.key,
                                      .tenant = 2};
    strbuf_init(&c->body, 0);
    serving_on_request(&w.s, c, &q);
}

static bool is_of(uint32_t i_submit, const struct fake_client *c)
{
    const struct request_id id = c->request->id;
    return w.submits[i_submit].id.lo == id.lo && w.submits[i_submit].id.hi == id.hi;
}

static void test_tenants_take_turns(void **state)
{
    struct fake_client polite = {.room = 1 << 20};
    w.no_credit = true;
    post_large(5);
    post_small(&polite);
    assert_int_equal(w.n_submits, 0);
    w.no_credit = false;
    w.most_submits = 2; /* the credit is used up after two submits */
    serving_pump(&w.s);
    assert_true(is_of(0, &w.client));
    assert_true(is_of(1, &polite));
    w.now_ns += 6000000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 503); /* only the request that waited too long fails */
    assert_int_equal(polite.status, 0);
    serving_on_abort(&w.s, polite.request);
    strbuf_fini(&polite.body);
}

/* Encoding a large submit is expensive, so it is not tried again before the link has credit. */
static void test_a_large_one_waits_for_credit(void **state)
{
    struct fake_client polite[3] = {{0}};
    w.no_credit = true;
    post_large(1);
    assert_int_equal(w.n_tried, 1);
    for (int i = 0; i < 3; i++)
        post_small(&polite[i]);
    assert_int_equal(w.n_tried, 1);
    w.no_credit = false;
    serving_pump(&w.s);
    assert_int_equal(w.n_submits, 4);
    for (int i = 0; i < 3; i++) {
        serving_on_abort(&w.s, polite[i].request);
        strbuf_fini(&polite[i].body);
    }
}

/* Checks `n` submits from `i` on: the first submit carries the grammar, and the other submits
 * refer to it. */
static void assert_one_brings_it(uint32_t i, uint32_t n, bool keeps)
{
    for (uint32_t k = i; k < i + n; k++) {
        bool refers = keeps && k > i;
        assert_int_equal(w.submits[k].same_grammar, refers);
        assert_int_equal(w.submits[k].sampling.grammar.len > 0, !refers);
        assert_int_equal(w.submits[k].sampling.grammar_kind == GRAMMAR_NONE, refers);
    }
}

static void test_a_requests_grammar_goes_once(void **state)
{
    struct fake_client second = {.room = 1 << 20};
    w.keeps_grammar = true;
    post_large(3);
    assert_int_equal(w.n_submits, 3);
    assert_one_brings_it(0, 3, true);
    post_small(&second); /* this submit has no grammar, so the head keeps the previous grammar */
    assert_false(w.submits[3].same_grammar);
    serving_on_link(&w.s, false);
    serving_on_link(&w.s, true); /* a new session starts without a grammar */
    assert_int_equal(w.n_submits, 8);
    assert_one_brings_it(5, 3, true); /* the newest request is submitted first */
    w.keeps_grammar = false;          /* the head no longer keeps grammars, like an older head */
    serving_on_link(&w.s, false);
    serving_on_link(&w.s, true);
    assert_int_equal(w.n_submits, 12);
    assert_one_brings_it(9, 3, false);
    serving_on_abort(&w.s, second.request);
    strbuf_fini(&second.body);
}

/* A submit that was not sent has not brought its grammar to the head. */
static void test_what_was_not_sent_is_no_reference(void **state)
{
    w.keeps_grammar = true;
    w.no_credit = true;
    post_large(2);
    assert_int_equal(w.n_tried, 1);
    w.no_credit = false;
    serving_pump(&w.s);
    assert_int_equal(w.n_submits, 2);
    assert_one_brings_it(0, 2, true);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_tenants_take_turns),
        TEST(test_a_large_one_waits_for_credit),
        TEST(test_a_requests_grammar_goes_once),
        TEST(test_what_was_not_sent_is_no_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
