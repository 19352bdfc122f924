/* Tests log-probabilities of prompts from the request's body to the answer's bytes: vLLM's
 * prompt_logprobs and OpenAI's echo with logprobs. A test posts a body and sends rows as the
 * head, in pieces, twice, or not at all. Invariants: each row is in the answer once, the number
 * of rows in an answer is bounded, and long answers are written on the pool. */
#include <string.h>

#include "common/base/mem.h"
#include "common/loop/loop.h"
#include "gateway/dialects/dialects.h"
#include "tests/unit/gateway/serving/serving_world.h"

#define HEAD                                                                                       \
    "{\"id\":\"cmpl-ID\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\","   \
    "\"system_fingerprint\":\"cox-" COX_VERSION "\""
#define USAGE(n, k, all)                                                                           \
    ",\"usage\":{\"prompt_tokens\":" #n ",\"total_tokens\":" #all ",\"completion_tokens\":" #k     \
    "," DETAILS(0) NO_REASONING "}" ABSENT_AT_END

static void post(const char *body)
{
    post_as(&dialect_completions, body);
}

/* Sends `n` rows of submit `i` for the ids of `text` from `start` + 1 on. The id at position p
 * has log-probability -p and rank p, and 'x' beside it has -0.5. The third entry repeats the id,
 * as if it were among the best ids. */
static void rows(uint32_t i, uint32_t start, const char *text, uint32_t n, uint32_t attempt)
{
    uint32_t ids[8][3];
    float values[8][3];
    struct logprob_row row[8];
    for (uint32_t k = 0; k < n; k++) {
        float value = -(float)(start + k + 1);
        uint32_t id = (uint8_t)text[start + k + 1];
        memcpy(ids[k], (uint32_t[]){id, 'x', id}, sizeof ids[k]);
        memcpy(values[k], (float[]){value, -0.5f, value}, sizeof values[k]);
        row[k] = (struct logprob_row){{ids[k], 3}, {values[k], 3}, start + k + 1};
    }
    struct tokens_item t = {.id = w.submits[i].id,
                            .i_choice = w.submits[i].i_choice,
                            .attempt = attempt,
                            .prompt_logprobs = row,
                            .prompt_start = start,
                            .n_prompt_logprobs = n};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
}

#define ROW(id, text, p)                                                                           \
    "{\"" #id "\":{\"logprob\":-" #p ",\"rank\":2,\"decoded_token\":\"" text                       \
    "\"},\"120\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"x\"}}"

static void test_prompt_logprobs(void **state)
{
    post("{\"prompt\":\"abc\",\"prompt_logprobs\":2,\"max_tokens\":2,\"n\":2}");
    assert_int_equal(w.n_submits, 2);
    assert_int_equal(w.submits[0].sampling.n_prompt_logprobs, 2);
    /* only the first submit requests the rows; they serve all choices */
    assert_int_equal(w.submits[1].sampling.n_prompt_logprobs, -1);
    tokens(1, 0, "de", FINISH_LENGTH);
    rows(0, 0, "abc", 1, 1);
    rows(0, 0, "abc", 2, 1); /* the first row arrives twice */
    assert_int_equal(w.client.status, 0);
    tokens(0, 0, "fg", FINISH_LENGTH);
#define SCORES "\"prompt_logprobs\":[null," ROW(98, "b", 1) "," ROW(99, "c", 2) "]"
    assert_body(
        HEAD ",\"choices\":[{\"index\":0,\"text\":\"fg\",\"logprobs\":null,"
             "\"finish_reason\":\"length\",\"stop_reason\":null,\"prompt_token_ids\":null," SCORES
                 ABSENT_OF_CHOICE "},"
             "{\"index\":1,\"text\":\"de\",\"logprobs\":null,"
             "\"finish_reason\":\"length\",\"stop_reason\":null,\"prompt_token_ids\":null," SCORES
                 ABSENT_OF_CHOICE "}]" USAGE(3, 4, 7));
}

/* With 1 requested, a row holds the best token and the prompt's own token with its true rank. */
static void test_fewer_than_came(void **state)
{
    post("{\"prompt\":\"abc\",\"prompt_logprobs\":1,\"max_tokens\":1}");
    rows(0, 0, "abc", 2, 1);
    tokens(0, 0, "d", FINISH_LENGTH);
    assert_non_null(strstr(w.client.body.ptr,
                           "{\"99\":{\"logprob\":-2,\"rank\":2,\"decoded_token\":\"c\"},"
                           "\"120\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"x\"}}]"));
}

static void test_one_token(void **state)
{
    post("{\"prompt\":\"a\",\"prompt_logprobs\":1,\"max_tokens\":1}");
    assert_int_equal(w.submits[0].sampling.n_prompt_logprobs, -1);
    tokens(0, 0, "d", FINISH_LENGTH);
    assert_non_null(strstr(w.client.body.ptr, "\"prompt_logprobs\":[null]"));
}

static void test_chat(void **state)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],"
                           "\"prompt_logprobs\":2,\"max_tokens\":1}");
    rows(0, 0, "ab", 1, 1);
    tokens(0, 0, "d", FINISH_LENGTH);
    assert_non_null(strstr(w.client.body.ptr, "null,\"prompt_logprobs\":[null,{\"98\":"));
}

#define ECHOED                                                                                     \
    "\"logprobs\":{\"text_offset\":[0,1,2,3],\"token_logprobs\":[null,-1,-2,-0.25],"               \
    "\"tokens\":[\"a\",\"b\",\"c\",\"d\"],\"top_logprobs\":[null,{\"b\":-1,\"x\":-0.5},"           \
    "{\"c\":-2,\"x\":-0.5},{\"d\":-0.25}]},\"finish_reason\":\"length\",\"stop_reason\":null"

/* Sends one token with its row and ends the answer. */
static void scored_token(uint32_t i)
{
    uint32_t id = 'd';
    float value = -0.25f;
    struct logprob_row row = {{&id, 1}, {&value, 1}, 1};
    struct tokens_item t = {.id = w.submits[i].id,
                            .attempt = w.submits[i].attempt,
                            .ids = {&id, 1},
                            .logprobs = &row,
                            .n_logprobs = 1,
                            .finish = FINISH_LENGTH};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
}

static void test_echo(void **state)
{
    post("{\"prompt\":[97,98,99],\"echo\":true,\"logprobs\":1,\"max_tokens\":1}");
    assert_int_equal(w.submits[0].sampling.n_prompt_logprobs, 1);
    rows(0, 0, "abc", 2, 1);
    scored_token(0);
    assert_body(HEAD ",\"choices\":[{\"index\":0,\"text\":\"abcd\"," ECHOED ABSENT_OF_TEXT
                     "}]" USAGE(3, 1, 4));
}

/* A stream has the prompt's rows in the first delta, after all rows have arrived. */
static void test_echo_in_a_stream(void **state)
{
    post("{\"prompt\":\"abc\",\"echo\":true,\"logprobs\":1,\"max_tokens\":1,\"stream\":true}");
    rows(0, 0, "abc", 1, 1);
    assert_false(w.client.begun);
    rows(0, 1, "abc", 1, 1);
    scored_token(0);
    assert_body("data: " HEAD ",\"choices\":[{\"index\":0,\"text\":\"abcd\"," ECHOED
                "}]}\n\ndata: [DONE]\n\n");
}

/* When no token is requested, a token that the head samples after the prompt is not shown and
 * ends nothing. */
static void test_prompt_only(void **state)
{
    post("{\"prompt\":\"abc\",\"echo\":true,\"logprobs\":1,\"max_tokens\":0,\"stop\":\"d\"}");
    assert_int_equal(w.submits[0].sampling.max_tokens, 1);
    rows(0, 0, "abc", 2, 1);
    tokens(0, 0, "d", FINISH_STOP);
    assert_body(HEAD
                ",\"choices\":[{\"index\":0,\"text\":\"abc\",\"logprobs\":{\"text_offset\":[0,1,2],"
                "\"token_logprobs\":[null,-1,-2],\"tokens\":[\"a\",\"b\",\"c\"],\"top_logprobs\":["
                "null,{\"b\":-1,\"x\":-0.5},{\"c\":-2,\"x\":-0.5}]},\"finish_reason\":\"length\","
                "\"stop_reason\":null" ABSENT_OF_TEXT "}]" USAGE(3, 0, 3));
}

/* After a new link the gateway sends the head the number of its rows, and the head continues
 * from there. When all rows have arrived, none is requested. */
static void test_resubmission(void **state)
{
    post("{\"prompt\":\"abcd\",\"prompt_logprobs\":2,\"max_tokens\":1}");
    rows(0, 0, "abcd", 2, 1);
    serving_on_link(&w.s, false);
    serving_on_link(&w.s, true);
    assert_int_equal(w.n_submits, 2);
    assert_int_equal(w.submits[1].n_known_logprobs, 2);
    assert_int_equal(w.submits[1].sampling.n_prompt_logprobs, 2);
    rows(0, 2, "abcd", 1, 1); /* this row belongs to the previous attempt */
    rows(1, 2, "abcd", 1, 2);
    serving_on_link(&w.s, false);
    serving_on_link(&w.s, true);
    assert_int_equal(w.submits[2].n_known_logprobs, 3);
    assert_int_equal(w.submits[2].sampling.n_prompt_logprobs, -1);
    w.submits[0].attempt = 3;
    scored_token(0);
    assert_int_equal(w.client.status, 200);
    assert_non_null(strstr(w.client.body.ptr, "\"100\":{\"logprob\":-3,"));
}

/* When rows are missing before the received rows, all rows are requested again. */
static void test_rows_are_missing(void **state)
{
    post("{\"prompt\":\"abcd\",\"prompt_logprobs\":2,\"max_tokens\":1}");
    rows(0, 1, "abcd", 2, 1);
    assert_int_equal(w.n_submits, 2);
    assert_int_equal(w.submits[1].attempt, 2);
    assert_int_equal(w.submits[1].n_known_logprobs, 0);
}

/* An older head or older ranks send no rows. The request is refused at once when the cluster
 * reports this, otherwise at the end. */
static void test_a_cluster_without_prompt_logprobs(void **state)
{
    post("{\"prompt\":\"abcd\",\"prompt_logprobs\":2,\"max_tokens\":1}");
    tokens(0, 0, "d", FINISH_LENGTH);
    assert_int_equal(w.client.status, 503);
    teardown(state);
    setup(state);
    struct msg_cluster m = {.n_replicas_ready = 1, .n_replicas = 1, .n_workers = 2};
    serving_on_cluster(&w.s, &m);
    post("{\"prompt\":\"abcd\",\"echo\":true,\"logprobs\":2,\"max_tokens\":1}");
    assert_int_equal(w.client.status, 400);
    assert_non_null(strstr(w.client.body.ptr, "\"logprobs\""));
    assert_int_equal(w.n_submits, 0);
}

static void test_too_many(void **state)
{
    static char body[220000];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"prompt_logprobs\":20,\"prompt\":[");
    /* the loop makes prompts of 99 ids: 101,000 ids, times 21 entries */
    for (uint32_t i = 0; i < 1020 * 99; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "%s1",
                              i == 0   ? "["
                              : i % 99 ? ","
                                       : "],[");
    n += (size_t)snprintf(body + n, sizeof body - n, "]");
    snprintf(body + n, sizeof body - n, "],\"max_tokens\":1}");
    w.s.o.model.max_choices = 2000;
    w.s.o.max_open_choices = 2000;
    post(body);
    assert_int_equal(w.client.status, 400);
    assert_non_null(strstr(w.client.body.ptr, "\"param\":\"prompt_logprobs\""));
}

/* Each choice repeats the prompt's rows. One prompt of 99 ids with 21 entries is small, but 128
 * choices of 10 prompts have too many entries. */
static void test_too_many_in_choices(void **state)
{
    static char body[4000];
    size_t n =
        (size_t)snprintf(body, sizeof body, "{\"prompt_logprobs\":20,\"n\":128,\"prompt\":[");
    for (uint32_t i = 0; i < 10 * 99; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "%s1",
                              i == 0   ? "["
                              : i % 99 ? ","
                                       : "],[");
    (void)snprintf(body + n, sizeof body - n, "]],\"max_tokens\":1}");
    w.s.o.model.max_choices = 2000;
    w.s.o.max_open_choices = 2000;
    post(body);
    assert_int_equal(w.n_submits, 0);
    assert_int_equal(w.client.status, 400);
    assert_non_null(strstr(w.client.body.ptr, "\"param\":\"prompt_logprobs\""));
}

static void test_too_long_an_answer(void **state)
{
    w.s.out.limit = 400;
    post("{\"prompt\":\"abc\",\"max_tokens\":1,\"n\":8}");
    for (uint32_t i = 0; i < 8; i++)
        tokens(i, 0, "d", FINISH_LENGTH);
    assert_int_equal(w.client.status, 400);
    assert_non_null(
        strstr(w.client.body.ptr, "{\"error\":{\"message\":\"The answer is longer than"));
}

/* ---- answers written on the pool ---- */

enum { N_PROMPTS = 8, PROMPT_BYTES = 90 };

static void ask_for_many(void)
{
    char body[N_PROMPTS * (PROMPT_BYTES + 3) + 100], text[PROMPT_BYTES + 1];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"prompt_logprobs\":20,\"prompt\":[");
    memset(text, 'p', PROMPT_BYTES);
    text[PROMPT_BYTES] = '\0';
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, i ? ",\"%s\"" : "\"%s\"", text);
    snprintf(body + n, sizeof body - n, "],\"max_tokens\":1}");
    uint32_t first = w.n_submits;
    post(body);
    assert_int_equal(w.n_submits, first + N_PROMPTS);
    for (uint32_t i = first; i < w.n_submits; i++) {
        for (uint32_t at = 0; at < PROMPT_BYTES - 1; at += 8)
            rows(i, at, text, at + 8 < PROMPT_BYTES - 1 ? 8 : PROMPT_BYTES - 1 - at, 1);
        tokens(i, 0, "d", FINISH_LENGTH);
    }
}

static void stop_when_answered(void *ctx)
{
    if (w.client.status)
        loop_stop(ctx);
}

/* The pool writes the same bytes as the loop. Nothing is sent before all bytes are complete. */
static void test_written_on_the_pool(void **state)
{
    struct loop *loop;
    struct encode_pool *pool;
    struct error err = {0};
    struct strbuf want;
    strbuf_init(&want, 0);
    ask_for_many();
    assert_int_equal(w.client.status, 200);
    strbuf_append_str(&want, strbuf_str(&w.client.body));

    strbuf_reset(&w.client.body);
    w.client.status = 0;
    assert_int_equal(loop_new(&loop, &err), STATUS_OK);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 0, 1 << 20, &w.s.pool, &err),
        STATUS_OK);
    ask_for_many();
    assert_int_equal(w.client.status, 0); /* the pool's queue is full */
    encode_pool_free(w.s.pool);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 4, 1 << 20, &pool, &err),
        STATUS_OK);
    w.s.pool = pool;
    serving_tick(&w.s);
    serving_tick(&w.s); /* a second tick must not submit a second job */
    assert_int_equal(w.client.status, 0);
    loop_on_turn_end(loop, stop_when_answered, loop);
    loop_run(loop);
    serving_sweep(&w.s);
    assert_int_equal(w.client.status, 200);
    assert_int_equal(w.client.body.len, want.len);
    size_t head = strlen("{\"id\":\"cmpl-") + 32; /* the two answers have different ids */
    assert_memory_equal(strbuf_str(&w.client.body).ptr + head, strbuf_str(&want).ptr + head,
                        want.len - head);
    encode_pool_free(pool);
    w.s.pool = NULL;
    loop_free(loop);
    strbuf_fini(&want);
}

/* An answer that repeats a long prompt in eight choices is written on the pool, even without
 * log-probabilities. */
static void test_an_echo_is_written_on_the_pool(void **state)
{
    enum { N = 8, LONG = 40000 };
    struct loop *loop;
    struct encode_pool *pool;
    struct error err = {0};
    char *body = mem_array(LONG + 100, 1), *prompt = mem_array(LONG + 1, 1);
    memset(prompt, 'p', LONG);
    prompt[LONG] = '\0';
    w.s.o.model.max_model_len = 2 * LONG;
    assert_int_equal(loop_new(&loop, &err), STATUS_OK);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 4, 1 << 20, &pool, &err),
        STATUS_OK);
    w.s.pool = pool;
    for (int is_long = 0; is_long < 2; is_long++) {
        const uint32_t first = w.n_submits;
        strbuf_reset(&w.client.body);
        w.client.status = 0;
        snprintf(body, LONG + 100, "{\"echo\":true,\"n\":%d,\"max_tokens\":1,\"prompt\":\"%s\"}", N,
                 is_long ? prompt : "p");
        post(body);
        assert_int_equal(w.n_submits, first + N);
        for (uint32_t i = first; i < w.n_submits; i++)
            tokens(i, 0, "d", FINISH_LENGTH);
        assert_int_equal(w.client.status, is_long ? 0 : 200);
    }
    loop_on_turn_end(loop, stop_when_answered, loop);
    loop_run(loop);
    serving_sweep(&w.s);
    assert_int_equal(w.client.status, 200);
    assert_true(w.client.body.len > N * LONG);
    encode_pool_free(pool);
    w.s.pool = NULL;
    loop_free(loop);
    mem_free(body);
    mem_free(prompt);
}

static void test_the_client_leaves_while_it_is_written(void **state)
{
    struct loop *loop;
    struct encode_pool *pool;
    struct error err = {0};
    assert_int_equal(loop_new(&loop, &err), STATUS_OK);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 4, 1 << 20, &pool, &err),
        STATUS_OK);
    w.s.pool = pool;
    ask_for_many();
    assert_int_equal(w.client.status, 0);
    assert_int_equal(w.s.n_requests, 1);
    serving_on_abort(&w.s, w.client.request);
    serving_sweep(&w.s);
    assert_non_null(w.s.dead); /* the pool still uses the request */
    encode_pool_free(pool);    /* the pool returns the request */
    serving_sweep(&w.s);
    assert_null(w.s.dead);
    assert_int_equal(w.client.status, 0);
    w.s.pool = NULL;
    loop_free(loop);
}

/* A stream writes the prompt's rows at once on the loop, so it has a limit of its own. */
static void test_too_many_in_a_stream(void **state)
{
    static char body[120000];
    size_t n = (size_t)snprintf(
        body, sizeof body,
        "{\"logprobs\":20,\"echo\":true,\"stream\":true,\"max_tokens\":0,\"prompt\":[");
    for (uint32_t i = 0; i < 8 * 98; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "%s1",
                              i == 0   ? "["
                              : i % 98 ? ","
                                       : "],[");
    (void)snprintf(body + n, sizeof body - n, "]]}");
    post(body);
    assert_int_equal(w.client.status, 400);
    assert_non_null(strstr(w.client.body.ptr, "in a stream"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_prompt_logprobs),
        TEST(test_fewer_than_came),
        TEST(test_one_token),
        TEST(test_chat),
        TEST(test_echo),
        TEST(test_echo_in_a_stream),
        TEST(test_prompt_only),
        TEST(test_resubmission),
        TEST(test_rows_are_missing),
        TEST(test_a_cluster_without_prompt_logprobs),
        TEST(test_too_many),
        TEST(test_too_many_in_choices),
        TEST(test_too_long_an_answer),
        TEST(test_written_on_the_pool),
        TEST(test_an_echo_is_written_on_the_pool),
        TEST(test_the_client_leaves_while_it_is_written),
        TEST(test_too_many_in_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
