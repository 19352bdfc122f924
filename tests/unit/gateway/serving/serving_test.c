/* Tests the serving path without sockets. A test posts a body, plays the head with `tokens` and
 * the serving_on_ functions, moves the clock with `w.now_ns`, and compares the exact bytes that
 * the fake client got. Invariants: each token is sent once to the client over any number of
 * attempts, the request of a client that disconnects is cancelled at the head, and every request
 * ends. */
#include "serving_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/version.h"
#include "gateway/dialects/dialects.h"

static void post(const char *body)
{
    post_as(&dialect_completions, body);
}

#define HEAD                                                                                       \
    "{\"id\":\"cmpl-ID\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\","   \
    "\"system_fingerprint\":\"cox-" COX_VERSION "\""
#define CHUNK(text, rest)                                                                          \
    "data: " HEAD ",\"choices\":[{\"index\":0,\"text\":\"" text "\",\"logprobs\":null," rest

static void test_stream(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
         "\"stop\":\"END\"}");
    assert_int_equal(w.n_submits, 1);
    assert_int_equal(w.submits[0].n_prompt, 2);
    assert_int_equal(w.submits[0].sampling.max_tokens, 16);
    assert_int_equal(w.submits[0].sampling.eos_ids.n, 1);
    assert_int_equal(w.client.status, 0); /* the client gets no status before the first token */
    tokens(0, 0, "ab", FINISH_NONE);
    tokens(0, 2, "cE", FINISH_NONE);
    tokens(0, 4, "NDx", FINISH_NONE);
    assert_true(w.client.ended);
    assert_int_equal(w.n_finishes, 1);
    assert_int_equal(w.last_finish.n_tokens, 6);
    assert_body(CHUNK("ab", "\"finish_reason\":null,\"stop_reason\":null}],\"usage\":null}\n\n")
                    CHUNK("c", "\"finish_reason\":null,\"stop_reason\":null}],\"usage\":null}\n\n")
                        CHUNK("", "\"finish_reason\":\"stop\",\"stop_reason\":\"END\"}],\"usage\":"
                                  "null}\n\n") "data: " HEAD ",\"choices\":[],\"usage\":{\"prompt_"
                                               "tokens\":2,\"total_tokens\":8,"
                                               "\"completion_tokens\":6,\"prompt_tokens_details\":{"
                                               "\"cached_tokens\":0}}}\n\n"
                                               "data: [DONE]\n\n");
    assert_int_equal(w.s.n_requests, 0);
    assert_int_equal(w.s.n_open_choices, 0);
}

static void test_whole(void **state)
{
    post("{\"model\":\"m\",\"prompt\":[\"a\",\"bc\"],\"n\":1,\"echo\":true,\"max_tokens\":2}");
    assert_int_equal(w.n_submits, 2);
    tokens(1, 0, "yz", FINISH_LENGTH);
    assert_int_equal(w.client.status, 0);
    tokens(0, 0, "\"\n", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
    assert_body(
        HEAD ",\"choices\":[{\"index\":0,\"text\":\"a\\\"\\n\",\"logprobs\":null,"
             "\"finish_reason\":\"length\",\"stop_reason\":null" ABSENT_OF_TEXT "},"
             "{\"index\":1,\"text\":\"bcyz\",\"logprobs\":null,"
             "\"finish_reason\":\"length\",\"stop_reason\":null" ABSENT_OF_TEXT "}],"
             "\"usage\":{\"prompt_tokens\":3,\"total_tokens\":7,\"completion_tokens\":4," DETAILS(0)
                 NO_REASONING "}" ABSENT_AT_END);
}

static void test_resubmission(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true,\"seed\":5}");
    tokens(0, 0, "ab", FINISH_NONE);
    serving_on_link(&w.s, false);
    serving_tick(&w.s);
    assert_int_equal(w.n_submits, 1);
    serving_on_link(&w.s, true);
    assert_int_equal(w.n_submits, 2);
    assert_int_equal(w.submits[1].attempt, 2);
    assert_int_equal(w.submits[1].n_prompt, 2);
    assert_int_equal(w.submits[1].n_ids, 4);
    assert_int_equal(w.submits[1].last_id, 'b');
    assert_int_equal(w.submits[1].sampling.seed, 5);
    tokens(0, 2, "XX", FINISH_NONE); /* tokens of the previous attempt are dropped */
    tokens(1, 4, "X", FINISH_NONE);  /* a gap makes the gateway submit the choice again */
    assert_int_equal(w.n_submits, 3);
    assert_int_equal(w.submits[2].attempt, 3);
    /* the first token was received before, so only the new tokens are used */
    tokens(2, 1, "bcd", FINISH_LENGTH);
    assert_true(w.client.ended);
    assert_body(CHUNK("ab", "\"finish_reason\":null,\"stop_reason\":null}]}\n\n") CHUNK(
        "cd", "\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\n") "data: [DONE]\n\n");
}

static void test_backpressure(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true}");
    tokens(0, 0, "a", FINISH_NONE);
    w.client.room = 0;
    tokens(0, 1, "b", FINISH_NONE);
    tokens(0, 2, "c", FINISH_LENGTH);
    assert_false(w.client.ended);
    w.client.room = 100;
    serving_on_drain(&w.s, w.client.request);
    assert_true(w.client.ended);
    assert_body(CHUNK("a", "\"finish_reason\":null,\"stop_reason\":null}]}\n\n") CHUNK(
        "bc", "\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\n") "data: [DONE]\n\n");
}

static void test_client_gone(void **state)
{
    post("{\"prompt\":\"hi\",\"n\":3,\"stream\":true}");
    assert_int_equal(w.n_submits, 3);
    assert_int_equal(w.submits[2].sampling.i_choice, 2);
    tokens(0, 0, "a", FINISH_LENGTH);
    serving_on_abort(&w.s, w.client.request);
    assert_int_equal(w.n_cancels, 2); /* the choice that had ended gets no cancel */
    serving_sweep(&w.s);
    assert_int_equal(w.s.n_requests, 0);
    /* tokens of the cancelled choice still arrive, so it is cancelled again */
    tokens(1, 0, "a", FINISH_NONE);
    assert_int_equal(w.n_cancels, 3);
    tokens(1, 0, "a", FINISH_CANCELLED);
    assert_int_equal(w.n_cancels, 3);
}

static void test_errors_from_the_head(void **state)
{
    struct tokens_item t = {.attempt = 1,
                            .finish = FINISH_ERROR,
                            .status = STATUS_LIMIT,
                            .retry_after_s = 7,
                            .text = STR("queue is full")};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    post("{\"prompt\":\"hi\",\"stream\":true,\"n\":2}");
    t.id = w.submits[0].id;
    serving_on_tokens(&w.s, &m);
    assert_int_equal(w.client.status, 429);
    assert_int_equal(w.client.retry_after_s, 7);
    assert_int_equal(w.n_cancels, 1); /* the other choice of the request is cancelled */
    assert_body("{\"error\":{\"message\":\"queue is full\",\"type\":\"RateLimitError\","
                "\"param\":null,\"code\":429}}");
}

static void test_error_inside_a_stream(void **state)
{
    struct tokens_item t = {
        .attempt = 1, .finish = FINISH_ERROR, .status = STATUS_INTERNAL, .text = STR("boom")};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    post("{\"prompt\":\"hi\",\"stream\":true}");
    tokens(0, 0, "a", FINISH_NONE);
    t.id = w.submits[0].id;
    serving_on_tokens(&w.s, &m);
    assert_body(CHUNK(
        "a",
        "\"finish_reason\":null,\"stop_reason\":null}]}\n\n") "data: "
                                                              "{\"error\":{\"message\":\"boom\","
                                                              "\"type\":\"InternalServerError\","
                                                              "\"param\":null,\"code\":500}}"
                                                              "\n\ndata: [DONE]\n\n");
    assert_true(w.client.ended);
}

/* When the gateway ends, a stream gets an error event, and a request without output gets a 503. */
static void test_the_end_of_the_gateway(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true}");
    tokens(0, 0, "a", FINISH_NONE);
    serving_end_all(&w.s);
    assert_body(CHUNK(
        "a",
        "\"finish_reason\":null,\"stop_reason\":null}]}\n\n") "data: {\"error\":{\"message\":\"The "
                                                              "gateway is shutting down: try again "
                                                              "later.\","
                                                              "\"type\":"
                                                              "\"ServiceUnavailableError\","
                                                              "\"param\":null,\"code\":503}}\n\n"
                                                              "data: [DONE]\n\n");
    assert_true(w.client.ended);
    assert_int_equal(w.n_cancels, 1);
    assert_int_equal(w.s.n_requests, 0);
}

static void test_the_end_of_the_gateway_before_a_token(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true}");
    serving_end_all(&w.s);
    assert_int_equal(w.client.status, 503);
    assert_int_equal(w.client.retry_after_s, 1);
    assert_false(w.client.begun);
    w.client.status = 0;
    post("{\"prompt\":\"hi\"}"); /* this request arrives on an old connection */
    assert_int_equal(w.client.status, 503);
    assert_int_equal(w.client.retry_after_s, 1);
    assert_int_equal(w.n_submits, 1);
}

struct refusal {
    const char *body;
    int status;
    const char *find;
};

static void test_refusals(void **state)
{
    static const struct refusal cases[] = {
        {"{", 400, "not valid JSON"},
        {"{\"prompt\":\"\"}", 400, "at least one token"},
        {"{\"prompt\":[]}", 400, "\"param\":\"prompt\""},
        {"{\"prompt\":[1,\"a\"]}", 400, "\"param\":\"prompt\""},
        {"{\"prompt\":[[1],[2,300]]}", 400, "out of vocabulary"},
        {"{\"prompt\":[\"a\",[1]]}", 400, "must not mix"},
        {"{\"model\":\"other\",\"prompt\":\"x\"}", 404, "\"code\":\"model_not_found\""},
        {"{\"prompt\":\"x\",\"n\":9}", 503, "too many open requests"},
        {"{\"prompt\":[[1],[1]],\"n\":33}", 400, "at most 64 choices"},
        {"{\"prompt\":\"hello\",\"max_tokens\":96}", 400,
         "This model's maximum context length is 100 tokens. However, you requested 101 tokens (5 "
         "in the prompt, 96 in the completion)."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        post(cases[i].body);
        serving_sweep(&w.s);
        if (w.client.status != cases[i].status ||
            !strstr(strbuf_str(&w.client.body).ptr, cases[i].find))
            fail_msg("%s: %d %s", cases[i].body, w.client.status, strbuf_str(&w.client.body).ptr);
    }
    assert_int_equal(w.n_submits, 0);
    assert_int_equal(w.s.n_requests, 0);
}

static void test_waiting_for_a_replica(void **state)
{
    const char *why;
    set_cluster(0);
    assert_false(serving_healthy(&w.s, &why));
    post("{\"prompt\":\"hi\"}");
    assert_int_equal(w.n_submits, 1); /* the request waits at the head */
    w.now_ns += 59000000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 0);
    w.now_ns += 2000000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 503);
    assert_int_equal(w.n_cancels, 1);
}

/* The gateway is healthy while no worker runs because none is required. A request that waited
 * too long gets a 503 with Retry-After. */
static void test_waiting_for_workers_that_start(void **state)
{
    static const struct {
        uint32_t start_s, retry_after_s;
        const char *why;
    } cases[] = {{0, 5, "No replica is ready"},
                 {2, 5, "Workers are being started"},
                 {40, 40, "Workers are being started"}};
    const char *why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg_cluster m = {.n_replicas = 1, .start_s = cases[i].start_s};
        serving_on_cluster(&w.s, &m);
        assert_int_equal(serving_healthy(&w.s, &why), cases[i].start_s > 0);
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        post("{\"prompt\":\"hi\"}");
        w.now_ns += 61000000000ull;
        serving_tick(&w.s);
        assert_int_equal(w.client.status, 503);
        assert_int_equal(w.client.retry_after_s, cases[i].retry_after_s);
        assert_non_null(strstr(strbuf_str(&w.client.body).ptr, cases[i].why));
        serving_sweep(&w.s);
    }
}

static void test_waiting_for_the_head(void **state)
{
    serving_on_link(&w.s, false);
    post("{\"prompt\":\"hi\"}");
    assert_int_equal(w.n_submits, 0);
    w.now_ns += 29000000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 0);
    w.now_ns += 2000000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 503);
    assert_int_equal(w.n_cancels, 0); /* the head has never received the request */
    w.client.status = 0;
    post("{\"prompt\":\"hi\"}"); /* later requests get a 503 at once */
    assert_int_equal(w.client.status, 503);
    assert_true(w.client.retry_after_s > 0);
}

/* When the head serves another model, requests and streams get an error at once that says so.
 * This ends when the head accepts the gateway again. */
static void test_another_models_gateway(void **state)
{
    const char *why;
    post("{\"prompt\":\"hi\",\"stream\":true}");
    tokens(0, 0, "a", FINISH_NONE);
    serving_on_refused(&w.s, STATUS_UNSUPPORTED);
    serving_on_link(&w.s, false);
    serving_tick(&w.s);
    assert_true(w.client.ended);
    assert_non_null(
        strstr(strbuf_str(&w.client.body).ptr, "has another vocabulary than the workers' model"));
    serving_sweep(&w.s);
    assert_true(serving_is_of_another_model(&w.s) && !serving_healthy(&w.s, &why));
    assert_non_null(strstr(why, "has another vocabulary than the workers' model"));
    strbuf_reset(&w.client.body);
    w.client.status = 0;
    post("{\"prompt\":\"hi\"}");
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 503);
    assert_true(w.client.retry_after_s > 0);
    assert_non_null(
        strstr(strbuf_str(&w.client.body).ptr, "has another vocabulary than the workers' model"));
    /* an operator may be replacing the key, so this refusal may end */
    serving_on_refused(&w.s, STATUS_DENIED);
    assert_false(serving_healthy(&w.s, &why));
    assert_non_null(strstr(why, "the gateway's log gives the reason"));
    serving_on_refused(&w.s, STATUS_OK);
    serving_on_link(&w.s, true);
    assert_true(serving_healthy(&w.s, &why));
}

static void test_stream_survives_a_long_pause(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true}");
    tokens(0, 0, "a", FINISH_NONE);
    serving_on_link(&w.s, false);
    for (int i = 0; i < 10; i++) {
        w.now_ns += 10000000000ull;
        serving_tick(&w.s);
    }
    assert_false(w.client.ended);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, ": keep-alive\n\n"));
    w.now_ns += 300000000000ull;
    serving_tick(&w.s);
    assert_true(w.client.ended);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "data: {\"error\""));
}

/* Streams of a gateway that is ending, perhaps with the whole cluster, wait for a lost head for
 * 30 s only. Clients can retry at another gateway. */
static void test_a_gateway_that_ends_waits_less(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true}");
    tokens(0, 0, "a", FINISH_NONE);
    w.s.draining = true;
    w.now_ns += 100000000000ull;
    serving_tick(&w.s);
    assert_false(w.client.ended); /* there is no progress, but the link is up */
    serving_on_link(&w.s, false);
    w.now_ns += 29000000000ull;
    serving_tick(&w.s);
    assert_false(w.client.ended);
    w.now_ns += 2000000000ull;
    serving_tick(&w.s);
    assert_true(w.client.ended);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "data: {\"error\""));
}

static void test_no_credit(void **state)
{
    w.no_credit = true;
    post("{\"prompt\":\"hi\"}");
    assert_int_equal(w.n_submits, 0);
    w.no_credit = false;
    serving_pump(&w.s);
    assert_int_equal(w.n_submits, 1);
    tokens(0, 0, "a", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
    w.client.status = 0;
    w.no_credit = true;
    post("{\"prompt\":\"hi\"}");
    w.now_ns += 6000000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 503);
}

static void test_logprobs_and_ids(void **state)
{
    uint32_t ids[] = {'a', 0xC3}, row0[] = {'a', 'b', 'a'}, row1[] = {0xC3, 'x', 'y'};
    float v0[] = {-0.5f, -0.25f, -0.5f}, v1[] = {-0.125f, -INFINITY, -2.0f};
    struct logprob_row rows[] = {{{row0, 3}, {v0, 3}, 2}, {{row1, 3}, {v1, 3}, 1}};
    post("{\"prompt\":\"hi\",\"logprobs\":2,\"return_token_ids\":true,\"max_tokens\":2}");
    struct tokens_item t = {.id = w.submits[0].id,
                            .attempt = 1,
                            .ids = {ids, 2},
                            .logprobs = rows,
                            .n_logprobs = 2,
                            .finish = FINISH_LENGTH};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    assert_body(
        HEAD ",\"choices\":[{\"index\":0,\"text\":\"a\xEF\xBF\xBD\",\"logprobs\":{"
             "\"text_offset\":[0,1],\"token_logprobs\":[-0.5,-0.125],"
             "\"tokens\":[\"a\",\"bytes:\\\\xc3\"],"
             "\"top_logprobs\":[{\"a\":-0.5,\"b\":-0.25},"
             "{\"bytes:\\\\xc3\":-0.125,\"x\":-9999,\"y\":-2}]},"
             "\"finish_reason\":\"length\",\"stop_reason\":null,"
             "\"prompt_token_ids\":[104,105],\"prompt_logprobs\":null,"
             "\"token_ids\":[97,195],\"routed_experts\":null}],"
             "\"usage\":{\"prompt_tokens\":2,\"total_tokens\":4,\"completion_tokens\":2," DETAILS(0)
                 NO_REASONING "}" ABSENT_AT_END);
}

/* Sends tokens of submit `i`, all with this log-probability, and ends the choice. */
static void scored_tokens(uint32_t i, const char *text, float logprob)
{
    uint32_t ids[8], n = 0;
    struct logprob_row rows[8];
    for (; text[n]; n++) {
        ids[n] = (uint8_t)text[n];
        rows[n] = (struct logprob_row){{&ids[n], 1}, {&logprob, 1}, 1};
    }
    struct tokens_item t = {.id = w.submits[i].id,
                            .i_choice = w.submits[i].i_choice,
                            .attempt = 1,
                            .ids = {ids, n},
                            .logprobs = rows,
                            .n_logprobs = n,
                            .finish = FINISH_LENGTH};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
}

/* Two prompts with best_of 3 get the best two choices of each prompt, by mean log-probability
 * and not by sum. */
static void test_best_of(void **state)
{
#define CHOICE(i, text)                                                                            \
    "{\"index\":" #i ",\"text\":\"" text                                                           \
    "\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null" ABSENT_OF_TEXT "}"
    post("{\"prompt\":[\"hi\",\"you\"],\"n\":2,\"best_of\":3,\"max_tokens\":4}");
    assert_int_equal(w.n_submits, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(w.submits[i].sampling.i_prompt, i / 3);
        assert_int_equal(w.submits[i].sampling.i_choice, i % 3);
        assert_int_equal(w.submits[i].sampling.n_logprobs, 0);
    }
    scored_tokens(0, "a", -1.0f);
    scored_tokens(1, "bbbb", -0.5f);
    scored_tokens(2, "cc", -0.75f);
    scored_tokens(5, "f", -0.5f);
    scored_tokens(4, "e", -INFINITY);
    assert_int_equal(w.client.status, 0);
    scored_tokens(3, "d", -0.5f); /* d is as good as f, and precedes it */
    assert_body(HEAD ",\"choices\":[" CHOICE(0, "bbbb") "," CHOICE(1, "cc") "," CHOICE(
        2, "d") "," CHOICE(3, "f") "],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":15,"
                                   "\"completion_tokens\":10," DETAILS(0) NO_REASONING
                "}" ABSENT_AT_END);
    assert_int_equal(w.s.n_open_choices, 0);
}

/* `priority` and `timeout` count from the arrival of the request. Each Submit carries the
 * remaining time. */
static void test_priority_and_timeout(void **state)
{
    post("{\"prompt\":\"hi\",\"priority\":-7,\"timeout\":2.5}");
    assert_int_equal(w.submits[0].priority, -7);
    assert_true(w.submits[0].deadline_ms == 2500);
    serving_on_link(&w.s, false);
    w.now_ns += 1500000000ull;
    serving_on_link(&w.s, true);
    assert_true(w.submits[1].deadline_ms == 1000);
    w.now_ns += 999000000ull;
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 0);
    w.now_ns += 1000000ull; /* the head has not answered and may be gone */
    serving_tick(&w.s);
    assert_int_equal(w.client.status, 504);
    assert_int_equal(w.n_cancels, 1);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"type\":\"TimeoutError\""));
}

static void test_timeout_from_the_head(void **state)
{
    post("{\"prompt\":\"hi\",\"n\":2,\"timeout\":2.5}");
    tokens(0, 0, "ab", FINISH_NONE);
    tokens(1, 0, "", FINISH_TIMEOUT);
    assert_int_equal(w.client.status, 504);
    assert_int_equal(w.client.retry_after_s, 0);
    assert_int_equal(w.n_cancels, 1);
    assert_int_equal(w.s.n_open_choices, 0);
}

static uint64_t n_held;
static int n_released;
static enum status room;

static void fake_release_body(void *reply)
{
    n_released++;
}

static enum status fake_hold(void *reply, uint64_t bytes)
{
    assert_int_equal(n_released, 1); /* the body was released first, so that its charge is free */
    n_held = bytes;
    return room;
}

/* The body is released after preparation, and the kept part is charged before anything is
 * submitted. */
static void test_no_room_for_what_it_holds(void **state)
{
    static const struct {
        enum status room;
        int status;
    } cases[] = {{STATUS_LIMIT, 413}, {STATUS_AGAIN, 503}, {STATUS_OK, 0}};
    struct reply_ops ops = *w.s.reply;
    ops.release_body = fake_release_body;
    ops.hold = fake_hold;
    w.s.reply = &ops;
    for (int i = 0; i < 3; i++) {
        room = cases[i].room;
        n_held = 0;
        n_released = 0;
        post("{\"prompt\":\"hi\",\"max_tokens\":1,\"model\":\"alias\"}");
        assert_int_equal(w.client.status, cases[i].status);
        assert_int_equal(w.client.retry_after_s, cases[i].status == 503);
        assert_int_equal(w.n_submits, cases[i].status == 0);
        assert_true(n_held > 0);
        w.client.status = 0;
        w.client.retry_after_s = 0;
        w.client.ended = false;
    }
    tokens(0, 0, "d", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
}

/* ---- chat ---- */

#define CHAT_HEAD(object)                                                                          \
    "{\"id\":\"chatcmpl-ID\",\"object\":\"" object                                                 \
    "\",\"created\":1700000000,\"model\":\"m\",\"system_fingerprint\":\"cox-" COX_VERSION "\""
#define DELTA(delta, finish)                                                                       \
    "data: " CHAT_HEAD("chat.completion.chunk") ",\"choices\":[{\"index\":0,\"delta\":{" delta     \
                                                "},\"logprobs\":null,\"finish_reason\":" finish
#define MORE(delta)  DELTA(delta, "null,\"stop_reason\":null}]}\n\n")
#define ROLE         DELTA("\"role\":\"assistant\",\"content\":\"\"", "null}]}\n\n")
#define MESSAGES     "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define THINKS(text) "\"reasoning\":\"" text "\",\"reasoning_content\":\"" text "\""

static void chat(const char *body)
{
    w.id_prefix = "chatcmpl-";
    post_as(&dialect_chat, body);
}

static void test_chat_stream(void **state)
{
    chat("{" MESSAGES ",\"stream\":true}");
    assert_int_equal(w.submits[0].n_prompt, 2);
    tokens(0, 0, "ab", FINISH_NONE);
    tokens(0, 2, "c", FINISH_LENGTH);
    assert_body(ROLE MORE("\"content\":\"ab\"") DELTA(
        "\"content\":\"c\"", "\"length\",\"stop_reason\":null}]}\n\n") "data: [DONE]\n\n");
}

static void test_chat_whole(void **state)
{
    chat("{" MESSAGES ",\"return_token_ids\":true,\"request_id\":"
         "\"0123456789abcdef0123456789abcdef\"}");
    tokens(0, 0, "ab", FINISH_STOP);
    assert_body(CHAT_HEAD(
        "chat.completion") ",\"choices\":[{\"index\":0,\"message\":{"
                           "\"role\":\"assistant\",\"content\":\"a\"," ABSENT_OF_MESSAGE
                           "\"reasoning\":null,"
                           "\"reasoning_content\":null},\"logprobs\":null,"
                           "\"finish_reason\":\"stop\",\"stop_reason\":null,"
                           "\"token_ids\":[97,98],"
                           "\"routed_experts\":null}],\"usage\":{"
                           "\"prompt_tokens\":2,\"total_tokens\":4,"
                           "\"completion_tokens\":2," DETAILS(0)
                               REASONING(0) "},"
                                            "\"prompt_token_ids\":[104,105]" ABSENT_OF_CHAT);
}

/* The stream has reasoning and then a call, in pieces. A possible marker is held back, and
 * arguments are not held back. */
static void test_chat_stream_with_call(void **state)
{
    chat("{" MESSAGES "," TOOLS ",\"stream\":true}");
    /* a prompt of 3 ids shows that the template received the tool */
    assert_int_equal(w.submits[0].n_prompt, 3);
    tokens(0, 0, "<thi", FINISH_NONE);
    assert_body("");
    tokens(0, 4, "nk>why</th", FINISH_NONE);
    tokens(0, 14, "ink>\n<tool_call>{\"name\":\"f\",", FINISH_NONE);
    tokens(0, 42, "\"arguments\":{\"a\"", FINISH_NONE);
    tokens(0, 58, ":1}}</tool_call>", FINISH_LENGTH);
    assert_body(ROLE MORE(THINKS("why"))
                    MORE("\"tool_calls\":[{\"index\":0,\"id\":\"chatcmpl-ID\",\"type\":"
                         "\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                         "\"{\\\"a\\\"\"}}]")
                        MORE("\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]")
                            DELTA("", "\"length\",\"stop_reason\":null}]}\n\n") "data: [DONE]\n\n");
}

static void test_chat_whole_with_calls(void **state)
{
    chat("{" MESSAGES "," TOOLS ",\"stop\":\"END\"}");
    tokens(0, 0, "<think>x</think><tool_call>{\"name\":\"f\"}", FINISH_NONE);
    tokens(0, 39, "</tool_call>END", FINISH_NONE);
    assert_body(CHAT_HEAD(
        "chat.completion") ",\"choices\":[{\"index\":0,\"message\":{\"role\":"
                           "\"assistant\",\"content\":null," ABSENT_OF_MESSAGE THINKS(
                               "x") ",\"tool_calls\":[{\"id\":\"chatcmpl-ID\",\"type\":"
                                    "\"function\",\"function\":{\"name\":\"f\","
                                    "\"arguments\":\"{}\"}}]},\"logprobs\":null,"
                                    "\"finish_reason\":\"tool_calls\",\"stop_reason\":"
                                    "\"END\"" ABSENT_OF_CHOICE "}],\"usage\":{\"prompt_tokens\":3,"
                                    "\"total_tokens\":57,\"completion_tokens\":54," DETAILS(0)
                                        REASONING(1) "},\"prompt_token_ids\":null" ABSENT_OF_CHAT);
}

/* A grammar begins after the part that the reasoning parser takes. A completion has no
 * reasoning. */
#define THINKING "\"messages\":[{\"role\":\"user\",\"content\":\"hi<think>\"}]"
static void test_reasoning_before_a_grammar(void **state)
{
    chat("{" THINKING ",\"response_format\":{\"type\":\"json_object\"}}");
    assert_int_equal(w.submits[0].sampling.grammar_kind, GRAMMAR_AFTER_REASONING);
    assert_true(str_eq_c(w.submits[0].sampling.grammar,
                         "{\"open\":[\"<think>\"],\"close\":[\"</think>\"],\"begun\":true,"
                         "\"kind\":1,\"source\":\"{\\\"type\\\":\\\"object\\\"}\"}"));
    tokens(0, 0, "x</think>{}$", FINISH_STOP); /* EOS has no text */
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, THINKS("x")));
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"content\":\"{}\""));
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    /* The prompt does not open the reasoning, but the model may. */
    chat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"guided_regex\":\"a\"}");
    assert_int_equal(w.submits[1].sampling.grammar_kind, GRAMMAR_AFTER_REASONING);
    assert_true(str_eq_c(w.submits[1].sampling.grammar,
                         "{\"open\":[\"<think>\"],\"close\":[\"</think>\"],\"begun\":false,"
                         "\"kind\":2,\"source\":\"a\"}"));
    tokens(1, 0, "<think>x</think>a", FINISH_STOP);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, THINKS("x")));
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    chat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi<think></think>\"}],"
         "\"guided_regex\":\"a\"}");
    assert_int_equal(w.submits[2].sampling.grammar_kind, GRAMMAR_REGEX);
    tokens(2, 0, "a", FINISH_STOP);
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    post("{\"prompt\":\"x\",\"guided_regex\":\"a\"}");
    assert_int_equal(w.submits[3].sampling.grammar_kind, GRAMMAR_REGEX);
    tokens(3, 0, "a", FINISH_STOP);
}

/* Without tools no tool parser runs, and completions use no parser. */
static void test_no_parser_unasked(void **state)
{
    chat("{" MESSAGES "," TOOLS ",\"tool_choice\":\"none\",\"include_reasoning\":false}");
    tokens(0, 0, "<think>x</think><tool_call>", FINISH_LENGTH);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"content\":\"<tool_call>\""));
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"reasoning\":null"));
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    post("{\"prompt\":\"x\"}");
    tokens(1, 0, "<think>x", FINISH_LENGTH);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "\"text\":\"<think>x\""));
}

static void test_stream_interval(void **state)
{
    post("{\"prompt\":\"hi\",\"stream\":true,\"stream_interval\":3}");
    tokens(0, 0, "a", FINISH_NONE);
    tokens(0, 1, "b", FINISH_NONE);
    tokens(0, 2, "c", FINISH_NONE);
    tokens(0, 3, "d", FINISH_NONE);
    tokens(0, 4, "e", FINISH_LENGTH);
#define NOT_YET "\"finish_reason\":null,\"stop_reason\":null}]}\n\n"
    assert_body(CHUNK("a", NOT_YET) CHUNK("bcd", NOT_YET) CHUNK(
        "e", "\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\n") "data: [DONE]\n\n");
}

static void test_prompt_fields(void **state)
{
    static const struct {
        const char *fields;
        uint32_t n_prompt, last;
    } cuts[] = {
        {"\"truncate_prompt_tokens\":2", 2, 'd'},
        {"\"truncate_prompt_tokens\":2,\"truncation_side\":\"right\"", 2, 'b'},
        {"\"truncate_prompt_tokens\":-1,\"max_tokens\":97", 3, 'd'},
        {"\"truncate_prompt_tokens\":4", 4, 'd'},
    };
    for (uint32_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char body[256];
        w.client.status = 0;
        snprintf(body, sizeof body, "{\"prompt\":\"abcd\",%s}", cuts[i].fields);
        post(body);
        assert_int_equal(w.n_submits, i + 1);
        assert_int_equal(w.submits[i].n_prompt, cuts[i].n_prompt);
        assert_int_equal(w.submits[i].last_id, cuts[i].last);
        tokens(i, 0, "x", FINISH_LENGTH);
    }
    w.client.status = 0;
    strbuf_reset(&w.client.body);
    post("{\"prompt\":\"abcd\",\"truncate_prompt_tokens\":2,\"echo\":true,"
         "\"return_prompt_text\":true,\"bad_words\":[\"no\",\"b\"]}");
    const struct u32_span bad = w.last_bad_words;
    static const uint32_t want[] = {'n', 'o', UINT32_MAX, 'b', UINT32_MAX};
    assert_int_equal(bad.n, 5);
    assert_memory_equal(w.bad_words, want, sizeof want);
    tokens(4, 0, "x", FINISH_LENGTH);
    const char *body = strbuf_str(&w.client.body).ptr;
    assert_non_null(strstr(body, "\"text\":\"cdx\""));
    assert_non_null(strstr(body, "\"prompt_text\":\"cd\""));
}

static void test_token_ids_as_tokens(void **state)
{
    uint32_t id = 'a', row[] = {'a', 'b'};
    float v[] = {-0.5f, -0.25f};
    struct logprob_row rows[] = {{{row, 2}, {v, 2}, 2}};
    post("{\"prompt\":\"hi\",\"logprobs\":1,\"return_tokens_as_token_ids\":true}");
    struct tokens_item t = {.id = w.submits[0].id,
                            .attempt = 1,
                            .ids = {&id, 1},
                            .logprobs = rows,
                            .n_logprobs = 1,
                            .finish = FINISH_LENGTH};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr,
                           "\"tokens\":[\"token_id:97\"],\"top_logprobs\":[{\"token_id:97\":-0.5,"
                           "\"token_id:98\":-0.25}]"));
}

/* Tokenising submits nothing to the cluster. A prompt may be empty, or longer than the context. */
static void test_tokenize(void **state)
{
    static const struct {
        const struct dialect *d;
        const char *body, *want;
        int status;
    } cases[] = {
        {&dialect_tokenize, "{\"prompt\":\"hi\"}",
         "{\"count\":2,\"max_model_len\":100,\"tokens\":[104,105],\"token_strs\":null}", 200},
        {&dialect_tokenize, "{\"prompt\":\"hi\",\"return_token_strs\":true,\"model\":\"alias\"}",
         "{\"count\":2,\"max_model_len\":100,\"tokens\":[104,105],\"token_strs\":[\"h\",\"i\"]}",
         200},
        {&dialect_tokenize, "{\"prompt\":\"\"}",
         "{\"count\":0,\"max_model_len\":100,\"tokens\":[],\"token_strs\":null}", 200},
        {&dialect_tokenize, "{" MESSAGES "," TOOLS "}",
         "{\"count\":3,\"max_model_len\":100,\"tokens\":[104,105,102],\"token_strs\":null}", 200},
        {&dialect_tokenize, "{\"prompt\":\"x\"," MESSAGES "}",
         "{\"error\":{\"message\":\"Exactly one of prompt and messages is required.\",\"type\":"
         "\"BadRequestError\",\"param\":\"prompt\",\"code\":400}}",
         400},
        {&dialect_tokenize, "{\"prompt\":\"x\",\"temperature\":1}",
         "{\"error\":{\"message\":\"There is no field `temperature`: leave it out.\",\"type\":"
         "\"BadRequestError\",\"param\":\"temperature\",\"code\":400}}",
         400},
        {&dialect_detokenize, "{\"tokens\":[104,105,34]}", "{\"prompt\":\"hi\\\"\"}", 200},
        {&dialect_detokenize, "{\"tokens\":[]}", "{\"prompt\":\"\"}", 200},
        {&dialect_detokenize, "{\"tokens\":[259]}",
         "{\"error\":{\"message\":\"Token id 259 is out of vocabulary\",\"type\":"
         "\"BadRequestError\",\"param\":\"tokens\",\"code\":400}}",
         400},
        {&dialect_detokenize, "{}",
         "{\"error\":{\"message\":\"tokens is required.\",\"type\":\"BadRequestError\",\"param\":"
         "\"tokens\",\"code\":400}}",
         400},
        {&dialect_detokenize, "{\"tokens\":[1],\"model\":\"other\"}",
         "{\"error\":{\"message\":\"The model `other` does not exist.\",\"type\":"
         "\"NotFoundError\",\"param\":\"model\",\"code\":\"model_not_found\"}}",
         404},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.client.status = 0;
        strbuf_reset(&w.client.body);
        post_as(cases[i].d, cases[i].body);
        assert_string_equal(strbuf_str(&w.client.body).ptr, cases[i].want);
        assert_int_equal(w.client.status, cases[i].status);
    }
    char body[256];
    w.client.status = 0;
    snprintf(body, sizeof body, "{\"prompt\":\"%0150d\"}", 0);
    post_as(&dialect_tokenize, body);
    assert_int_equal(w.client.status, 200);
    assert_int_equal(w.n_submits, 0);
    serving_sweep(&w.s);
    assert_int_equal(w.s.n_requests, 0);
}

static int post_again(const char *body)
{
    w.client.status = 0;
    w.client.ended = false;
    strbuf_reset(&w.client.body);
    post(body);
    return w.client.status;
}

static void test_limits_of_a_key(void **state)
{
    char models[] = "alias,m";
    w.key.limits = (struct key_limits){.requests_per_s = 4, .tokens_per_min = 6, .max_open = 1};
    post("{\"prompt\":\"hi\",\"max_tokens\":4}");
    assert_int_equal(w.key.n_open, 1);
    struct fake_client second = {.room = 1 << 20};
    const struct serving_request q = {
        .dialect = &dialect_completions, .body = STR("{\"prompt\":\"hi\"}"), .key = &w.key};
    strbuf_init(&second.body, 0);
    serving_on_request(&w.s, &second, &q);
    assert_int_equal(second.status, 429); /* the key may have one request at a time */
    assert_int_equal(second.retry_after_s, 1);
    assert_non_null(strstr(strbuf_str(&second.body).ptr, "\"type\":\"RateLimitError\""));
    assert_non_null(strstr(strbuf_str(&second.body).ptr, "\"code\":\"rate_limit_exceeded\""));
    strbuf_fini(&second.body);
    tokens(0, 0, "abcd", FINISH_LENGTH);
    assert_int_equal(w.client.status, 200);
    assert_int_equal(w.key.n_open, 0);
    /* the request before used 6 of 6 tokens: 2 of the prompt and 4 of the answer */
    assert_int_equal(post_again("{\"prompt\":\"hi\"}"), 429);
    assert_int_equal(w.client.retry_after_s, 10);
    w.now_ns += 10000000000ull;
    /* a refused request counts as a request, and has ended */
    assert_int_equal(post_again("{\"prompt\":[]}"), 400);
    assert_int_equal(w.key.n_open, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(post_again("{\"prompt\":[]}"), 400);
    assert_int_equal(post_again("{\"prompt\":[]}"), 429);
    w.key.limits = (struct key_limits){.models = models, .has_priority = true, .priority = 2};
    assert_int_equal(post_again("{\"prompt\":\"hi\",\"priority\":-5}"), 0);
    assert_int_equal(w.submits[w.n_submits - 1].priority, 2);
    /* with one class, the key's own priority would make every request fail */
    w.s.cluster.one_class = true;
    w.s.o.max_open_choices = 98;
    assert_int_equal(post_again("{\"prompt\":\"hi\"}"), 0);
    assert_int_equal(w.submits[w.n_submits - 1].priority, 0);
    w.s.o.max_open_choices = 99;
    models[0] = 'A'; /* an "Alias" in the list is not "alias" */
    assert_int_equal(post_again("{\"prompt\":\"hi\",\"model\":\"alias\"}"), 404);
    assert_non_null(strstr(strbuf_str(&w.client.body).ptr, "model_not_found"));
    assert_int_equal(post_again("{\"prompt\":\"hi\",\"model\":\"m\"}"), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_stream),
        TEST(test_whole),
        TEST(test_resubmission),
        TEST(test_backpressure),
        TEST(test_client_gone),
        TEST(test_errors_from_the_head),
        TEST(test_error_inside_a_stream),
        TEST(test_the_end_of_the_gateway),
        TEST(test_the_end_of_the_gateway_before_a_token),
        TEST(test_refusals),
        TEST(test_waiting_for_a_replica),
        TEST(test_waiting_for_workers_that_start),
        TEST(test_waiting_for_the_head),
        TEST(test_another_models_gateway),
        TEST(test_stream_survives_a_long_pause),
        TEST(test_a_gateway_that_ends_waits_less),
        TEST(test_no_credit),
        TEST(test_logprobs_and_ids),
        TEST(test_best_of),
        TEST(test_priority_and_timeout),
        TEST(test_timeout_from_the_head),
        TEST(test_chat_stream),
        TEST(test_chat_whole),
        TEST(test_chat_stream_with_call),
        TEST(test_chat_whole_with_calls),
        TEST(test_reasoning_before_a_grammar),
        TEST(test_no_parser_unasked),
        TEST(test_stream_interval),
        TEST(test_prompt_fields),
        TEST(test_token_ids_as_tokens),
        TEST(test_tokenize),
        TEST(test_limits_of_a_key),
        TEST(test_no_room_for_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
