/* Tests requests that wait for their model: for its files, or for workers that start. */
#include <string.h>

#include "common/base/mem.h"
#include "gateway/dialects/dialects.h"
#include "serving_world.h"

static const char *body_text(void)
{
    return w.client.body.len > 0 ? strbuf_str(&w.client.body).ptr : "";
}

static void set_starting(uint32_t start_s)
{
    const struct msg_cluster m = {.n_replicas = 1, .start_s = start_s};
    serving_on_cluster(&w.s, &m);
}

/* A stream that waits for workers begins after the interval of keep-alives, and its tokens follow.
 */
static void test_a_stream_begins_before_workers_start(void **state)
{
    set_starting(40);
    post_as(&dialect_completions, "{\"prompt\":\"hi\",\"stream\":true}");
    w.now_ns += 14000000000ull;
    serving_tick(&w.s);
    assert_false(w.client.begun);
    w.now_ns += 2000000000ull;
    serving_tick(&w.s);
    assert_true(w.client.begun);
    assert_string_equal(body_text(), ": keep-alive\n\n");
    w.now_ns += 16000000000ull;
    serving_tick(&w.s);
    assert_string_equal(body_text(), ": keep-alive\n\n: keep-alive\n\n");
    set_cluster(1);
    tokens(0, 0, "a", FINISH_LENGTH);
    assert_true(w.client.ended);
    assert_non_null(strstr(body_text(), "\"text\":\"a\""));
}

/* When the workers do not come, the stream that has begun ends with an error event. */
static void test_a_begun_stream_ends_with_an_error(void **state)
{
    set_starting(40);
    post_as(&dialect_chat,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true}");
    for (int i = 0; i < 4; i++) {
        w.now_ns += 16000000000ull;
        serving_tick(&w.s);
    }
    assert_true(w.client.begun && w.client.ended);
    assert_int_equal(w.client.status, 200);
    assert_non_null(strstr(body_text(), "data: {\"error\":"));
    assert_non_null(strstr(body_text(), "Workers are being started"));
}

/* Neither an answer in one piece nor a cluster that has workers begins early. */
static void test_others_begin_with_their_first_token(void **state)
{
    set_starting(40);
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    w.now_ns += 20000000000ull;
    serving_tick(&w.s);
    assert_false(w.client.begun);
    set_cluster(1);
    tokens(0, 0, "a", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
    serving_sweep(&w.s);
    w.client.status = 0;
    w.client.ended = false;
    post_as(&dialect_completions, "{\"prompt\":\"hi\",\"stream\":true}");
    w.now_ns += 20000000000ull;
    serving_tick(&w.s);
    assert_false(w.client.begun);
    tokens(1, 0, "a", FINISH_LENGTH);
}

static void test_a_request_waits_for_the_files(void **state)
{
    const struct serving_options o = w.s.o;
    serving_await_model(&w.s);
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    w.now_ns += 100000000000ull; /* the files decide, not a clock */
    serving_tick(&w.s);
    assert_int_equal(w.n_submits, 0);
    assert_int_equal(w.client.status, 0);
    serving_has_model(&w.s, &o);
    assert_int_equal(w.n_submits, 1);
    tokens(0, 0, "a", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
}

static void test_a_client_leaves_while_the_files_are_read(void **state)
{
    const struct serving_options o = w.s.o;
    serving_await_model(&w.s);
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    serving_on_abort(&w.s, w.client.request);
    serving_sweep(&w.s);
    serving_has_model(&w.s, &o);
    assert_int_equal(w.n_submits, 0);
    assert_int_equal(w.s.n_requests, 0);
}

static void test_a_model_that_fails(void **state)
{
    serving_await_model(&w.s);
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    serving_fail(&w.s, "its tokenizer cannot be read");
    assert_int_equal(w.client.status, 503);
    assert_non_null(strstr(body_text(), "cannot serve: its tokenizer cannot be read"));
    serving_sweep(&w.s);
    w.client.status = 0;
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    assert_int_equal(w.client.status, 503);
    serving_sweep(&w.s);
    serving_fail(&w.s, NULL);
    w.client.status = 0;
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    assert_int_equal(w.client.status, 0);
}

/* The number of requests that wait for the files is bounded. */
static void test_few_may_wait_for_the_files(void **state)
{
    w.s.o.max_open_choices = 0;
    serving_await_model(&w.s);
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    assert_int_equal(w.client.status, 503);
}

/* Failures before the first token are counted until a request gets a token. An error of the client
 * is none. */
static void test_failures_in_a_row(void **state)
{
    for (uint32_t i = 1; i <= 2; i++) {
        set_starting(0);
        w.client.status = 0;
        post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
        w.now_ns += 1000000000000ull;
        serving_tick(&w.s);
        assert_int_equal(w.client.status, 503);
        assert_int_equal(w.s.n_failed_in_row, i);
        serving_sweep(&w.s);
    }
    w.client.status = 0;
    post_as(&dialect_completions, "{\"prompt\":7}");
    assert_int_equal(w.client.status, 400);
    assert_int_equal(w.s.n_failed_in_row, 2);
    serving_sweep(&w.s);
    set_cluster(1);
    w.client.status = 0;
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    tokens(w.n_submits - 1, 0, "a", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
    assert_int_equal(w.s.n_failed_in_row, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_a_stream_begins_before_workers_start),
                                       TEST(test_a_begun_stream_ends_with_an_error),
                                       TEST(test_others_begin_with_their_first_token),
                                       TEST(test_a_request_waits_for_the_files),
                                       TEST(test_a_client_leaves_while_the_files_are_read),
                                       TEST(test_a_model_that_fails),
                                       TEST(test_few_may_wait_for_the_files),
                                       TEST(test_failures_in_a_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
