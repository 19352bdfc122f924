/* Tests the parts of an answer beside its text: the echoed prompt, the offsets of tokens, and
 * the number of reasoning tokens. A test posts a body to `serving`, sends tokens as the head,
 * and looks for a text in the answer. Invariant: an answer never contains a token that the
 * request has forbidden. */
#include <string.h>

#include "gateway/dialects/dialects.h"
#include "gateway/dialects/openai_chat.h"
#include "gateway/dialects/openai_completions.h"
#include "gateway/prepare/dialect.h"
#include "tests/unit/gateway/serving/serving_world.h"

static void post(const char *body)
{
    post_as(&dialect_completions, body);
}

static void assert_says(const char *part)
{
    if (!strstr(strbuf_str(&w.client.body).ptr, part))
        fail_msg("%s is not in %s", part, strbuf_str(&w.client.body).ptr);
}

/* Sends rows for the prompt's ids, all equal, and then one row for each byte of `text`. */
static void scored(uint32_t i, uint32_t n_prompt, const char *text, enum finish_reason finish)
{
    uint32_t ids[64] = {0}, n = (uint32_t)strlen(text);
    float value = -1;
    struct logprob_row rows[64];
    for (uint32_t k = 0; k < n_prompt; k++)
        rows[k] = (struct logprob_row){{ids, 1}, {&value, 1}, 1};
    struct tokens_item t = {.id = w.submits[i].id,
                            .i_choice = w.submits[i].i_choice,
                            .attempt = 1,
                            .prompt_logprobs = rows,
                            .n_prompt_logprobs = n_prompt - 1};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    for (uint32_t k = 0; k < n; k++) {
        ids[k] = (uint8_t)text[k];
        rows[k] = (struct logprob_row){{&ids[k], 1}, {&value, 1}, 1};
    }
    t.prompt_logprobs = NULL;
    t.n_prompt_logprobs = 0;
    t.ids = (struct u32_span){ids, n};
    t.logprobs = rows;
    t.n_logprobs = n;
    t.finish = finish;
    serving_on_tokens(&w.s, &m);
}

/* The prompt's ids 104, 195 and 169 are "h" and the two bytes of é. */
static void test_echo_of_a_character_in_two_parts(void **state)
{
    post("{\"prompt\":[104,195],\"echo\":true,\"max_tokens\":2,\"n\":2}");
    tokens(0, 0, "\xA9i", FINISH_LENGTH);
    tokens(1, 0, "\xA9o", FINISH_LENGTH);
    assert_says("\"index\":0,\"text\":\"h\xC3\xA9i\"");
    assert_says("\"index\":1,\"text\":\"h\xC3\xA9o\"");
}

static void test_echo_of_parts_in_a_stream(void **state)
{
    post("{\"prompt\":[104,195],\"echo\":true,\"max_tokens\":2,\"stream\":true}");
    tokens(0, 0, "\xA9", FINISH_NONE);
    tokens(0, 1, "i", FINISH_LENGTH);
    assert_says("\"text\":\"h\xC3\xA9\"");
    assert_says("\"text\":\"i\"");
}

/* The prompt ends with a character whose second byte never arrives, because another token
 * follows or because the answer is empty. */
static void test_echo_of_a_part_that_stays_one(void **state)
{
    post("{\"prompt\":[104,195],\"echo\":true,\"max_tokens\":1}");
    tokens(0, 0, "i", FINISH_LENGTH);
    assert_says("\"text\":\"h\xEF\xBF\xBDi\"");
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    post("{\"prompt\":[104,195],\"echo\":true,\"max_tokens\":0}");
    tokens(1, 0, "x", FINISH_LENGTH);
    assert_says("\"text\":\"h\xEF\xBF\xBD\"");
}

/* All tokens of a character have the character's offset, as in vLLM. The token's name shows its
 * bytes. */
static void test_offsets_within_a_character(void **state)
{
    post("{\"prompt\":[104,195],\"echo\":true,\"logprobs\":0,\"max_tokens\":2}");
    scored(0, 2, "\xA9i", FINISH_LENGTH);
    assert_says("\"text\":\"h\xC3\xA9i\",\"logprobs\":{\"text_offset\":[0,1,1,2]");
    assert_says("\"tokens\":[\"h\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"i\"]");
}

/* Id 256 is <bos>, which is absent from the text of a prompt of ids, unless special tokens are
 * shown. */
static void test_offsets_and_special_tokens(void **state)
{
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"{\"prompt\":[256,104],\"echo\":true,\"logprobs\":0,\"max_tokens\":1}",
         "\"text\":\"hx\",\"logprobs\":{\"text_offset\":[0,0,1]"},
        {"{\"prompt\":[256,104],\"echo\":true,\"logprobs\":0,\"max_tokens\":1,"
         "\"skip_special_tokens\":false}",
         "\"text\":\"<bos>hx\",\"logprobs\":{\"text_offset\":[0,5,6]"},
        {"{\"prompt\":\"h\xC3\xA9\",\"echo\":true,\"logprobs\":0,\"max_tokens\":1}",
         "\"text\":\"h\xC3\xA9x\",\"logprobs\":{\"text_offset\":[0,1,1,2]"},
        {"{\"prompt\":\"<bos>h\",\"echo\":true,\"logprobs\":0,\"max_tokens\":1}",
         "\"text\":\"<bos>hx\""},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        post(cases[i].body);
        scored(i, w.submits[i].n_prompt, "x", FINISH_LENGTH);
        assert_says(cases[i].want);
    }
}

/* The text ends before the stop string, and no offset is beyond its end. */
static void test_offsets_of_a_stop_string(void **state)
{
    post("{\"prompt\":[104],\"logprobs\":0,\"stop\":\"lo!\",\"max_tokens\":9}");
    uint32_t ids[] = {'h', 'l', 'o', '!'};
    float value = -1;
    struct logprob_row rows[4];
    for (uint32_t k = 0; k < 4; k++)
        rows[k] = (struct logprob_row){{&ids[k], 1}, {&value, 1}, 1};
    struct tokens_item t = {
        .id = w.submits[0].id, .attempt = 1, .ids = {ids, 4}, .logprobs = rows, .n_logprobs = 4};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    assert_says("\"text\":\"h\",\"logprobs\":{\"text_offset\":[0,1,1,1]");
}

/* ---- tokens that were ruled out ---- */

static void test_nothing_is_allowed(void **state)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"x\",\"allowed_token_ids\":[97],\"bad_words\":[\"a\"]}",
        "{\"prompt\":\"x\",\"allowed_token_ids\":[257],\"min_tokens\":1}",
        "{\"prompt\":\"x\",\"allowed_token_ids\":[97,98],\"bad_words\":[\"a\"],"
        "\"stop_token_ids\":[98],\"min_tokens\":2}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        post(bodies[i]);
        assert_int_equal(w.client.status, 400);
        assert_says("\"param\":\"allowed_token_ids\"");
    }
    assert_int_equal(w.n_submits, 0);
}

/* Sends the bytes of `text` as tokens. With a grammar, EOS follows and ends the answer. */
static void ends(uint32_t i, const char *text)
{
    const uint32_t eos = 257;
    bool has_grammar = w.submits[i].sampling.grammar_kind != GRAMMAR_NONE;
    tokens(i, 0, text, has_grammar ? FINISH_NONE : FINISH_LENGTH);
    struct tokens_item t = {.id = w.submits[i].id,
                            .attempt = 1,
                            .start = (uint32_t)strlen(text),
                            .ids = {&eos, 1},
                            .finish = FINISH_STOP,
                            .stop_id = UINT32_MAX};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    if (has_grammar)
        serving_on_tokens(&w.s, &m);
}

/* When no allowed token is left, the worker samples a forbidden token. The gateway detects it
 * and answers 400. */
static void test_a_token_that_was_ruled_out(void **state)
{
    static const struct {
        const char *body, *text;
        bool fails;
    } cases[] = {
        {"{\"prompt\":\"x\",\"allowed_token_ids\":[97]}", "aab", true},
        {"{\"prompt\":\"x\",\"allowed_token_ids\":[97]}", "aaa", false},
        {"{\"prompt\":\"x\",\"allowed_token_ids\":[97],\"guided_regex\":\"a\"}", "a", false},
        {"{\"prompt\":\"x\",\"bad_words\":[\"ab\"]}", "bab", true},
        {"{\"prompt\":\"x\",\"bad_words\":[\"ab\"]}", "bba", false},
        {"{\"prompt\":\"x\",\"stop_token_ids\":[98],\"min_tokens\":2}", "ab", true},
        {"{\"prompt\":\"x\",\"stop_token_ids\":[98],\"min_tokens\":2}", "aab", false},
    };
    w.s.o.checks_tokens = true;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        post(cases[i].body);
        ends(i, cases[i].text);
        assert_int_equal(w.client.status, cases[i].fails ? 400 : 200);
        if (cases[i].fails)
            assert_says("No token is allowed next");
    }
}

/* ---- reasoning ---- */

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":90"

/* A token is one byte in this test, so "why" has three tokens. The markers do not count. */
static void test_reasoning_tokens(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, "{" CHAT "}");
    tokens(0, 0, "<think>why</think>b", FINISH_LENGTH);
    assert_says("\"completion_tokens_details\":{\"reasoning_tokens\":3}");
}

/* Reasoning tokens count even when the reasoning is hidden. The counts of all choices are added. */
static void test_reasoning_tokens_in_a_stream(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, "{" CHAT ",\"include_reasoning\":false,\"n\":2,\"stream\":true,"
                           "\"stream_options\":{\"include_usage\":true,"
                           "\"continuous_usage_stats\":true}}");
    tokens(0, 0, "<think>wh", FINISH_NONE);
    tokens(0, 9, "y</think>b", FINISH_LENGTH);
    assert_says("\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":{"
                "\"prompt_tokens\":2,\"total_tokens\":2,\"completion_tokens\":0,"
                "\"prompt_tokens_details\":{\"cached_tokens\":0},"
                "\"completion_tokens_details\":{\"reasoning_tokens\":0}}");
    assert_says("\"completion_tokens\":19,\"prompt_tokens_details\":{\"cached_tokens\":0},"
                "\"completion_tokens_details\":{\"reasoning_tokens\":3}}");
    tokens(1, 0, "<think>we</think>b", FINISH_LENGTH);
    assert_says("\"completion_tokens\":37,\"prompt_tokens_details\":{\"cached_tokens\":0},"
                "\"completion_tokens_details\":{\"reasoning_tokens\":5}}");
}

static void test_no_reasoning_parser(void **state)
{
    w.s.o.model.reasoning = NULL;
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, "{" CHAT "}");
    tokens(0, 0, "<think>why</think>b", FINISH_LENGTH);
    assert_says("\"completion_tokens_details\":null");
}

/* ---- refusals, and the template's own decisions ---- */

static void test_every_bad_key_of_logit_bias(void **state)
{
    post("{\"prompt\":\"x\",\"logit_bias\":{\"259\":1,\"5\":1,\"x\":1,\"-3\":1}}");
    assert_int_equal(w.client.status, 400);
    assert_says("3 keys are not token ids of the vocabulary (0 to 258, its size is 259)");
    assert_says("\\\"259\\\", \\\"x\\\", \\\"-3\\\"");
}

static void test_roles_that_nobody_knows(void **state)
{
    static const char body[] = "{\"messages\":[{\"role\":\"critic\",\"content\":\"hm\"}]}";
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, body);
    assert_int_equal(w.client.status, 400);
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    w.s.o.model.policy.unknown = UNKNOWN_WARN;
    post_as(&dialect_chat, body);
    assert_int_equal(w.client.status, 0);
    assert_int_equal(w.submits[0].n_prompt, 2);
}

/* As in vLLM, the content before a forced call is "", and the content before any other call is
 * null. */
static void test_content_of_a_forced_call(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, "{" CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                           "\"f\"}}],\"tool_choice\":{\"function\":{\"name\":\"f\"}}}");
    tokens(0, 0, "[{\"name\":\"f\",\"arguments\":{}}]", FINISH_LENGTH);
    assert_says("\"content\":\"\",\"refusal\":null");
    assert_says("\"arguments\":\"{}\"");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_echo_of_a_character_in_two_parts),
        TEST(test_echo_of_parts_in_a_stream),
        TEST(test_echo_of_a_part_that_stays_one),
        TEST(test_offsets_within_a_character),
        TEST(test_offsets_and_special_tokens),
        TEST(test_offsets_of_a_stop_string),
        TEST(test_nothing_is_allowed),
        TEST(test_a_token_that_was_ruled_out),
        TEST(test_reasoning_tokens),
        TEST(test_reasoning_tokens_in_a_stream),
        TEST(test_no_reasoning_parser),
        TEST(test_every_bad_key_of_logit_bias),
        TEST(test_roles_that_nobody_knows),
        TEST(test_content_of_a_forced_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
