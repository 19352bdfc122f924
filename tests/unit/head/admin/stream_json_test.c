/* Tests the parts of an update of /api/stream: the columns of each part and the bounds on their
 * size. Each test fills a head core by `core_fixture.h`, calls one `stream_json_*` function and
 * parses the JSON that it wrote into a `strbuf`. The caller owns the buffer until `parsed` takes
 * it. All tests run on one thread. */
#include "tests/unit/head/core/core_fixture.h"

#include "head/admin/json.h"
#include "head/admin/stream_json.h"
#include "head/kv/block_pool.h"

static json_t *parsed(struct strbuf *b)
{
    json_error_t err;
    assert_false(b->failed);
    json_t *o = json_loadb(b->ptr, b->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err);
    if (!o)
        fail_msg("%s: %.*s", err.text, (int)b->len, b->ptr);
    strbuf_fini(b);
    return o;
}

static json_t *row(const json_t *part, size_t i)
{
    return json_array_get(json_object_get(part, "rows"), i);
}

static long long number(const json_t *a, size_t i)
{
    return json_integer_value(json_array_get(a, i));
}

static void give_request(struct fixture *f, uint32_t n_tokens)
{
    static const uint32_t ids[8] = {5, 6, 7};
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, 2},
                               .attempt = 1,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = n_tokens}}};
    say(f, 3, &m);
}

static struct fixture *serving(void)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    say_gateway_hello(f, 3, 9);
    give_request(f, 4);
    return f;
}

/* Workers and replicas have the same figures as in /api/status. */
static void workers_and_replicas_are_those_of_the_status(void **state)
{
    struct fixture *f = serving();
    struct strbuf a, b;
    strbuf_init(&a, 0);
    strbuf_init(&b, 0);
    stream_json_workers(f->core, &a);
    stream_json_replicas(f->core, &b);
    json_t *workers = parsed(&a), *replicas = parsed(&b), *s = admin_json_status(f->core, false);
    json_t *w = row(workers, 1), *g = row(replicas, 0);
    const json_t *sw = json_array_get(json_object_get(s, "workers"), 1);
    const json_t *sg = json_array_get(json_object_get(s, "groups"), 0);
    assert_int_equal(json_array_size(w), 17);
    assert_int_equal(json_array_size(g), 14);
    assert_int_equal(json_integer_value(json_object_get(workers, "total")), 2);
    static const struct {
        size_t i;
        const char *name;
    } of_worker[] = {{0, "instance"},     {1, "node"},          {2, "state"},
                     {3, "group"},        {4, "stage"},         {5, "rank"},
                     {6, "ordinal"},      {7, "device_name"},   {14, "gpu"},
                     {9, "last_seen_ms"}, {8, "step_executed"}, {16, "memory_bytes"}},
      of_replica[] = {{0, "id"},
                      {1, "state"},
                      {2, "role"},
                      {3, "epoch"},
                      {4, "tp"},
                      {5, "whole_tp"},
                      {6, "pp"},
                      {7, "running"},
                      {8, "waiting"},
                      {11, "steps"},
                      {9, "kv_blocks_used"},
                      {10, "kv_blocks_total"},
                      {12, "recoveries"}};
    for (size_t i = 0; i < sizeof of_worker / sizeof of_worker[0]; i++)
        if (!json_equal(json_array_get(w, of_worker[i].i), json_object_get(sw, of_worker[i].name)))
            fail_msg("worker's %s", of_worker[i].name);
    for (size_t i = 0; i < sizeof of_replica / sizeof of_replica[0]; i++)
        if (!json_equal(json_array_get(g, of_replica[i].i),
                        json_object_get(sg, of_replica[i].name)))
            fail_msg("group's %s", of_replica[i].name);
    assert_int_equal(number(g, 7), 1); /* one request runs */
    json_decref(workers);
    json_decref(replicas);
    json_decref(s);
    fixture_free(f);
}

static void a_request_has_its_times_and_its_replica(void **state)
{
    struct fixture *f = serving();
    struct live_requests l = {0};
    struct request_page page;
    struct request_view v = {.limit = 10};
    struct strbuf b;
    f->core->now_ns = f->now += 30 * MS;
    live_requests_begin(&l);
    assert_true(live_requests_go_on(&l, f->core));
    request_page_fill(&v, &l, &f->core->ended, &f->core->rng, &page);
    strbuf_init(&b, 0);
    stream_json_requests(f->core, &l, &page, &b);
    json_t *o = parsed(&b), *r = row(o, 0);
    assert_int_equal(json_array_size(r), 13);
    assert_string_equal(json_string_value(json_array_get(r, 0)),
                        "00000000000000010000000000000002");
    assert_string_equal(json_string_value(json_array_get(r, 1)), "running");
    assert_int_equal(number(r, 2), 0);
    /* the request was scheduled at once, so it spent 0 us in the queue */
    assert_int_equal(number(r, 4), 0);
    /* the request has spent this many microseconds in its prompt so far */
    assert_int_equal(number(r, 5), 30000);
    assert_true(json_is_null(json_array_get(r, 6))); /* the request has no first token yet */
    assert_int_equal(number(r, 7), 3);
    assert_int_equal(number(r, 10), 4);
    assert_true(json_is_null(json_array_get(r, 12)));
    live_requests_fini(&l);
    json_decref(o);
    fixture_free(f);
}

static void samples_go_on_where_a_listener_is(void **state)
{
    struct fixture *f = serving();
    struct history t;
    history_init(&t);
    for (uint32_t i = 0; i < HISTORY_SAMPLES + 5; i++)
        history_take(&t, f->core);
    static const struct {
        uint64_t next;
        size_t n;
    } cases[] = {{0, HISTORY_SAMPLES},
                 {HISTORY_SAMPLES + 3, 2},
                 {HISTORY_SAMPLES + 5, 0},
                 /* This number comes from an earlier head. */
                 {HISTORY_SAMPLES + 6, HISTORY_SAMPLES}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strbuf b;
        uint64_t next = cases[i].next;
        strbuf_init(&b, 0);
        stream_json_samples(&t, &next, &b);
        json_t *o = parsed(&b);
        assert_int_equal(json_array_size(json_object_get(o, "rows")), cases[i].n);
        assert_int_equal(next, HISTORY_SAMPLES + 5);
        if (cases[i].n) {
            assert_int_equal(json_array_size(row(o, 0)), 17);
            assert_int_equal(number(row(o, 0), 1), 1);               /* one request runs */
            assert_true(json_is_null(json_array_get(row(o, 0), 7))); /* no request has ended */
        }
        json_decref(o);
    }
    history_fini(&t);
    fixture_free(f);
}

static void latencies_are_of_those_that_ended_of_late(void **state)
{
    struct fixture *f = fixture_new(2);
    struct head_core *h = f->core;
    struct request *r = request_alloc(NULL);
    struct history t;
    history_init(&t);
    h->now_ns = 100 * NS_PER_S;
    r->state = REQUEST_FINISHED;
    /* end times in seconds; the first one is too old to count */
    uint64_t ends[] = {50, 95, 96, 97};
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t end = ends[i] * NS_PER_S;
        r->arrival_ns = end - (2 + i) * NS_PER_S;
        r->scheduled_ns = r->arrival_ns;
        r->first_token_ns = r->arrival_ns + i * 100 * MS;
        r->n_ids = 11; /* eleven tokens have ten gaps */
        ended_requests_add(&h->ended, r, end);
    }
    r->state = REQUEST_FAILED; /* a failed request does not count for latency */
    ended_requests_add(&h->ended, r, 99 * NS_PER_S);
    history_take(&t, h);
    const struct history_sample *x = &t.ring[0];
    assert_float_equal(x->ttft_s[0], 0.2, 1e-9);
    /* The 95th percentile of three values is the second one. */
    assert_float_equal(x->ttft_s[1], 0.2, 1e-9);
    assert_float_equal(x->e2e_s[0], 4, 1e-9);
    assert_float_equal(x->itl_s[0], 0.38, 1e-9);
    request_free(r);
    history_fini(&t);
    fixture_free(f);
}

static void events_are_the_newest_of_what_is_missing(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint32_t i = 0; i < 300; i++)
        events_add(&f->core->events, f->now, LOG_DEBUG, "tick", "i=%u", i);
    static const struct {
        uint64_t next;
        size_t n;
    } cases[] = {
        {0, STREAM_EVENTS}, {1, STREAM_EVENTS}, {291, 10}, {301, 0}, {9999, STREAM_EVENTS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strbuf b;
        uint64_t next = cases[i].next;
        strbuf_init(&b, 0);
        stream_json_events(f->core, &next, &b);
        json_t *o = parsed(&b);
        assert_int_equal(json_array_size(json_object_get(o, "rows")), cases[i].n);
        assert_int_equal(next, 301);
        json_decref(o);
    }
    fixture_free(f);
}

static void the_kv_map_counts_every_block(void **state)
{
    struct fixture *f = serving();
    struct strbuf b;
    strbuf_init(&b, 0);
    stream_json_kv(f->core, 0, 5, &b); /* KV group 5 does not exist, so the only group is shown */
    json_t *o = parsed(&b);
    const char *cells = json_string_value(json_object_get(o, "cells"));
    assert_int_equal(strlen(cells), 64 * 3);
    assert_memory_equal(cells, "090000", 6); /* one block of 16 tokens is in use */
    assert_int_equal(json_integer_value(json_object_get(o, "kv")), 0);
    assert_int_equal(json_integer_value(json_object_get(o, "owned")), 1);
    assert_int_equal(json_integer_value(json_object_get(o, "empty")), 63);
    json_decref(o);
    fixture_free(f);
    f = fixture_new(2);
    strbuf_init(&b, 0);
    stream_json_kv(f->core, 0, 0, &b);
    o = parsed(&b);
    assert_true(json_is_null(o)); /* no replica serves */
    json_decref(o);
    fixture_free(f);
}

static void blocks_are_told_by_who_has_them(void **state)
{
    struct block_pool *p = block_pool_new(8);
    bool kept;
    uint32_t ids[3], n[BLOCK_USE_COUNT] = {0};
    block_pool_reset(p, 0);
    for (int i = 0; i < 3; i++)
        ids[i] = block_pool_alloc(p, &kept);
    block_pool_acquire(p, ids[0]);
    block_pool_keep(p, ids[2], true);
    block_pool_release(p, &ids[2], 1, 0);
    block_pool_count(p, 0, 8, 1, n);
    assert_int_equal(n[BLOCK_SHARED], 1);
    assert_int_equal(n[BLOCK_OWNED], 1);
    assert_int_equal(n[BLOCK_CACHED], 1);
    assert_int_equal(n[BLOCK_EMPTY], 5);
    memset(n, 0, sizeof n);
    block_pool_count(p, 0, 8, 3, n);
    assert_int_equal(n[BLOCK_SHARED] + n[BLOCK_OWNED] + n[BLOCK_CACHED] + n[BLOCK_EMPTY], 3);
    block_pool_free(p);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_and_replicas_are_those_of_the_status),
        cmocka_unit_test(a_request_has_its_times_and_its_replica),
        cmocka_unit_test(samples_go_on_where_a_listener_is),
        cmocka_unit_test(latencies_are_of_those_that_ended_of_late),
        cmocka_unit_test(events_are_the_newest_of_what_is_missing),
        cmocka_unit_test(the_kv_map_counts_every_block),
        cmocka_unit_test(blocks_are_told_by_who_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
