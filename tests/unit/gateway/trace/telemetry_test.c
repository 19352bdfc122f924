/* Tests the metrics and the log records of requests, to the nanosecond, and what an answer says of
 * its use of the cluster. Each test posts a body to `serving`, plays the head by giving tokens,
 * and reads metrics, records or the answer. Invariants: `serving` runs with a clock that the test
 * sets, on one thread. */
#include <string.h>

#include "common/base/clock.h"
#include "gateway/dialects/dialects.h"
#include "gateway/prepare/dialect.h"
#include "gateway/serving/adapters.h"
#include "gateway/trace/access_record.h"
#include "tests/unit/gateway/serving/serving_world.h"

#define MS NS_PER_MS

static double sum(enum serving_histogram i)
{
    return metric_value(w.s.metrics.histograms[i]);
}

static bool is_near(double a, double b)
{
    return a - b < 1e-9 && b - a < 1e-9;
}

static void give(uint32_t i, uint32_t start, const char *text, enum finish_reason finish,
                 uint64_t queue_us, uint32_t n_cached)
{
    uint32_t ids[16], n = 0;
    for (; text[n]; n++)
        ids[n] = (unsigned char)text[n];
    struct tokens_item t = {.id = w.submits[i].id,
                            .i_choice = w.submits[i].i_choice,
                            .attempt = w.submits[i].attempt,
                            .start = start,
                            .ids = {ids, n},
                            .finish = finish,
                            .stop_id = UINT32_MAX,
                            .queue_us = queue_us,
                            .n_cached = n_cached};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
}

static void test_times_of_a_request(void **state)
{
    struct access_record record = {0};
    post_as(&dialect_completions,
            "{\"prompt\":\"hello\",\"stream\":true,\"max_tokens\":9,\"temperature\":0.5}");
    access_record_take(&record, w.client.request);
    assert_true(record.is_llm && !record.has_first_token);
    w.now_ns += 50 * MS;
    give(0, 0, "a", FINISH_NONE, 20000, 3);
    w.now_ns += 30 * MS;
    give(0, 1, "bc", FINISH_NONE, 0, 3);
    w.now_ns += 10 * MS;
    access_record_take(&record, w.client.request);
    give(0, 3, "d", FINISH_LENGTH, 0, 3);
    static const struct {
        enum serving_histogram which;
        double want;
    } cases[] = {
        {HISTOGRAM_TTFT, .05},
        {HISTOGRAM_INTER_TOKEN, .04},
        {HISTOGRAM_QUEUE, .02},
        {HISTOGRAM_PREFILL, .03},
        {HISTOGRAM_DECODE, .04},
        {HISTOGRAM_INFERENCE, .07},
        {HISTOGRAM_E2E, .09},
        {HISTOGRAM_PER_OUTPUT_TOKEN, .04 / 3},
        {HISTOGRAM_PROMPT_TOKENS, 5},
        {HISTOGRAM_COMPUTED_TOKENS, 2},
        {HISTOGRAM_PARAMS_MAX_TOKENS, 9},
        {HISTOGRAM_MAX_GENERATION_TOKENS, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!is_near(sum(cases[i].which), cases[i].want))
            fail_msg("histogram %d: %g, not %g", (int)cases[i].which, sum(cases[i].which),
                     cases[i].want);
    assert_true(is_near(metric_value(w.s.metrics.prefix_hits), 3));
    assert_true(is_near(metric_value(w.s.metrics.computed_source), 2));
    assert_true(record.has_first_token && is_near(record.ttft, .05));
    assert_true(is_near(record.phases.queue, .02) && is_near(record.phases.decode, .03));
    assert_true(record.prompt_tokens == 5 && record.completion_tokens == 3 && record.n_ended == 0);
    assert_true(record.max_tokens == 9 && record.temperature == .5 && record.stream);
    assert_string_equal(record.model, "m");
}

/* The time spent waiting for a lost head does not count as the new head's queue time. */
static void test_a_lost_head_is_not_prefill(void **state)
{
    post_as(&dialect_completions, "{\"prompt\":\"hello\",\"max_tokens\":1}");
    serving_on_link(&w.s, false);
    w.now_ns += 700 * MS;
    serving_on_link(&w.s, true);
    w.now_ns += 50 * MS;
    give(w.n_submits - 1, 0, "a", FINISH_LENGTH, 10000, 0);
    assert_true(is_near(sum(HISTOGRAM_QUEUE), .01));
    assert_true(is_near(sum(HISTOGRAM_PREFILL), .04));
    assert_true(is_near(sum(HISTOGRAM_E2E), .75));
}

static void test_refusals_are_counted(void **state)
{
    struct tokens_item t = {.attempt = 1, .finish = FINISH_ERROR, .status = STATUS_LIMIT};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    post_as(&dialect_completions, "{\"prompt\":\"hi\"}");
    t.id = w.submits[0].id;
    serving_on_tokens(&w.s, &m);
    assert_int_equal(w.client.status, 429);
    assert_true(is_near(metric_value(w.s.metrics.refused), 1));
}

static void assert_loras(const char *labels)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    serving_tell_loras(&w.s, NULL);
    metrics_render(w.metrics, &b);
    const char *at = strstr(b.ptr, "\nvllm:lora_requests_info{");
    if (!labels) {
        assert_null(at);
    } else if (!at ||
               strncmp(at + strlen("\nvllm:lora_requests_info{"), labels, strlen(labels)) != 0 ||
               strstr(at + 1, "\nvllm:lora_requests_info{")) {
        fail_msg("not once {%s in %s", labels, at ? at : "nothing");
    }
    strbuf_fini(&b);
}

static void test_adapters_in_use(void **state)
{
    char one[] = "one", two[] = "two";
    struct gateway_adapters a = {.names = {one, two}, .n_names = 2};
    struct msg_cluster c = {.n_replicas_ready = 1, .load = {.max_loras = 4}};
    w.s.o.adapters = &a;
    assert_loras(NULL);
    serving_on_cluster(&w.s, &c);
    assert_loras("max_lora=\"4\",waiting_lora_adapters=\"\",running_lora_adapters=\"\"}");
    post_as(&dialect_completions, "{\"prompt\":\"hi\",\"model\":\"one\",\"max_tokens\":9}");
    post_as(&dialect_completions, "{\"prompt\":\"hi\",\"model\":\"two\",\"max_tokens\":9}");
    post_as(&dialect_completions, "{\"prompt\":\"hi\",\"model\":\"two\",\"max_tokens\":9}");
    assert_loras("max_lora=\"4\",waiting_lora_adapters=\"one,two\",running_lora_adapters=\"\"}");
    give(1, 0, "a", FINISH_NONE, 0, 0);
    assert_loras("max_lora=\"4\",waiting_lora_adapters=\"one,two\",running_lora_adapters=\"two\"}");
    while (w.s.first)
        serving_on_abort(&w.s, w.s.first);
    assert_loras("max_lora=\"4\",waiting_lora_adapters=\"\",running_lora_adapters=\"\"}");
}

/* Gives a token with what the choice has used so far. */
static void give_used(uint32_t start, enum finish_reason finish, uint64_t block_ms,
                      uint64_t step_ns)
{
    uint32_t id = 'a';
    struct tokens_item t = {.id = w.submits[0].id,
                            .attempt = w.submits[0].attempt,
                            .start = start,
                            .ids = {&id, 1},
                            .finish = finish,
                            .queue_us = start == 0 ? 2500 : 0,
                            .block_ms = block_ms,
                            .step_ns = step_ns};
    serving_on_tokens(&w.s, &(struct msg_tokens){.items = &t, .n_items = 1});
}

/* A new head counts from 0. An older head says nothing. Other clients are told nothing. */
static void test_the_use_of_the_cluster(void **state)
{
    static const struct {
        bool asks, counts;
        const char *want;
    } cases[] = {
        {true, true,
         "\"coxswain\":{\"block_seconds\":1.540,\"step_seconds\":0.000000712,"
         "\"queue_seconds\":0.002500}"},
        {true, false,
         "\"coxswain\":{\"block_seconds\":null,\"step_seconds\":null,"
         "\"queue_seconds\":0.002500}"},
        {false, true, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = cases[i].counts;
        assert_true(i == 0 || (teardown(state) == 0 && setup(state) == 0));
        post_as(&dialect_completions, "{\"prompt\":\"hello\",\"max_tokens\":4}");
        w.client.request->full_usage = cases[i].asks;
        give_used(0, FINISH_NONE, 500 * n, 100 * n);
        give_used(1, FINISH_NONE, 1500 * n, 700 * n);
        give_used(2, FINISH_NONE, 10 * n, 5 * n); /* another head */
        give_used(3, FINISH_LENGTH, 40 * n, 12 * n);
        const char *got = strstr(w.client.body.ptr, "\"coxswain\"");
        assert_true(cases[i].want ? got && strstr(got, cases[i].want) == got : !got);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_times_of_a_request),
        TEST(test_the_use_of_the_cluster),
        TEST(test_a_lost_head_is_not_prefill),
        TEST(test_refusals_are_counted),
        TEST(test_adapters_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
