/* Tests the batch runner with a real store on its own thread. Lines of a batch are read from the
 * store and sent through `serving` to a fake head, and the answers are stored. The tests check
 * which lines are answered, run again or dropped, and which counters change. Invariant: only the
 * store's thread uses the store after the first run. */
#include "gateway/batches/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/batches/store/store.h"
#include "gateway/dialects/dialects.h"
#include "tests/unit/gateway/serving/serving_world.h"

enum { ME = 7, N_SLOTS = 2, STORE_BYTES = 8 << 20, LINE_BYTES = 1 << 20 };

static struct {
    char dir[64];
    struct loop *loop;
    struct encode_pool *thread;
    struct state_store *store;
    struct batch_runner *b;
    uint64_t wall_s;
    bool (*until)(void);
} f;

static struct error err;

static uint64_t wall(void *ctx)
{
    return f.wall_s;
}

static double metric(const char *name)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    metrics_render(w.metrics, &b);
    const char *at = strstr(strbuf_str(&b).ptr, name);
    double v = at ? strtod(at + strlen(name), NULL) : -1;
    strbuf_fini(&b);
    return v;
}

#define RUNNING      metric("\ncoxswain_gateway_batch_lines_running ")
#define OPEN         metric("\ncoxswain_gateway_batches_open ")
#define LINES(which) metric("\ncoxswain_gateway_batch_lines_total{outcome=\"" which "\"} ")

static void look(void *ctx)
{
    serving_sweep(&w.s);
    if (f.until())
        loop_stop(f.loop);
}

static void run_until(bool (*until)(void))
{
    f.until = until;
    if (!until())
        loop_run(f.loop);
}

static void wake(void *ctx)
{
    batch_runner_tick(f.b);
}

static struct serving *serving_of(void *ctx, struct serving_request *q, struct api_error *e)
{
    assert_int_equal(q->model_at, q->body.len); /* the line was given to `find_model` */
    return &w.s;
}

static size_t find_model(struct str body)
{
    return body.len;
}

static bool healthy(void *ctx)
{
    const char *why;
    return serving_healthy(&w.s, &why);
}

static void make_runner(uint64_t max_bytes)
{
    const struct batch_runner_options o = {.store = f.store,
                                           .thread = f.thread,
                                           .serving_of = serving_of,
                                           .healthy = healthy,
                                           .find_model = find_model,
                                           .metrics = w.metrics,
                                           .wall_s = wall,
                                           .n_slots = N_SLOTS,
                                           .max_bytes = max_bytes};
    f.b = batch_runner_new(&o);
}

static int begin(void **state)
{
    if (setup(state) != 0)
        return 1;
    memset(&f, 0, sizeof f);
    f.wall_s = 1000;
    snprintf(f.dir, sizeof f.dir, "/tmp/coxbatch-XXXXXX");
    assert_non_null(mkdtemp(f.dir));
    assert_int_equal(loop_new(&f.loop, &err), STATUS_OK);
    assert_int_equal(encode_pool_new(f.loop, &(struct encode_threads){"pool", 1, 0}, 64, 1 << 20,
                                     &f.thread, &err),
                     STATUS_OK);
    assert_int_equal(state_open(f.dir, STORE_BYTES, &f.store, &err), STATUS_OK);
    make_runner(LINE_BYTES);
    loop_on_turn_end(f.loop, look, NULL);
    (void)loop_timer_start(f.loop, 5, 5, wake, NULL);
    return 0;
}

static int end(void **state)
{
    static const char *const names[] = {"state.sqlite", "state.sqlite-wal", "state.sqlite-shm",
                                        "state.reserve"};
    char path[128];
    batch_runner_close(f.b);
    encode_pool_free(f.thread);
    batch_runner_free(f.b);
    state_close(f.store);
    loop_free(f.loop);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", f.dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(f.dir), 0);
    return teardown(state);
}

static struct stored_batch add_lines(const char *endpoint, struct str lines)
{
    struct stored_file file = {.tenant = ME, .filename = "in", .purpose = "batch"};
    struct stored_batch b = {.tenant = ME, .created_s = 1000, .expires_s = 2000};
    snprintf(b.endpoint, sizeof b.endpoint, "%s", endpoint);
    assert_int_equal(state_add_file(f.store, &file, lines, &err), STATUS_OK);
    memcpy(b.input_file, file.id, sizeof file.id);
    assert_int_equal(state_add_batch(f.store, &b, &err), STATUS_OK);
    assert_int_equal(b.state, BATCH_IN_PROGRESS);
    return b;
}

/* Adds a batch of `n` completion lines. The lines from `wrong_from` on have an invalid body. The
 * test may use the store directly until the first run, because the store's thread is idle until
 * then. */
static struct stored_batch add_batch(uint32_t n, uint32_t wrong_from)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(&text,
                      "{\"custom_id\":\"c%u\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                      "\"body\":{\"prompt\":\"p\",\"max_tokens\":%d}}\n",
                      i, i < wrong_from ? 4 : -1);
    struct stored_batch b = add_lines("/v1/completions", strbuf_str(&text));
    strbuf_fini(&text);
    return b;
}

/* Adds a batch of chat lines with one tool of `n_properties` properties. Such a line keeps its
 * tool in memory until it is answered. */
static struct stored_batch add_tools(uint32_t n, uint32_t n_properties)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(&text,
                      "{\"custom_id\":\"c%u\",\"method\":\"POST\",\"url\":"
                      "\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":\"user\","
                      "\"content\":\"p\"}],\"max_tokens\":4,\"tools\":[{\"type\":\"function\","
                      "\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                      "\"properties\":{\"a\":{}",
                      i);
        for (uint32_t k = 0; k < n_properties; k++)
            strbuf_printf(&text, ",\"p%u\":{}", k);
        strbuf_append_c(&text, "}}}}]}}\n");
    }
    struct stored_batch b = add_lines("/v1/chat/completions", strbuf_str(&text));
    strbuf_fini(&text);
    return b;
}

/* Checks the state of the batch after the store's thread has finished its work. */
static void assert_batch(const struct stored_batch *b, enum batch_state state, uint32_t completed,
                         uint32_t failed)
{
    struct stored_batch got;
    assert_int_equal(state_get_batch(f.store, ME, str_from(b->id), &got, &err), STATUS_OK);
    assert_int_equal(got.state, state);
    assert_int_equal(got.n_completed, completed);
    assert_int_equal(got.n_failed, failed);
    stored_batch_fini(&got);
}

static bool two_submitted(void)
{
    return w.n_submits >= 2;
}

static bool three_submitted(void)
{
    return w.n_submits >= 3;
}

static bool four_submitted(void)
{
    return w.n_submits >= 4;
}

static bool none_open(void)
{
    return OPEN == 0 && RUNNING == 0 && LINES("completed") + LINES("failed") > 0;
}

static void test_lines_are_answered(void **state)
{
    struct stored_batch b = add_batch(4, 3);
    assert_true(RUNNING == 0 && LINES("completed") == 0);
    batch_runner_wake(f.b);
    run_until(two_submitted);
    assert_int_equal(w.n_submits, N_SLOTS); /* at most N_SLOTS lines run at once */
    assert_true(RUNNING == N_SLOTS && OPEN == 1);
    assert_string_equal(w.submits[0].sampling.max_tokens == 4 ? "4" : "?", "4");
    tokens(0, 0, "abcd", FINISH_LENGTH);
    run_until(three_submitted); /* the slot of the answered line is free again */
    tokens(1, 0, "abcd", FINISH_LENGTH);
    tokens(2, 0, "abcd", FINISH_LENGTH);
    run_until(none_open);
    assert_true(LINES("completed") == 3 && LINES("failed") == 1);
    assert_true(LINES("released") == 0 && LINES("dropped") == 0);
    assert_batch(&b, BATCH_COMPLETED, 3, 1);
}

/* A 503 is not an answer: the line runs again later. */
static void test_overload_waits(void **state)
{
    struct stored_batch b = add_batch(2, 2);
    batch_runner_wake(f.b);
    run_until(two_submitted);
    w.now_ns += 400000000000ull;
    set_cluster(0);
    w.now_ns += 400000000000ull;
    serving_tick(&w.s); /* the cluster has had no workers for too long */
    /* a line is released only after the store has recorded it */
    assert_true(LINES("released") == 0);
    set_cluster(1);
    run_until(four_submitted);
    assert_true(LINES("released") == 2 && LINES("failed") == 0 && LINES("completed") == 0);
    tokens(2, 0, "abcd", FINISH_LENGTH);
    tokens(3, 0, "abcd", FINISH_LENGTH);
    run_until(none_open);
    assert_batch(&b, BATCH_COMPLETED, 2, 0);
}

static void test_a_cancelled_batch_drops_its_lines(void **state)
{
    struct stored_batch b = add_batch(3, 3), got;
    int64_t no;
    batch_runner_wake(f.b);
    run_until(two_submitted);
    assert_int_equal(state_cancel_batch(f.store, ME, str_from(b.id), f.wall_s, &got, &no, &err),
                     STATUS_OK);
    stored_batch_fini(&got);
    batch_runner_drop(f.b, no);
    assert_int_equal(w.n_cancels, 2);
    assert_true(LINES("dropped") == 2 && RUNNING == 0);
    assert_batch(&b, BATCH_CANCELLED, 0, 0);
}

static bool one_completed(void)
{
    return LINES("completed") == 1;
}

static bool one_submitted_one_released(void)
{
    return w.n_submits == 1 && LINES("released") > 0;
}

/* Each of two lines keeps 300 KB, and the shared budget of 1 MiB fits one of these lines at a
 * time. The other line waits in the store. */
static void test_lines_that_keep_much_take_turns(void **state)
{
    struct stored_batch b = add_tools(2, 1000);
    batch_runner_wake(f.b);
    run_until(one_submitted_one_released);
    tokens(0, 0, "abcd", FINISH_LENGTH);
    run_until(two_submitted);
    tokens(1, 0, "abcd", FINISH_LENGTH);
    run_until(none_open);
    assert_true(LINES("failed") == 0);
    assert_batch(&b, BATCH_COMPLETED, 2, 0);
}

/* A line that can never fit fails at once and does not run again. */
static void test_a_line_that_keeps_too_much_fails(void **state)
{
    batch_runner_close(f.b);
    batch_runner_free(f.b);
    make_runner(256 << 10);
    struct stored_batch b = add_tools(1, 1000);
    batch_runner_wake(f.b);
    run_until(none_open);
    assert_true(w.n_submits == 0 && LINES("released") == 0 && LINES("failed") == 1);
    assert_batch(&b, BATCH_COMPLETED, 0, 1);
}

static int n_turns;

static bool some_turns_later(void)
{
    return ++n_turns > 40;
}

/* No further line is read while the running lines hold more than half of the memory budget. */
static void test_no_line_is_read_without_room(void **state)
{
    batch_runner_close(f.b);
    batch_runner_free(f.b);
    make_runner(1);
    struct stored_batch b = add_batch(3, 3);
    batch_runner_wake(f.b);
    run_until(two_submitted);
    tokens(0, 0, "abcd", FINISH_LENGTH);
    run_until(one_completed);
    n_turns = 0;
    run_until(some_turns_later);
    assert_int_equal(w.n_submits, 2);
    tokens(1, 0, "abcd", FINISH_LENGTH);
    run_until(three_submitted);
    tokens(2, 0, "abcd", FINISH_LENGTH);
    run_until(none_open);
    assert_batch(&b, BATCH_COMPLETED, 3, 0);
}

static void test_what_batches_hold(void **state)
{
    assert_ptr_equal(batch_dialect(STR("/v1/chat/completions")), &dialect_chat);
    assert_ptr_equal(batch_dialect(STR("/v1/completions")), &dialect_completions);
    assert_ptr_equal(batch_dialect(STR("/v1/embeddings")), &dialect_embeddings);
    assert_null(batch_dialect(STR("/v1/responses")));
    assert_null(batch_dialect(STR("")));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_lines_are_answered),
        TEST(test_overload_waits),
        TEST(test_a_cancelled_batch_drops_its_lines),
        TEST(test_lines_that_keep_much_take_turns),
        TEST(test_a_line_that_keeps_too_much_fails),
        TEST(test_no_line_is_read_without_room),
        cmocka_unit_test(test_what_batches_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
