/* DJL's schemas from body to exact bytes. */
#include "gateway/djl.h"

#include <string.h>

#include "serving_world.h"

/* One token with its score. */
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
    scored(1, 'E', FINISH_NONE, UINT32_MAX); /* may become END: its text comes with the next */
    scored(2, 257, FINISH_STOP, UINT32_MAX);
    assert_true(w.client.ended);
    assert_body("{\"token\":{\"id\":97,\"text\":\"a\",\"log_prob\":-0.5}}\n"
                "{\"token\":{\"id\":69,\"text\":\"\",\"log_prob\":-0.5}}\n"
                "{\"token\":{\"id\":257,\"text\":\"E\",\"log_prob\":-0.5},"
                "\"generated_text\":\"aE\",\"details\":{\"finish_reason\":\"eos_token\","
                "\"generated_tokens\":3,\"inputs\":\"hi\"}}\n");
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
    scored(0, 0xC3, FINISH_NONE, UINT32_MAX); /* half a character: all of it is the next one's */
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

/* Chat's chunks as lines: none has "data: ", each ends, none is [DONE]. */
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
        {false, "{\"inputs\":[\"a\"]}", "inputs must be a string, and not empty."},
        {false, "{\"inputs\":5}", "inputs must be a string, and not empty."},
        {false, "{\"inputs\":\"\"}", "inputs must be a string, and not empty."},
        {false, "{\"prompt\":\"a\"}", "inputs must be a string, and not empty."},
        {false, "{", "The body is not valid JSON"},
        {false, "{\"inputs\":\"a\",\"parameters\":[]}", "parameters must be an object."},
        {false, "{\"inputs\":\"a\",\"parameters\":{\"temperature\":-1}}", "temperature must be in"},
        {false, "{\"inputs\":\"a\",\"parameters\":{\"n\":2},\"stream\":true}", "n and best_of"},
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

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_djl_stream), TEST(test_djl_whole),    TEST(test_djl_forms),
        TEST(test_djl_chat),   TEST(test_djl_refusals), TEST(test_djl_errors_of_the_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
