/* Tests DJL's schemas from the request's body to the exact bytes of the answer. A test posts a
 * body to `serving`, sends tokens as the head, and compares the fake client's bytes. Invariant:
 * status codes and error texts are those of DJL Serving. The numbers of statements are those of
 * docs/develop/gateway.md. */
#include "gateway/sagemaker/djl_dialects.h"
#include "gateway/sagemaker/djl_error.h"

#include <string.h>

#include "common/base/clock.h"
#include "tests/unit/gateway/serving/serving_world.h"

/* Sends one token with its log-probability. */
static void scored(uint32_t start, uint32_t id, enum finish_reason finish, uint32_t stop_id)
{
    float v = -0.5f;
    struct logprob_row row = {{&id, 1}, {&v, 1}, 0};
    struct tokens_item t = {.id = w.submits[w.n_submits - 1].id,
                            .attempt = 1,
                            .start = start,
                            .ids = {&id, 1},
                            .logprobs = &row,
                            .n_logprobs = 1,
                            .finish = finish,
                            .stop_id = stop_id};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    serving_sweep(&w.s);
}

static void next_client(void)
{
    strbuf_fini(&w.client.body);
    w.client = (struct fake_client){.room = 1 << 20};
    strbuf_init(&w.client.body, 0);
}

static void test_djl_stream(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl, "{\"inputs\":\"hi\",\"parameters\":{\"details\":true,\"stop_sequences\":"
                          "[\"END\"],\"watermark\":true},\"stream\":true}");
    assert_int_equal(w.submits[0].sampling.max_tokens, 30);
    assert_true(w.submits[0].sampling.temperature == 0);
    scored(0, 'a', FINISH_NONE, UINT32_MAX);
    /* this token may become the stop string END, so its text is emitted with the next token */
    scored(1, 'E', FINISH_NONE, UINT32_MAX);
    scored(2, 257, FINISH_STOP, UINT32_MAX);
    assert_true(w.client.ended);
    assert_body("{\"token\":{\"id\":97,\"text\":\"a\",\"log_prob\":-0.5}}\n"
                "{\"token\":{\"id\":69,\"text\":\"\",\"log_prob\":-0.5}}\n"
                "{\"token\":{\"id\":257,\"text\":\"E\",\"log_prob\":-0.5},"
                "\"generated_text\":\"aE\",\"details\":{\"finish_reason\":\"eos_token\","
                "\"generated_tokens\":3,\"inputs\":\"hi\"}}\n");
}

/* `decoder_input_details` adds the details of the prompt to an answer in one piece. */
static void test_djl_prefill(void **state)
{
    static const char *const bodies[] = {
        "{\"inputs\":\"hi\",\"parameters\":{\"details\":true,\"decoder_input_details\":true}}",
        "{\"inputs\":\"hi\",\"parameters\":{\"decoder_input_details\":true}}",
        ("{\"inputs\":\"hi\",\"stream\":true,\"parameters\":{\"details\":true,"
         "\"decoder_input_details\":true}}"),
        "{\"inputs\":\"hi\",\"parameters\":{\"details\":true,\"decoder_input_details\":1}}"};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t id = 'i';
        float v = -1.5f;
        const struct logprob_row row = {{&id, 1}, {&v, 1}, 3};
        post_as(&dialect_djl, bodies[i]);
        assert_int_equal(w.submits[i].sampling.n_prompt_logprobs, i == 0 ? 0 : -1);
        struct tokens_item t = {
            .id = w.submits[i].id, .attempt = 1, .prompt_logprobs = &row, .n_prompt_logprobs = 1};
        serving_on_tokens(&w.s, &(struct msg_tokens){.items = &t, .n_items = 1});
        scored(0, 'a', FINISH_LENGTH, UINT32_MAX);
        assert_int_equal(strstr(w.client.body.ptr,
                                "\"inputs\":\"hi\",\"prefill\":["
                                "{\"id\":104,\"text\":\"h\",\"log_prob\":null},"
                                "{\"id\":105,\"text\":\"i\",\"log_prob\":-1.5}],\"tokens\"") !=
                             NULL,
                         i == 0);
        assert_int_equal(strstr(w.client.body.ptr, "prefill") != NULL, i == 0);
        next_client();
    }
    post_as(&dialect_djl, bodies[3]);
    assert_true(w.client.status >= 400);
}

static void test_djl_whole(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl,
            "{\"inputs\":\"hi\",\"parameters\":{\"max_new_tokens\":2,\"details\":true,"
            "\"return_full_text\":true,\"temperature\":2,\"do_sample\":false,"
            "\"top_k\":0,\"seed\":\"7\"}}");
    assert_int_equal(w.submits[0].sampling.max_tokens, 2);
    assert_int_equal(w.submits[0].sampling.seed, 7);
    assert_true(w.submits[0].sampling.temperature == 0);
    /* this token is half a character, so the next token has all of the text */
    scored(0, 0xC3, FINISH_NONE, UINT32_MAX);
    scored(1, 0xA4, FINISH_LENGTH, UINT32_MAX);
    assert_int_equal(w.client.status, 200);
    assert_body("{\"generated_text\":\"hi\xC3\xA4\",\"details\":{\"finish_reason\":\"length\","
                "\"generated_tokens\":2,\"inputs\":\"hi\",\"tokens\":[{\"id\":195,\"text\":\"\","
                "\"log_prob\":-0.5},{\"id\":164,\"text\":\"\xC3\xA4\",\"log_prob\":-0.5}]}}");
    next_client();
    post_as(&dialect_djl, "{\"inputs\":\"hi\",\"parameters\":{\"do_sample\":true}}");
    assert_true(w.submits[1].sampling.temperature == 1);
    scored(0, 'a', FINISH_LENGTH, UINT32_MAX);
    assert_body("{\"generated_text\":\"a\"}");
}

static void test_djl_forms(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl_async,
            "{\"inputs\":\"hi\",\"parameters\":{\"details\":true,\"seed\":5},\"stream\":true}");
    assert_true(w.submits[0].sampling.temperature == 1);
    scored(0, 'a', FINISH_NONE, UINT32_MAX);
    scored(1, 'b', FINISH_LENGTH, UINT32_MAX);
    assert_body("{\"index\":0,\"token\":{\"id\":97,\"text\":\"a\",\"logprob\":-0.5},"
                "\"generated_text\":null,\"details\":null}\n"
                "{\"index\":0,\"token\":{\"id\":98,\"text\":\"b\",\"logprob\":-0.5},"
                "\"generated_text\":\"ab\",\"details\":{\"finish_reason\":\"length\","
                "\"generated_tokens\":2,\"seed\":5,\"input_length\":2}}\n");
    next_client();
    post_as(&dialect_djl, "{\"inputs\":\"hi\",\"parameters\":{\"output_formatter\":\"sse\"}}");
    scored(0, 'a', FINISH_LENGTH, UINT32_MAX);
    assert_body("data: {\"token\":{\"id\":97,\"text\":\"a\",\"log_prob\":-0.5},"
                "\"generated_text\":\"a\"}\n\n");
}

/* A chat stream has each chunk on a line of its own, without "data: " and without [DONE]. */
static void test_djl_chat(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl, "{\"model\":\"whatever\",\"messages\":[{\"role\":\"user\",\"content\":"
                          "\"hi\"}],\"stream\":true,\"unheard_of\":1}");
    tokens(0, 0, "a", FINISH_LENGTH);
    const char *body = strbuf_str(&w.client.body).ptr;
    size_t n = strbuf_str(&w.client.body).len;
    assert_memory_equal(body, "{\"id\":\"chatcmpl-", 16);
    assert_non_null(strstr(body, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_non_null(strstr(body, "\"finish_reason\":null}]}\n{\"id\""));
    assert_non_null(strstr(body, "\"delta\":{\"content\":\"a\"}"));
    assert_null(strstr(body, "data:"));
    assert_null(strstr(body, "DONE"));
    assert_null(strstr(body, "\n\n"));
    assert_int_equal(body[n - 1], '\n');
    next_client();
    post_as(&dialect_djl, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
                          "\"output_formatter\":\"sse_chat\"}");
    tokens(1, 0, "a", FINISH_LENGTH);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "}\n\ndata: [DONE]\n\n"));
}

static void test_djl_refusals(void **state)
{
    static const struct {
        bool is_async;
        const char *body, *want;
    } cases[] = {
        {false, "{\"inputs\":[\"a\"]}", "inputs must be a string that is not empty."},
        {false, "{\"inputs\":5}", "inputs must be a string that is not empty."},
        {false, "{\"inputs\":\"\"}", "inputs must be a string that is not empty."},
        {false, "{\"prompt\":\"a\"}", "inputs must be a string that is not empty."},
        {false, "{", "The body is not valid JSON"},
        {false, "{\"inputs\":\"a\",\"parameters\":[]}", "parameters must be an object."},
        {false, "{\"inputs\":\"a\",\"parameters\":{\"temperature\":-1}}", "temperature must be in"},
        {false, "{\"inputs\":\"a\",\"parameters\":{\"n\":2},\"stream\":true}", "n or best_of"},
        {false, "{\"inputs\":\"a\",\"adapters\":\"nobody\"}", "`nobody` does not exist"},
        {false, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":-1}",
         "temperature must be in"},
        {true, "{}", "Input parsing failed: invalid payload. must contain prompt, inputs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        post_as(cases[i].is_async ? &dialect_djl_async : &dialect_djl, cases[i].body);
        serving_sweep(&w.s);
        assert_int_equal(w.client.status, 424);
        const char *got = strbuf_str(&w.client.body).ptr;
        if (strncmp(got, "{\"code\":424,\"error\":\"Input ", 27) != 0 ||
            !strstr(got, cases[i].want))
            fail_msg("%s: %s", cases[i].body, got);
        next_client();
    }
    assert_int_equal(w.n_submits, 0);
}

static void test_djl_errors_of_the_cluster(void **state)
{
    struct tokens_item t = {
        .attempt = 1, .finish = FINISH_ERROR, .status = STATUS_INTERNAL, .text = STR("boom")};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl, "{\"inputs\":\"hi\",\"stream\":true}");
    scored(0, 'a', FINISH_NONE, UINT32_MAX);
    t.id = w.submits[0].id;
    serving_on_tokens(&w.s, &m);
    assert_true(w.client.ended);
    assert_body("{\"token\":{\"id\":97,\"text\":\"a\",\"log_prob\":-0.5}}\n{\"code\":424,"
                "\"error\":\"exception occurred during rolling batch inference\"}\n");
    next_client();
    post_as(&dialect_djl, "{\"inputs\":\"hi\"}");
    t.id = w.submits[1].id;
    t.status = STATUS_LIMIT;
    serving_on_tokens(&w.s, &m);
    assert_int_equal(w.client.status, 503);
    assert_body("{\n  \"code\": 503,\n  \"type\": \"WlmCapacityException\",\n  \"message\": "
                "\"boom\"\n}\n");
}

/* ---- tgi_compat: details by default, a list around the answer, other keys ---- */

static void test_djl_tgi(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl_tgi, "{\"inputs\":\"hi\"}");
    scored(0, 'a', FINISH_LENGTH, UINT32_MAX);
    assert_body("[{\"generated_text\":\"a\",\"details\":{\"finish_reason\":\"length\","
                "\"generated_tokens\":1,\"inputs\":\"hi\",\"tokens\":[{\"id\":97,\"text\":\"a\","
                "\"logprob\":-0.5,\"special\":false}]}}]");
    next_client();
    post_as(&dialect_djl_tgi, "{\"inputs\":\"hi\",\"parameters\":{\"details\":false}}");
    scored(0, 'a', FINISH_LENGTH, UINT32_MAX);
    assert_body("[{\"generated_text\":\"a\"}]");
    next_client();
    post_as(&dialect_djl_tgi, "{\"inputs\":\"hi\",\"stream\":true}");
    scored(0, 'a', FINISH_NONE, UINT32_MAX);
    scored(1, 257, FINISH_STOP, 257);
    assert_body("data: {\"token\":{\"id\":97,\"text\":\"a\",\"logprob\":-0.5,\"special\":false}}"
                "\n\ndata: {\"token\":{\"id\":257,\"text\":\"\",\"logprob\":-0.5,\"special\":true},"
                "\"generated_text\":\"a\",\"details\":{\"finish_reason\":\"eos_token\","
                "\"generated_tokens\":2,\"inputs\":\"hi\"}}\n\n");
}

/* ---- static batches ---- */

static void test_djl_static(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_djl_static, "{\"inputs\":[\"x\",\"y\",\"z\"]}");
    assert_int_equal(w.n_submits, 3);
    assert_true(w.submits[0].sampling.temperature == 0);
    assert_int_equal(w.submits[2].sampling.max_tokens, 30);
    tokens(2, 0, "3", FINISH_LENGTH);
    tokens(0, 0, "1", FINISH_LENGTH);
    tokens(1, 0, "2", FINISH_LENGTH);
    assert_body("[{\"generated_text\":\"x1\"},{\"generated_text\":\"y2\"},{\"generated_text\":"
                "\"z3\"}]");
    next_client();
    post_as(&dialect_djl_static, "{\"inputs\":\"x\",\"parameters\":{\"return_full_text\":false}}");
    tokens(3, 0, "1", FINISH_LENGTH);
    assert_body("[{\"generated_text\":\"1\"}]");
    next_client();
    post_as(&dialect_djl_static, "{\"inputs\":\"x\",\"stream\":true}");
    assert_int_equal(w.submits[4].sampling.max_tokens, 50);
    tokens(4, 0, "ab", FINISH_NONE);
    tokens(4, 2, "c", FINISH_LENGTH);
    assert_true(w.client.ended);
    assert_body("{\"outputs\":[\"a\"]}\n{\"outputs\":[\"b\"]}\n{\"outputs\":[\"c\"]}\n");
}

static void test_djl_static_refusals(void **state)
{
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"{\"inputs\":[]}", "inputs must be a string or a list of strings, and not empty."},
        {"{\"inputs\":[\"a\",\"\"]}", "inputs must be a string or a list of strings"},
        {"{\"inputs\":[\"a\",5]}", "inputs must be a string or a list of strings"},
        {"{\"inputs\":[5]}", "inputs must be a string or a list of strings"},
        {"{\"inputs\":[\"a\",\"b\"],\"stream\":true}", "several inputs cannot be streamed"},
    };
    w.id_prefix = "chatcmpl-";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        post_as(&dialect_djl_static, cases[i].body);
        serving_sweep(&w.s);
        const char *got = strbuf_str(&w.client.body).ptr;
        assert_int_equal(w.client.status, 424);
        if (strncmp(got, "{\"code\":424,\"message\":\"invoke handler failure\",", 47) != 0 ||
            !strstr(got, cases[i].want))
            fail_msg("%s: %s", cases[i].body, got);
        next_client();
    }
    assert_int_equal(w.n_submits, 0);
}

/* ---- statuses ---- */

static void test_djl_statuses(void **state)
{
    static const struct {
        struct api_error e;
        /* expected status by default; `chosen`: with the configured statuses below */
        int as_is, chosen;
        const char *type;
    } cases[] = {
        {{.http_status = 400}, 424, 424, NULL},
        {{.http_status = 400, .code = DJL_FRONT_END}, 400, 422, "BadRequestException"},
        {{.http_status = 404, .code = DJL_FRONT_END}, 404, 404, "ResourceNotFoundException"},
        {{.http_status = 405, .code = DJL_FRONT_END}, 405, 405, "MethodNotAllowedException"},
        {{.http_status = 429, .retry_after_s = 1}, 503, 429, "WlmCapacityException"},
        {{.http_status = 429, .code = "rate_limit_exceeded"}, 429, 429, "ThrottlingException"},
        {{.http_status = 429, .code = "first_token_too_late"}, 429, 429, "ThrottlingException"},
        {{.http_status = 503, .retry_after_s = 1}, 503, 429, "WlmCapacityException"},
        {{.http_status = 503}, 503, 502, "WlmException"},
        {{.http_status = 504}, 504, 408, "InternalServerException"},
    };
    const char *words[] = {"bad_request=422", "throttle_error=429", "wlm_error=502",
                           "server_error=599", "timeout=408"};
    const struct option_list list = {words, 5}, none = {0};
    struct djl_statuses own, usual;
    struct error err = {0};
    assert_int_equal(djl_read_statuses(&list, &own, &err), STATUS_OK);
    assert_int_equal(djl_read_statuses(&none, &usual, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        djl_set_statuses(&own);
        assert_int_equal(djl_rolling_status(&cases[i].e), cases[i].chosen);
        djl_set_statuses(&usual);
        assert_int_equal(djl_rolling_status(&cases[i].e), cases[i].as_is);
        djl_rolling_error(&b, &cases[i].e, false);
        if (cases[i].type && !strstr(strbuf_str(&b).ptr, cases[i].type))
            fail_msg("case %zu: %s", i, strbuf_str(&b).ptr);
        strbuf_fini(&b);
    }
    const struct api_error failed = {.http_status = 500};
    assert_int_equal(djl_async_status(&failed), 500);
    static const char *const wrong[] = {
        "throttle_error", "throttle_error=",     "throttle_error=200",
        "throttle=429",   "throttle_error=4290", "=429"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *word[] = {wrong[i]};
        const struct option_list one = {word, 1};
        assert_int_equal(djl_read_statuses(&one, &own, &err), STATUS_INVALID);
        err = (struct error){0};
    }
}

/* ---- 29: a stream without tokens is closed; each token extends the time ---- */

static void test_djl_silence(void **state)
{
    w.id_prefix = "chatcmpl-";
    w.s.o.chunk_timeout_ns = 10 * NS_PER_S;
    post_as(&dialect_djl, "{\"inputs\":\"hi\",\"stream\":true}");
    w.now_ns += 9 * NS_PER_S;
    serving_tick(&w.s);
    assert_false(w.client.dropped);
    scored(0, 'a', FINISH_NONE, UINT32_MAX);
    w.now_ns += 9 * NS_PER_S;
    serving_tick(&w.s);
    assert_false(w.client.dropped);
    w.now_ns += 2 * NS_PER_S;
    serving_tick(&w.s);
    assert_true(w.client.dropped);
    assert_int_equal(w.n_cancels, 1);
    serving_sweep(&w.s);
    assert_int_equal(w.s.n_requests, 0);
    next_client(); /* the connection of a request without any token is closed too */
    post_as(&dialect_djl, "{\"inputs\":\"hi\"}");
    w.now_ns += 11 * NS_PER_S;
    serving_tick(&w.s);
    assert_true(w.client.dropped);
    assert_int_equal(w.client.status, 0);
}

/* A model named outside the body overrides the body's model (statement 60 of
 * docs/develop/gateway.md). "" leaves the choice to the body. */
static void test_djl_model_beside_the_body(void **state)
{
    struct serving_request q = {.dialect = &dialect_djl,
                                .key = &w.key,
                                .body = STR("{\"inputs\":\"hi\",\"adapters\":\"nobody\"}"),
                                .model = STR("alias")};
    w.id_prefix = "chatcmpl-";
    serving_on_request(&w.s, &w.client, &q);
    assert_int_equal(w.n_submits, 1);
    scored(0, 'a', FINISH_LENGTH, UINT32_MAX);
    assert_body("{\"generated_text\":\"a\"}");
    next_client();
    q.body = STR("{\"inputs\":\"hi\"}");
    q.model = STR("no_such_adapter");
    serving_on_request(&w.s, &w.client, &q);
    assert_int_equal(w.client.status, 424);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "no_such_adapter"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_djl_stream),
        TEST(test_djl_prefill),
        TEST(test_djl_whole),
        TEST(test_djl_forms),
        TEST(test_djl_chat),
        TEST(test_djl_refusals),
        TEST(test_djl_errors_of_the_cluster),
        TEST(test_djl_tgi),
        TEST(test_djl_static),
        TEST(test_djl_static_refusals),
        TEST(test_djl_statuses),
        TEST(test_djl_silence),
        TEST(test_djl_model_beside_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
