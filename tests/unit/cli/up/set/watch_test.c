/* Tests the thread that asks a head for its number of workers. The head is a server of the test
 * that keeps questions, or that answers each at once as older heads do. */
#include "cli/up/set/watch.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"

struct fake_head {
    struct loop *loop;
    struct http_server *server;
    struct loop_wakeup *wakeup; /* the head has other news, or ends */
    pthread_t thread;
    char address[32];
    struct http_request *kept; /* a question that waits */
    bool keeps;                /* false = an older head */
    int wanted;
    atomic_bool ends;
    atomic_int n_questions, n_rests, n_kept, wants; /* wants: the number that it says next */
};

static void answer(struct fake_head *h, struct http_request *r)
{
    char text[256];
    int n = snprintf(text, sizeof text, "{\"desired_workers\": %d, \"groups_ready\": 0%s}",
                     h->wanted, h->keeps ? ", \"version\": 7" : "");
    http_respond(r, 200, "application/json", (struct str){text, (size_t)n}, NULL, 0);
}

static void on_request(void *ctx, struct http_request *r)
{
    struct fake_head *h = ctx;
    if (str_eq_c(http_path(r), "/api/rest")) {
        atomic_fetch_add(&h->n_rests, 1);
        http_respond(r, 200, "application/json", STR("{}"), NULL, 0);
        return;
    }
    atomic_fetch_add(&h->n_questions, 1);
    if (!h->keeps || !str_eq_c(http_query(r), "wait_ms=1000&seen=7")) {
        answer(h, r);
        return;
    }
    struct http_request *old = h->kept; /* its connection may be about to close */
    h->kept = r;
    atomic_fetch_add(&h->n_kept, 1);
    if (old)
        answer(h, old);
}

static void on_abort(void *ctx, struct http_request *r)
{
    struct fake_head *h = ctx;
    if (h->kept == r)
        h->kept = NULL;
}

static void on_wakeup(void *ctx)
{
    struct fake_head *h = ctx;
    struct http_request *r = h->kept;
    h->wanted = atomic_load(&h->wants);
    h->kept = NULL;
    if (r)
        answer(h, r);
    if (atomic_load(&h->ends))
        loop_stop(h->loop);
}

static void *serve(void *ctx)
{
    loop_run(((struct fake_head *)ctx)->loop);
    return NULL;
}

static void head_start(struct fake_head *h, bool keeps)
{
    const struct http_options o = {.host = "127.0.0.1", .server_name = "test"};
    const struct http_handlers handlers = {
        .ctx = h, .on_request = on_request, .on_abort = on_abort};
    *h = (struct fake_head){.keeps = keeps};
    assert_int_equal(loop_new(&h->loop, NULL), STATUS_OK);
    assert_int_equal(http_server_start(h->loop, &o, &handlers, &h->server, NULL), STATUS_OK);
    h->wakeup = loop_wakeup_new(h->loop, on_wakeup, h);
    snprintf(h->address, sizeof h->address, "127.0.0.1:%u", http_server_port(h->server));
    assert_int_equal(pthread_create(&h->thread, NULL, serve, h), 0);
}

static void head_stop(struct fake_head *h)
{
    atomic_store(&h->ends, true);
    loop_wake(h->wakeup);
    pthread_join(h->thread, NULL);
    http_server_close(h->server);
    loop_free(h->loop);
}

static void on_change(void *ctx)
{
}

static struct set_watch *watch_start(const struct fake_head *h, struct loop *l)
{
    struct set_watch *w = set_watch_start(
        &(struct set_watch_options){.loop = l, .admin = h->address, .on_change = on_change});
    assert_non_null(w);
    return w;
}

/* Waits until the counter has reached `n`. ctest ends a test that waits for ever. */
static void await(const atomic_int *counter, int n)
{
    while (atomic_load(counter) < n)
        usleep(1000);
}

static void test_a_kept_question_reports_a_change(void **unused)
{
    struct fake_head h;
    struct loop *l;
    struct set_heard heard = {0};
    head_start(&h, true);
    assert_int_equal(loop_new(&l, NULL), STATUS_OK);
    struct set_watch *w = watch_start(&h, l);
    await(&h.n_kept, 1);
    set_watch_look(w, &heard);
    assert_true(heard.is_known && heard.wanted == 0);
    atomic_store(&h.wants, 2);
    loop_wake(h.wakeup);
    while (heard.wanted == 0) {
        set_watch_look(w, &heard);
        usleep(1000);
    }
    assert_int_equal(heard.wanted, 2);
    set_watch_free(w); /* the head keeps the next question */
    head_stop(&h);
    loop_free(l);
}

/* The head keeps every question until the test ends, so only an interruption lets orders pass. */
static void test_an_order_ends_a_kept_question(void **unused)
{
    struct fake_head h;
    struct loop *l;
    struct set_heard heard = {0};
    head_start(&h, true);
    assert_int_equal(loop_new(&l, NULL), STATUS_OK);
    struct set_watch *w = watch_start(&h, l);
    for (int i = 1; i <= 3; i++) {
        await(&h.n_kept, i);
        set_watch_rest(w, 2);
        await(&h.n_rests, i);
        while (heard.rest_answers < (uint64_t)i)
            set_watch_look(w, &heard);
        assert_true(heard.is_known && heard.rests);
    }
    await(&h.n_kept, 4);
    set_watch_free(w);
    head_stop(&h);
    loop_free(l);
}

/* A head without the parameters answers at once, and must not be asked without a pause. */
static void test_an_older_head_is_asked_at_intervals(void **unused)
{
    struct fake_head h;
    struct loop *l;
    head_start(&h, false);
    assert_int_equal(loop_new(&l, NULL), STATUS_OK);
    const uint64_t begin_ns = clock_mono_ns();
    struct set_watch *w = watch_start(&h, l);
    await(&h.n_questions, 6);
    const uint64_t took_ns = clock_mono_ns() - begin_ns;
    assert_true(took_ns >= 5 * 49 * NS_PER_MS); /* a busy machine takes longer */
    set_watch_free(w);
    head_stop(&h);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kept_question_reports_a_change),
        cmocka_unit_test(test_an_order_ends_a_kept_question),
        cmocka_unit_test(test_an_older_head_is_asked_at_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
