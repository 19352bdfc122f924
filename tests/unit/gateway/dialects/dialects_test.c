/* Tests Anthropic's messages and OpenAI's embeddings, from the request's body to the exact bytes
 * of the answer. Each test posts a body to `serving` and plays the head: it sends tokens or
 * vectors and then compares what the fake client received. Messages' bodies have more tests in
 * messages_test.c. */
#include "gateway/dialects/dialects.h"
#include "tests/unit/gateway/serving/serving_world.h"

#include <stdio.h>
#include <string.h>

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

#define EVENT(type, rest) "event: " type "\ndata: {\"type\":\"" type "\"" rest "}\n\n"
#define BLOCK(i, begin)                                                                            \
    EVENT("content_block_start", ",\"index\":" i ",\"content_block\":{\"type\":" begin "}")
#define PIECE(i, delta)                                                                            \
    EVENT("content_block_delta", ",\"index\":" i ",\"delta\":{\"type\":" delta "}")
#define BLOCK_END(i) EVENT("content_block_stop", ",\"index\":" i)
#define USAGE(in, out)                                                                             \
    "\"usage\":{\"input_tokens\":" in ",\"cache_creation_input_tokens\":0,"                        \
    "\"cache_read_input_tokens\":0,\"output_tokens\":" out "}"
#define MESSAGE_HEAD                                                                               \
    "{\"id\":\"msg_ID\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":"
#define A_TOOL "\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]"

static void next_client(void)
{
    w.client.status = 0;
    w.client.begun = w.client.ended = false;
    strbuf_reset(&w.client.body);
}

static void ask_message(const char *body)
{
    w.id_prefix = "msg_";
    post_as(&dialect_messages, body);
}

/* Reasoning, text and a call are three blocks. Each has a start event and a stop event. */
static void test_messages_stream(void **state)
{
    ask_message("{\"max_tokens\":80,\"stream\":true," MESSAGES "," A_TOOL "}");
    /* a prompt of 3 ids shows that the template received the tool */
    assert_int_equal(w.submits[0].n_prompt, 3);
    tokens(0, 0, "<think>w", FINISH_NONE);
    tokens(0, 8, "hy</think>so", FINISH_NONE);
    tokens(0, 20, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", FINISH_NONE);
    tokens(0, 59, ":1}}</tool_call>", FINISH_STOP);
    struct strbuf *b = &w.client.body;
    assert_non_null(strstr(strbuf_str(b).ptr, "\"id\":\"toolu_"));
    char *call = strstr(strbuf_str(b).ptr, "\"toolu_");
    /* the call's id is hidden from `assert_body`, which replaces only the message's id */
    call[5] = 'x';
    memset(call + 7, 'y', 32);
    w.id_prefix = "msg_";
    assert_body(
        EVENT("message_start",
              ",\"message\":" MESSAGE_HEAD "[],\"stop_reason\":null,\"stop_sequence\":null," USAGE(
                  "3", "0") "}") BLOCK("0", "\"thinking\",\"thinking\":\"\",\"signature\":\"\"")
            PIECE("0", "\"thinking_delta\",\"thinking\":\"w\"")
                PIECE("0", "\"thinking_delta\",\"thinking\":\"hy\"") BLOCK_END("0") BLOCK(
                    "1", "\"text\",\"text\":\"\"") PIECE("1", "\"text_delta\",\"text\":\"so\"")
                    BLOCK_END("1") BLOCK(
                        "2", "\"tool_use\",\"id\":\"toolx_yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\","
                             "\"name\":\"f\",\"input\":{}")
                        PIECE("2", "\"input_json_delta\",\"partial_json\":\"{\\\"a\\\"\"") PIECE(
                            "2", "\"input_json_delta\",\"partial_json\":\":1}\"") BLOCK_END("2")
                            EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"tool_use\","
                                                   "\"stop_sequence\":null}," USAGE("3", "75"))
                                EVENT("message_stop", ""));
}

static void test_messages_whole(void **state)
{
    static const struct {
        const char *body, *text;
        enum finish_reason finish;
        const char *want;
    } cases[] = {
        {"{\"max_tokens\":9," MESSAGES "}", "ab", FINISH_LENGTH,
         MESSAGE_HEAD "[{\"type\":\"text\",\"text\":\"ab\"}],\"stop_reason\":\"max_tokens\","
                      "\"stop_sequence\":null," USAGE("2", "2") "}"},
        {"{\"max_tokens\":9,\"stop_sequences\":[\"END\"]," MESSAGES "}", "aENDb", FINISH_NONE,
         MESSAGE_HEAD "[{\"type\":\"text\",\"text\":\"a\"}],\"stop_reason\":\"stop_sequence\","
                      "\"stop_sequence\":\"END\"," USAGE("2", "4") "}"},
        {"{\"max_tokens\":9," MESSAGES "}", "<think>x</think>yz", FINISH_STOP,
         MESSAGE_HEAD "[{\"type\":\"thinking\",\"thinking\":\"x\",\"signature\":\"\"},{\"type\":"
                      "\"text\",\"text\":\"y\"}],\"stop_reason\":\"end_turn\",\"stop_sequence\":"
                      "null," USAGE("2", "18") "}"},
        {"{\"max_tokens\":9,\"thinking\":{\"type\":\"disabled\"}," MESSAGES "}",
         "<think>x</think>yz", FINISH_LENGTH,
         MESSAGE_HEAD "[{\"type\":\"text\",\"text\":\"yz\"}],\"stop_reason\":\"max_tokens\","
                      "\"stop_sequence\":null," USAGE("2", "18") "}"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        ask_message(cases[i].body);
        tokens(i, 0, cases[i].text, cases[i].finish);
        assert_body(cases[i].want);
    }
}

/* A whole answer has a call's arguments as an object. A call that broke off has no input. */
static void test_messages_call_whole(void **state)
{
    static const struct {
        const char *text, *input, *reason;
    } cases[] = {
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>", "{\"a\": 1}",
         "tool_use"},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": ", "{}", "max_tokens"},
        /* This call is forced, so the grammar makes the answer a list of calls. */
        {"[{\"name\":\"f\",\"arguments\":{\"a\": 1}}]", "{\"a\": 1}", "tool_use"},
    };
    for (uint32_t i = 0; i < 3; i++) {
        char want[128];
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        ask_message(i == 2 ? "{\"max_tokens\":60,\"tool_choice\":{\"type\":\"tool\",\"name\":"
                             "\"f\"}," MESSAGES "," A_TOOL "}"
                           : "{\"max_tokens\":60," MESSAGES "," A_TOOL "}");
        tokens(i, 0, cases[i].text, i == 1 ? FINISH_LENGTH : FINISH_STOP);
        snprintf(want, sizeof want, "\"name\":\"f\",\"input\":%s}],\"stop_reason\":\"%s\"",
                 cases[i].input, cases[i].reason);
        const char *got = strbuf_str(&w.client.body).ptr;
        assert_non_null(strstr(got, "\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_"));
        if (!strstr(got, want))
            fail_msg("%s lacks %s", got, want);
    }
}

static void test_messages_errors(void **state)
{
    ask_message("{\"max_tokens\":9}");
    assert_string_equal(strbuf_str(&w.client.body).ptr,
                        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
                        "\"message\":\"messages is required.\"}}");
    next_client();
    post_as(&dialect_count_tokens, "{" MESSAGES "," A_TOOL ",\"system\":\"abc\"}");
    assert_string_equal(strbuf_str(&w.client.body).ptr, "{\"input_tokens\":6}");
    assert_int_equal(w.n_submits, 0);
    next_client();
    ask_message("{\"max_tokens\":9,\"stream\":true," MESSAGES "}");
    tokens(0, 0, "a", FINISH_NONE);
    strbuf_reset(&w.client.body);
    struct tokens_item t = {.id = w.submits[0].id,
                            .attempt = 1,
                            .start = 1,
                            .finish = FINISH_ERROR,
                            .status = STATUS_INTERNAL,
                            .text = STR("lost")};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    assert_string_equal(strbuf_str(&w.client.body).ptr,
                        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
                        "\"message\":\"lost\"}}\n\n");
}

static void answer_vector(uint32_t i, float *v, uint32_t n)
{
    struct tokens_item t = {.id = w.submits[i].id,
                            .i_choice = w.submits[i].i_choice,
                            .attempt = 1,
                            .finish = FINISH_STOP,
                            .stop_id = UINT32_MAX,
                            .vector = {v, n}};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    serving_sweep(&w.s);
}

#define VECTORS(list, n)                                                                           \
    "{\"id\":\"embd-ID\",\"object\":\"list\",\"created\":1700000000,\"model\":\"m\",\"data\":"     \
    "[" list "],\"usage\":{\"prompt_tokens\":" n ",\"total_tokens\":" n                            \
    ",\"completion_tokens\":0," DETAILS(0) NO_REASONING "}}"
#define VECTOR(i, v) "{\"index\":" i ",\"object\":\"embedding\",\"embedding\":" v "}"

static void ask_vectors(const char *body)
{
    next_client();
    w.id_prefix = "embd-";
    w.s.o.model.pooling = POOLING_LAST;
    post_as(&dialect_embeddings, body);
}

static void test_embeddings(void **state)
{
    float a[] = {3, 4, 12}, b[] = {0.6f, 0.8f, 0};
    ask_vectors("{\"input\":[\"hi\",\"you\"]}");
    assert_int_equal(w.n_submits, 2);
    assert_int_equal(w.submits[0].sampling.pooling, POOLING_LAST);
    assert_true(w.submits[0].sampling.pooling_normalise);
    answer_vector(1, b, 3); /* vectors may arrive in any order */
    assert_int_equal(w.client.status, 0);
    answer_vector(0, a, 3);
    assert_body(
        VECTORS(VECTOR("0", "[3,4,12]") "," VECTOR("1", "[0.600000024,0.800000012,0]"), "5"));
    /* the shorter vector is normalised again to length 1 */
    ask_vectors("{\"input\":[104,105],\"dimensions\":2}");
    answer_vector(2, a, 3);
    assert_body(VECTORS(VECTOR("0", "[0.600000024,0.800000012]"), "2"));
    ask_vectors("{\"input\":\"hi\",\"dimensions\":2,\"use_activation\":false,\"encoding_format\":"
                "\"base64\"}");
    assert_false(w.submits[3].sampling.pooling_normalise);
    answer_vector(3, a, 3);
    assert_body(VECTORS(VECTOR("0", "\"AABAQAAAgEA=\""), "2"));
    ask_vectors("{\"input\":7}");
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"param\":\"input\""));
    ask_vectors("{}");
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "input is required."));
    ask_vectors("{\"input\":\"a\",\"encoding_format\":\"hex\"}");
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "encoding_format must be"));
    w.s.o.model.n_dimensions = 3;
    ask_vectors("{\"input\":\"a\",\"dimensions\":4}");
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "dimensions must be in [1, 3]"));
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"param\":\"dimensions\""));
    next_client();
    w.s.o.model.pooling = POOLING_NONE;
    post_as(&dialect_embeddings, "{\"input\":\"a\"}");
    assert_non_null(
        strstr(strbuf_str(&w.client.body).ptr, "cannot make embeddings with this model"));
    assert_int_equal(w.n_submits, 4);
}

/* With a context of 100, an input of 100 tokens fits, because a vector reserves no tokens for
 * output. */
static void test_lengths_of_embeddings(void **state)
{
    char text[512] = "{\"input\":\"";
    memset(text + 10, 'x', 101);
    strcpy(text + 110, "\"}");
    ask_vectors(text);
    assert_int_equal(w.submits[0].n_prompt, 100);
    strcpy(text + 111, "\"}");
    text[110] = 'x';
    ask_vectors(text);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "you requested 101 tokens"));
    strcpy(text + 111, "\",\"truncate_prompt_tokens\":-1}");
    ask_vectors(text);
    assert_int_equal(w.submits[1].n_prompt, 100);
    strcpy(text + 111, "\",\"truncate_prompt_tokens\":101}");
    ask_vectors(text);
    assert_int_equal(w.client.status, 400);
    assert_non_null(
        strstr(strbuf_str(&w.client.body).ptr,
               "truncate_prompt_tokens=101 cannot be greater than max_model_len = 100"));
    next_client();
    post_as(&dialect_completions, "{\"prompt\":\"x\",\"truncate_prompt_tokens\":101}");
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"param\":\"truncate_prompt_tokens\""));
}

/* An input of 5 ids with a context of 2 is computed in pieces of 2, 2 and 1 ids, whose vectors
 * are averaged by their lengths. By hand: the mean of (1,0), (0,1) and (0.6,0.8) with weights 2,
 * 2 and 1 is (2.6,2.8)/5. Normalised, it is (0.680451095,0.73279351). */
static void test_long_embeddings(void **state)
{
    float a[] = {1, 0}, b[] = {0, 1}, c[] = {0.6f, 0.8f}, d[] = {0.25f, 0.5f};
    w.s.o.model.chunks = true;
    w.s.o.model.max_model_len = 2;
    ask_vectors("{\"input\":[\"abcde\",\"f\"]}");
    assert_int_equal(w.n_submits, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(w.submits[i].n_prompt, i < 2 ? 2 : 1);
    assert_int_equal(w.submits[2].last_id, 'e');
    answer_vector(3, d, 2);
    answer_vector(2, c, 2);
    answer_vector(0, a, 2);
    answer_vector(1, b, 2);
    assert_body(
        VECTORS(VECTOR("0", "[0.680451095,0.73279351]") "," VECTOR("1", "[0.25,0.5]"), "6"));
    ask_vectors("{\"input\":\"abcde\",\"use_activation\":false}");
    answer_vector(4, a, 2);
    answer_vector(5, b, 2);
    answer_vector(6, c, 2);
    assert_body(VECTORS(VECTOR("0", "[0.519999981,0.560000002]"), "5"));
    w.s.o.model.max_embed_len = 4;
    ask_vectors("{\"input\":\"abcde\"}");
    assert_int_equal(w.client.status, 400);
    ask_vectors("{\"input\":\"abcd\"}");
    assert_int_equal(w.n_submits, 9);
    w.s.o.model.max_choices = 1;
    ask_vectors("{\"input\":\"abcd\"}");
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "more than 1 pieces of 2 tokens"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_embeddings),      TEST(test_lengths_of_embeddings),
        TEST(test_long_embeddings), TEST(test_messages_stream),
        TEST(test_messages_whole),  TEST(test_messages_call_whole),
        TEST(test_messages_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
