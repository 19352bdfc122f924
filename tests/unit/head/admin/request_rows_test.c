/* Tests the rows of requests for the dashboard: times, the ring of ended requests, copies that
 * are made in slices, pages. */
#include "head/admin/request_rows.h"
#include "tests/unit/head/core/core_fixture.h"

#include <stdlib.h>

#define NONE UINT64_MAX

static void times_are_of_what_it_came_to(void **state)
{
    static const struct {
        const char *name;
        uint64_t arrival, scheduled, first, end, queue, prefill, decode;
    } cases[] = {
        {"it waits", 100, 0, 0, 0, 900, NONE, NONE},
        {"its prompt is computed", 100, 300, 0, 0, 200, 700, NONE},
        {"it decodes", 100, 300, 400, 0, 200, 100, 600},
        {"it ended", 100, 300, 400, 900, 200, 100, 500},
        {"it ended while it waited", 100, 0, 0, 500, 400, NONE, NONE},
        {"its first step was before its last arrival", 100, 50, 400, 0, 0, 350, 600},
        {"a first token without a step here", 100, 0, 400, 900, 300, NONE, 500},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request_row row = {.arrival_ns = cases[i].arrival,
                                  .scheduled_ns = cases[i].scheduled,
                                  .first_token_ns = cases[i].first,
                                  .end_ns = cases[i].end};
        struct request_times t = request_row_times(&row, 1000);
        if (t.queue_ns != cases[i].queue || t.prefill_ns != cases[i].prefill ||
            t.decode_ns != cases[i].decode)
            fail_msg("%s", cases[i].name);
    }
}

static void the_last_that_ended_are_held(void **state)
{
    struct ended_requests e;
    struct request *r = request_alloc(NULL);
    ended_requests_init(&e);
    assert_null(ended_requests_at(&e, 0));
    for (uint32_t i = 0; i < REQUEST_ROWS_ENDED + 10; i++) {
        r->arrival_seq = i;
        r->state = i % 2 ? REQUEST_FINISHED : REQUEST_RUNNING;
        ended_requests_add(&e, r, i);
    }
    assert_int_equal(ended_requests_at(&e, 0)->arrival_seq, REQUEST_ROWS_ENDED + 9);
    assert_int_equal(ended_requests_at(&e, 0)->state, REQUEST_FINISHED);
    /* The request ran and was cancelled. */
    assert_int_equal(ended_requests_at(&e, 1)->state, REQUEST_CANCELLED);
    assert_int_equal(ended_requests_at(&e, REQUEST_ROWS_ENDED - 1)->arrival_seq, 10);
    assert_null(ended_requests_at(&e, REQUEST_ROWS_ENDED));
    ended_requests_finish_last(&e);
    assert_int_equal(ended_requests_at(&e, 0)->finish, FINISH_STOP);
    request_free(r);
    ended_requests_fini(&e);
}

/* Returns a head whose table of n requests has lost every third request. */
static struct head_core *core_of(uint32_t n)
{
    struct head_core *h = mem_zalloc(sizeof *h);
    h->requests = request_table_new(n);
    h->now_ns = 5000;
    struct request **all = mem_array(n, sizeof *all);
    for (uint32_t i = 0; i < n; i++) {
        all[i] = request_alloc(NULL);
        all[i]->id.lo = i + 1;
        all[i]->arrival_seq = i;
        assert_int_equal(request_table_add(h->requests, all[i]), STATUS_OK);
    }
    for (uint32_t i = 0; i < n; i += 3) {
        request_table_remove(h->requests, all[i]);
        request_free(all[i]);
    }
    mem_free(all);
    return h;
}

static void a_walk_takes_all_in_slices(void **state)
{
    static const uint32_t sizes[] = {0, 1, 3, 700, 3000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct head_core *h = core_of(sizes[i]);
        struct live_requests l = {0};
        uint32_t n_here = request_table_count(h->requests), n_slices = 1;
        live_requests_begin(&l);
        while (!live_requests_go_on(&l, h))
            n_slices++;
        assert_int_equal(l.n, n_here);
        assert_int_equal(l.n_here, n_here);
        assert_int_equal(l.taken_ns, h->now_ns);
        assert_in_range(n_slices, n_here / REQUEST_ROWS_SLICE, 1 + n_here / REQUEST_ROWS_SLICE);
        for (uint32_t k = 1; k < l.n; k++)
            assert_true(l.rows[k].arrival_seq > l.rows[k - 1].arrival_seq);
        live_requests_fini(&l);
        request_table_free(h->requests);
        mem_free(h);
    }
}

static uint64_t plain_key(const struct request_row *row, const struct request_view *v)
{
    return v->sort == SORT_PROMPT ? row->n_prompt : row->arrival_seq;
}

static const struct request_view *sorted_by;
static int compare(const void *a, const void *b)
{
    const struct request_row *x = a, *y = b;
    uint64_t p = plain_key(x, sorted_by), q = plain_key(y, sorted_by);
    if (p != q)
        return (p < q) != sorted_by->descending ? -1 : 1;
    return x->arrival_seq < y->arrival_seq ? -1 : 1;
}

/* A page equals the same part of a full sort, in whatever order the requests are stored. */
static void a_page_is_a_part_of_all_sorted(void **state)
{
    struct rng rng = {.state = 7};
    struct ended_requests e;
    ended_requests_init(&e);
    for (int round = 0; round < 300; round++) {
        uint32_t n = (uint32_t)rng_below(&rng, round < 100 ? 12 : 1500);
        struct request_view v = {.sort = rng_below(&rng, 2) ? SORT_PROMPT : SORT_ARRIVAL,
                                 .descending = rng_below(&rng, 2),
                                 .offset = (uint32_t)rng_below(&rng, 1600),
                                 .limit = (uint32_t)rng_below(&rng, REQUEST_ROWS_PAGE + 1)};
        struct request_row *rows = mem_array(n + 1, sizeof *rows);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t few = round % 3 ? 5 : 100000;
            rows[i] = (struct request_row){.arrival_seq = rng_next(&rng),
                                           .n_prompt = (uint32_t)rng_below(&rng, few)};
        }
        struct live_requests l = {.rows = rows, .n = n, .n_here = n};
        struct request_page page;
        request_page_fill(&v, &l, &e, &rng, &page);
        struct request_row *want = mem_array(n + 1, sizeof *want);
        memcpy(want, rows, n * sizeof *want);
        sorted_by = &v;
        qsort(want, n, sizeof *want, compare);
        uint32_t last = n > v.limit ? n - v.limit : 0;
        assert_int_equal(page.offset, v.offset < last ? v.offset : last);
        assert_int_equal(page.n, v.limit < n ? v.limit : n);
        assert_int_equal(page.n_matching, n);
        for (uint32_t i = 0; i < page.n; i++)
            if (page.rows[i]->arrival_seq != want[page.offset + i].arrival_seq)
                fail_msg("seed 7, round %d, row %u of %u", round, i, page.n);
        mem_free(rows);
        mem_free(want);
    }
    ended_requests_fini(&e);
}

static void only_what_is_wanted_is_shown(void **state)
{
    static const struct {
        enum request_show show;
        uint32_t n;
    } cases[] = {{SHOW_LIVE, 4}, {SHOW_WAITING, 3}, {SHOW_RUNNING, 1}, {SHOW_ENDED, 0}};
    struct request_row rows[4] = {{.state = REQUEST_QUEUED},
                                  {.state = REQUEST_RUNNING},
                                  {.state = REQUEST_PREEMPTED},
                                  {.state = REQUEST_QUEUED}};
    struct live_requests l = {.rows = rows, .n = 4, .n_here = 4};
    struct ended_requests e;
    struct rng rng = {.state = 1};
    ended_requests_init(&e);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request_page page;
        struct request_view v = {.show = cases[i].show, .limit = 10};
        request_page_fill(&v, &l, &e, &rng, &page);
        assert_int_equal(page.n_matching, cases[i].n);
        assert_int_equal(page.n, cases[i].n);
    }
    ended_requests_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_of_what_it_came_to),
        cmocka_unit_test(the_last_that_ended_are_held),
        cmocka_unit_test(a_walk_takes_all_in_slices),
        cmocka_unit_test(a_page_is_a_part_of_all_sorted),
        cmocka_unit_test(only_what_is_wanted_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
