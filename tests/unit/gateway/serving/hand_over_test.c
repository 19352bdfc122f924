/* Tests that a request whose first-token promise was refused goes to the fallback of its model.
 * `post` gives a body to `w.s`, which serves the model. `refuse` and `answer` play the heads of
 * `w.s` and of `other`, the fallback. `last` is the last Submit to `other`; those of `w.s` are in
 * `w.submits`. Invariants: the client gets one answer, and its key is charged once. */
#include <string.h>

#include "gateway/dialects/dialects.h"
#include "serving_world.h"

#define BODY "{\"prompt\":\"hi\",\"max_tokens\":1}"

static struct serving other, *fallback;
static struct metrics *other_metrics;
static struct msg_submit last;
static uint32_t n_submits, n_cancels;

static enum status submit(void *ctx, const struct msg_submit *m)
{
    last = *m;
    n_submits++;
    return STATUS_OK;
}

static enum status cancel(void *ctx, const struct msg_cancel *m)
{
    n_cancels++;
    return STATUS_OK;
}

static enum status finish(void *ctx, const struct msg_finish *m)
{
    return STATUS_OK;
}

static struct serving *find_fallback(void *ctx)
{
    assert_ptr_equal(ctx, &w);
    return fallback;
}

static int setup_both(void **state)
{
    static const char *const names[] = {"small"};
    const struct engine_ops e = {NULL, submit, cancel, finish, NULL};
    const struct msg_cluster ready = {.n_replicas_ready = 1, .n_replicas = 1, .n_workers = 1};
    if (setup(state) != 0)
        return 1;
    struct serving_options o = w.s.o;
    o.served_names = names;
    o.n_served_names = 1;
    other_metrics = metrics_new();
    serving_init(&other, &o, &e, w.s.reply, NULL, other_metrics);
    serving_on_link(&other, true);
    serving_on_cluster(&other, &ready);
    fallback = &other;
    n_submits = n_cancels = 0;
    return 0;
}

static int teardown_both(void **state)
{
    serving_fini(&other);
    metrics_free(other_metrics);
    return teardown(state);
}

static void post(const char *body, const char *slo)
{
    const struct serving_request q = {.dialect = &dialect_completions,
                                      .body = str_from(body),
                                      .key = &w.key,
                                      .is_ours = true,
                                      .find_fallback = find_fallback,
                                      .fallback_ctx = &w,
                                      .slo_ttft = str_from(slo)};
    serving_on_request(&w.s, &w.client, &q);
}

static void answer(struct serving *s, struct tokens_item t)
{
    const struct msg_tokens m = {.items = &t, .n_items = 1};
    t.attempt = 1;
    t.stop_id = UINT32_MAX;
    serving_on_tokens(s, &m);
    serving_sweep(&w.s);
    serving_sweep(&other);
}

static void refuse(struct serving *s, struct request_id id, uint32_t predicted_ms, uint32_t retry_s)
{
    answer(s, (struct tokens_item){.id = id,
                                   .finish = FINISH_ERROR,
                                   .status = STATUS_LIMIT,
                                   .predicted_ttft_ms = predicted_ms,
                                   .retry_after_s = retry_s});
}

static const char *text(void)
{
    return strbuf_str(&w.client.body).ptr;
}

/* The fallback has what is left of the promise, and the key is charged once. */
static void test_the_fallback_answers(void **state)
{
    const uint32_t ids[] = {'a'};
    w.key.limits.requests_per_s = 1;
    w.key.limits.max_open = 1;
    post(BODY, "500");
    w.now_ns += 100 * NS_PER_MS;
    refuse(&w.s, w.submits[0].id, 900, 1);
    assert_int_equal(w.client.status, 0);
    assert_string_equal(w.client.header, "X-Coxswain-Fallback-Of: m");
    assert_int_equal(n_submits, 1);
    assert_int_equal(last.slo_ttft_ms, 400);
    assert_true(last.id.lo != w.submits[0].id.lo);
    assert_int_equal(w.s.n_requests + w.s.n_open_choices, 0);
    assert_int_equal(w.key.n_open, 1);
    answer(&other,
           (struct tokens_item){
               .id = last.id, .ids = {ids, 1}, .finish = FINISH_LENGTH, .predicted_ttft_ms = 30});
    assert_int_equal(w.client.status, 200);
    assert_string_equal(w.client.header, "X-Slo-Predicted-Ttft-Ms: 130");
    assert_non_null(strstr(text(), "\"model\":\"small\""));
    assert_int_equal(w.key.n_open, 0);
}

static void check_refusal(uint32_t predicted_ms, uint32_t retry_after_s)
{
    char want[80];
    snprintf(want, sizeof want, "The first token is predicted after %u ms, but", predicted_ms);
    assert_int_equal(w.client.status, 429);
    assert_non_null(strstr(text(), want));
    assert_non_null(strstr(text(), "\"code\":\"first_token_too_late\""));
    snprintf(want, sizeof want, "X-Slo-Predicted-Ttft-Ms: %u", predicted_ms);
    assert_string_equal(w.client.header, want);
    assert_int_equal(w.client.retry_after_s, retry_after_s);
    assert_int_equal(w.s.n_requests + other.n_requests, 0);
}

static void test_both_refuse_and_the_smaller_prediction_is_told(void **state)
{
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    refuse(&other, last.id, 700, 1);
    check_refusal(700, 1);
}

static void test_both_refuse_and_the_first_prediction_is_smaller(void **state)
{
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    refuse(&other, last.id, 3000, 4);
    check_refusal(900, 2);
}

/* The fallback's own errors say nothing about the model that the client asked for. */
static void test_the_fallback_cannot_take_the_request(void **state)
{
    other.o.model.max_model_len = 2;
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    assert_int_equal(n_submits, 0);
    check_refusal(900, 2);
}

static void test_the_fallback_fails_before_its_first_token(void **state)
{
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    answer(&other,
           (struct tokens_item){.id = last.id, .finish = FINISH_ERROR, .status = STATUS_LIMIT});
    check_refusal(900, 2);
}

/* The client must not send a request again that may have ended workers. */
static void test_the_fallback_is_lost_with_the_request(void **state)
{
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    answer(&other,
           (struct tokens_item){.id = last.id, .finish = FINISH_ERROR, .status = STATUS_IO});
    assert_int_equal(w.client.status, 500);
}

static void test_the_fallback_fails_after_its_first_token(void **state)
{
    const uint32_t ids[] = {'a'};
    post("{\"prompt\":\"hi\",\"max_tokens\":9}", "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    answer(&other, (struct tokens_item){.id = last.id, .ids = {ids, 1}});
    answer(&other,
           (struct tokens_item){.id = last.id, .finish = FINISH_ERROR, .status = STATUS_LIMIT});
    assert_null(strstr(text(), "first_token_too_late"));
}

static void test_no_fallback_can_serve(void **state)
{
    fallback = NULL;
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    check_refusal(900, 2);
    strbuf_reset(&w.client.body);
    w.client.status = 0;
    fallback = &other;
    other.o.max_open_choices = 0;
    post(BODY, "500");
    refuse(&w.s, w.submits[1].id, 900, 2);
    check_refusal(900, 2);
    assert_int_equal(n_submits, 0);
}

/* Its head may have died a moment ago, which nobody has noticed yet. */
static void test_the_fallback_says_nothing(void **state)
{
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    w.now_ns += 6 * NS_PER_S;
    serving_tick(&other);
    assert_int_equal(w.client.status, 0);
    w.now_ns += NS_PER_MS;
    serving_tick(&other);
    check_refusal(900, 2);
    assert_int_equal(n_cancels, 1);
}

static void test_the_fallback_is_not_ready(void **state)
{
    const struct msg_cluster none = {.n_replicas = 1};
    serving_on_cluster(&other, &none);
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    check_refusal(900, 2);
    assert_int_equal(n_submits, 0);
}

/* Other errors, and requests without a promise, stay at their model. */
static void test_only_a_refused_promise_is_handed_over(void **state)
{
    post(BODY, "");
    refuse(&w.s, w.submits[0].id, 900, 2);
    assert_int_equal(w.client.status, 429);
    w.client.status = 0;
    post(BODY, "500");
    answer(&w.s, (struct tokens_item){
                     .id = w.submits[1].id, .finish = FINISH_ERROR, .status = STATUS_LIMIT});
    assert_int_equal(w.client.status, 429);
    assert_int_equal(n_submits, 0);
}

/* One choice is refused, so the other one is cancelled. Once a choice has a token, the request
 * stays. */
static void test_several_choices(void **state)
{
    const uint32_t ids[] = {'a'};
    post("{\"prompt\":\"hi\",\"n\":2}", "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    assert_int_equal(w.n_cancels, 1);
    assert_int_equal(n_submits, 2);
    serving_on_abort(&other, w.client.request);
    serving_sweep(&other);
    assert_int_equal(n_cancels, 2);
    post("{\"prompt\":\"hi\",\"n\":2}", "500");
    answer(&w.s, (struct tokens_item){.id = w.submits[2].id, .i_choice = 1, .ids = {ids, 1}});
    refuse(&w.s, w.submits[2].id, 900, 2);
    check_refusal(900, 2);
    assert_int_equal(n_submits, 2);
}

/* A stream that has begun with keep-alives cannot get the header of a fallback. */
static void test_a_stream_that_has_begun_stays(void **state)
{
    const struct msg_cluster starting = {.n_replicas = 1, .start_s = 40};
    serving_on_cluster(&w.s, &starting);
    post("{\"prompt\":\"hi\",\"stream\":true}", "60000");
    w.now_ns += 16 * NS_PER_S;
    serving_tick(&w.s);
    assert_true(w.client.begun);
    refuse(&w.s, w.submits[0].id, 90000, 2);
    assert_true(w.client.ended);
    assert_non_null(strstr(text(), "first_token_too_late"));
    assert_int_equal(n_submits, 0);
}

static void test_the_client_leaves_the_fallback(void **state)
{
    post(BODY, "500");
    refuse(&w.s, w.submits[0].id, 900, 2);
    assert_ptr_equal(w.client.request->s, &other);
    serving_on_abort(&other, w.client.request);
    serving_sweep(&other);
    assert_int_equal(n_cancels, 1);
    assert_int_equal(other.n_requests, 0);
    assert_int_equal(w.key.n_open, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_both, teardown_both)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_the_fallback_answers),
                                       TEST(test_both_refuse_and_the_smaller_prediction_is_told),
                                       TEST(test_both_refuse_and_the_first_prediction_is_smaller),
                                       TEST(test_the_fallback_cannot_take_the_request),
                                       TEST(test_the_fallback_fails_before_its_first_token),
                                       TEST(test_the_fallback_is_lost_with_the_request),
                                       TEST(test_the_fallback_fails_after_its_first_token),
                                       TEST(test_the_fallback_says_nothing),
                                       TEST(test_the_fallback_is_not_ready),
                                       TEST(test_no_fallback_can_serve),
                                       TEST(test_only_a_refused_promise_is_handed_over),
                                       TEST(test_several_choices),
                                       TEST(test_a_stream_that_has_begun_stays),
                                       TEST(test_the_client_leaves_the_fallback)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
