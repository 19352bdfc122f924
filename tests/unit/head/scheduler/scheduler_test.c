/* Tests decisions of the scheduler, case by case. Each test opens a bed (`scheduler_bed.h`),
 * adds requests, plans steps and applies results, and compares runs, ends and states with the
 * expected ones. Seeded property tests are in tests/sim. Invariants: a bad result changes
 * nothing, and stepping allocates no memory when all requests have slots. The bed owns the
 * scheduler and the requests. All tests run on one thread. */
#include "head/budget/step_budget.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"
#include "tests/unit/malloc_count.h"

/* ---- cases ---- */

static void configurations_are_checked(void **state)
{
    struct scheduler_config cases[12];
    for (size_t i = 0; i < 12; i++)
        cases[i] = config(8);
    cases[0].max_num_seqs = 0;
    /* the budget is below the number of sequences, so a sequence could starve */
    cases[1].max_num_batched_tokens = 3;
    cases[2].max_model_len = 0;
    cases[3].depth = 3;
    cases[4].depth = 0;
    cases[5].n_kv_groups = 0;
    cases[6].n_kv_groups = SCHEDULER_MAX_KV_GROUPS + 1;
    cases[7].kv_groups[0].block_tokens = 0;
    cases[8].kv_groups[0].block_tokens = 24;
    cases[9].kv_groups[0].n_blocks = 0;
    cases[10].kv_groups[0].kind = KV_WINDOW;
    cases[11].kv_groups[0].n_blocks = UINT32_MAX;
    for (size_t i = 0; i < 12; i++) {
        struct scheduler *s;
        struct error err;
        assert_int_equal(scheduler_new(&cases[i], &s, &err), STATUS_INVALID);
        assert_null(s);
    }
}

static void decodes_go_first_and_prompts_share_the_rest(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.max_num_batched_tokens = 20;
    open_bed(&b, &c);
    add(&b, 3, 50);
    turn(&b, OTHER_ID);
    add(&b, 30, 50);
    add(&b, 5, 50);
    const struct msg_plan *p = step(&b);
    assert_int_equal(p->n_runs, 2); /* the second prompt took the rest, so the third waits */
    assert_true(p->runs[0].n_tokens == 1 && p->runs[0].start == 3 && p->runs[0].sample);
    assert_true(p->runs[1].n_tokens == 19 && p->runs[1].start == 0 && !p->runs[1].sample);
    struct answer a;
    answer(p, OTHER_ID, &a);
    give(&b, &a);
    p = step(&b);
    assert_int_equal(p->n_runs, 3);
    assert_true(p->runs[1].n_tokens == 11 && p->runs[1].start == 19 && p->runs[1].sample);
    assert_true(p->runs[2].n_tokens == 5 && p->runs[2].sample);
    close_bed(&b);
}

static void long_prompts_come_in_pieces(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.long_prefill_token_threshold = 10;
    open_bed(&b, &c);
    add(&b, 25, 2);
    add(&b, 8, 2);
    const struct msg_plan *p = step(&b);
    assert_true(p->n_runs == 2 && p->runs[0].n_tokens == 10 && p->runs[1].n_tokens == 8);
    close_bed(&b);
}

/* After the first results of a slow device, decodes still run and prompts are cut. All requests
 * make progress. */
static void prompts_are_cut_to_the_time_of_a_step(void **state)
{
    enum { MS = 1000000 };
    struct bed b;
    struct scheduler_config c = config(128);
    c.max_num_batched_tokens = 512;
    c.step_target_ns = 100 * MS;
    open_bed(&b, &c);
    add(&b, 3, 50);
    turn(&b, OTHER_ID); /* the result has no time, so nothing is learnt */
    add(&b, 600, 2);
    struct answer a;
    const struct msg_plan *p = step(&b);
    assert_true(p->n_runs == 2 && p->runs[0].sample);
    assert_int_equal(p->runs[1].n_tokens, 64);
    answer(p, OTHER_ID, &a);
    a.m.execute_ns = 320 * MS;
    give(&b, &a);
    p = step(&b);
    assert_true(p->n_runs == 2 && p->runs[0].n_tokens == 1 && p->runs[0].sample);
    assert_in_range(p->runs[1].n_tokens, 10, 20);
    answer(p, OTHER_ID, &a);
    /* the device seems to hang, and a few tokens a step remain */
    a.m.execute_ns = 3600000ull * MS;
    give(&b, &a);
    for (uint32_t i = 0; i < 8; i++) {
        p = step(&b);
        assert_true(p->n_runs == 2 && p->runs[0].n_tokens == 1 &&
                    p->runs[1].n_tokens >= STEP_BUDGET_FLOOR);
        answer(p, OTHER_ID, &a);
        a.m.execute_ns = 3600000ull * MS;
        give(&b, &a);
    }
    close_bed(&b);
}

/* The last row of a prompt that ends in the step counts as sampled. Its other rows count as
 * prompt tokens. */
static void the_rows_of_a_step_are_counted_apart(void **state)
{
    struct bed b;
    struct answer a;
    struct scheduler_config c = config(128);
    c.step_target_ns = 100000000;
    open_bed(&b, &c);
    for (int i = 0; i < 3; i++)
        add(&b, 2, 1);
    answer(step(&b), OTHER_ID, &a);
    /* the step has 3 sampled rows and 3 others; 6 others would leave less */
    a.m.execute_ns = 60000000;
    give(&b, &a);
    add(&b, 40, 1);
    assert_int_equal(step(&b)->runs[0].n_tokens, 18);
    close_bed(&b);
}

static void the_queue_is_ordered(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.max_num_seqs = 1;
    open_bed(&b, &c);
    static const struct {
        int32_t priority;
        uint32_t attempt;
    } who[] = {{1, 1}, {0, 1}, {0, 1}, {1, 2}, {0, 2}, {-5, 1}};
    static const uint32_t want[] = {5, 4, 1, 2, 3, 0};
    for (size_t i = 0; i < 6; i++) {
        struct msg_submit m = submit(&b, 4, 1);
        m.priority = who[i].priority;
        m.attempt = who[i].attempt;
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    }
    for (size_t i = 0; i < 6; i++) {
        turn(&b, OTHER_ID);
        assert_int_equal(b.n_events, 1);
        assert_ptr_equal(b.events[0].request, b.requests[want[i]]);
        assert_true(b.events[0].ended);
    }
    assert_null(step(&b));
    close_bed(&b);
}

static void admission_is_bounded(void **state)
{
    struct bed b;
    struct scheduler_config c = config(4); /* the pool has 64 positions */
    c.max_waiting = 2;
    open_bed(&b, &c);
    /* the request needs 65 positions, since the last token is never run */
    struct msg_submit big = submit(&b, 60, 6);
    assert_int_equal(scheduler_add(b.s, make(&b, &big)), STATUS_NO_MEMORY);
    add(&b, 60, 5);
    add(&b, 4, 4);
    struct msg_submit m = submit(&b, 4, 4);
    assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_LIMIT);
    m.attempt = 2;
    assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    struct scheduler_load load;
    scheduler_get_load(b.s, &load);
    assert_true(load.n_prompt_tokens == 60 + 4 + 4 && load.waiting == 3);
    close_bed(&b);
}

static void the_next_step_does_not_wait_for_the_result(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    struct answer first, second;
    c.depth = 2;
    open_bed(&b, &c);
    struct request *r = add(&b, 4, 3);
    answer(step(&b), OTHER_ID, &first);
    const struct msg_plan *p = step(&b);
    assert_true(p->runs[0].start == 4 && p->runs[0].n_tokens == 1 && p->runs[0].sample);
    answer(p, OTHER_ID, &second);
    assert_null(step(&b)); /* the depth is reached */
    give(&b, &first);
    assert_int_equal(request_n_generated(r), 1);
    p = step(&b);
    assert_true(p->runs[0].start == 5 && p->runs[0].sample);
    answer(p, OTHER_ID, &first);
    give(&b, &second);
    assert_null(step(&b)); /* the third token is in flight, and it is the last token */
    give(&b, &first);
    assert_true(b.events[0].ended && r->finish == FINISH_LENGTH && !r->sched);
    close_bed(&b);
}

static void a_late_end_costs_one_token(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    struct scheduler_stats stats;
    struct answer first, second;
    c.depth = 2;
    open_bed(&b, &c);
    struct request *r = add(&b, 4, 30), *other = add(&b, 4, 30);
    answer(step(&b), OTHER_ID, &first);
    answer(step(&b), OTHER_ID, &second);
    uint32_t stop = STOP_ID;
    first.items[0].ids.ptr = &stop;
    give(&b, &first);
    assert_true(r->finish == FINISH_STOP && r->n_ids == 5 && r->stop_id == STOP_ID);
    scheduler_get_stats(b.s, &stats);
    assert_int_equal(stats.n_blocks_used, 2); /* the second step still uses the request's block */
    const struct msg_plan *p = step(&b);
    assert_true(p->finished.n == 1 && p->finished.ptr[0] == first.items[0].slot);
    give(&b, &second);
    assert_true(b.n_events == 1 && b.events[0].request == other && r->n_ids == 5);
    scheduler_get_stats(b.s, &stats);
    assert_int_equal(stats.n_blocks_used, 1);
    close_bed(&b);
}

static void wrong_results_are_refused(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    struct answer good, bad;
    struct error err;
    static const uint32_t two[] = {1, 2};
    c.depth = 2;
    open_bed(&b, &c);
    struct request *r = add(&b, 4, 30);
    add(&b, 100, 30); /* the first run of this prompt samples no token */
    answer(step(&b), OTHER_ID, &good);
    for (int i = 0; i < 8; i++) {
        bad = good;
        bad.m.items = bad.items;
        bad.items[0].ids.ptr = &bad.token;
        switch (i) {
        case 0:
            bad.m.term_epoch++;
            break;
        case 1:
            bad.m.step = 2;
            break;
        case 2:
            bad.m.step = 0;
            break;
        case 3:
            bad.items[0].slot = 99;
            break;
        case 4:
            bad.m.n_items = 0;
            bad.m.items = NULL;
            break;
        case 5:
            bad.items[1] = bad.items[0];
            bad.m.n_items = 2;
            break;
        case 6:
            bad.items[0].ids = (struct u32_span){two, 2};
            break;
        default:
            bad.items[0].ids.n = 0;
        }
        assert_int_equal(scheduler_on_result(b.s, &bad.m, 1, &b.events, &b.n_events, &err),
                         STATUS_PROTOCOL);
        assert_int_equal(b.n_events, 0);
    }
    assert_int_equal(r->n_ids, 4); /* the bad results changed nothing */
    give(&b, &good);
    assert_int_equal(r->n_ids, 5);
    assert_int_equal(scheduler_on_result(b.s, &good.m, 1, &b.events, &b.n_events, &err),
                     STATUS_PROTOCOL); /* no step is in flight */
    close_bed(&b);
}

static void a_prefix_is_computed_once(void **state)
{
    static const struct {
        uint32_t n_prompt;
        uint64_t tenant;
        int32_t n_prompt_logprobs;
        uint32_t want;
    } cases[] = {
        {48, 0, -1, 32}, /* the last token is always computed */
        /* The last of these four requests belongs to another tenant. */
        {49, 0, -1, 48},
        {60, 0, -1, 48},
        {15, 0, -1, 0},
        {60, 1, -1, 0},
        {60, 0, 0, 0}, /* prompt_logprobs need every position computed */
    };
    struct bed b;
    struct scheduler_config c = config(64);
    c.enable_prefix_caching = true;
    open_bed(&b, &c);
    add(&b, 50, 1);
    turn(&b, OTHER_ID);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg_submit m = submit(&b, cases[i].n_prompt, 1);
        m.tenant = cases[i].tenant;
        m.sampling.n_prompt_logprobs = cases[i].n_prompt_logprobs;
        struct request *r = make(&b, &m);
        assert_int_equal(scheduler_cached_tokens(b.s, r), cases[i].want);
        assert_int_equal(scheduler_add(b.s, r), STATUS_OK);
        const struct msg_plan *p = step(&b);
        assert_int_equal(p->admits[0].n_computed, cases[i].want);
        assert_int_equal(p->runs[0].start, cases[i].want);
        assert_int_equal(r->n_cached, cases[i].want);
        struct answer a;
        answer(p, OTHER_ID, &a);
        give(&b, &a);
    }
    close_bed(&b);
}

/* Ranks execute plans in order. A sequence planned later may use the blocks of an earlier plan
 * at once. */
static void a_planned_prompt_is_found(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    struct answer a;
    c.enable_prefix_caching = true;
    c.depth = 2;
    open_bed(&b, &c);
    struct request *r = add(&b, 50, 1);
    assert_int_equal(scheduler_cached_tokens(b.s, r), 0);
    answer(step(&b), OTHER_ID, &a);
    assert_int_equal(scheduler_cached_tokens(b.s, r), 48);
    give(&b, &a);
    close_bed(&b);
}

static void the_lowest_class_and_the_youngest_is_preempted(void **state)
{
    struct bed b;
    struct scheduler_config c = config(8);
    open_bed(&b, &c);
    static const int32_t priorities[] = {0, 1, 0};
    for (size_t i = 0; i < 3; i++) {
        struct msg_submit m = submit(&b, 14, 60);
        m.priority = priorities[i];
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
        turn(&b, OTHER_ID); /* requests are added one at a time, so that all three run */
    }
    struct scheduler_stats stats;
    do {
        turn(&b, OTHER_ID);
        scheduler_get_stats(b.s, &stats);
    } while (stats.n_preemptions == 0);
    assert_int_equal(b.requests[0]->state, REQUEST_RUNNING);
    assert_int_equal(b.requests[1]->state, REQUEST_PREEMPTED);
    assert_int_equal(b.requests[2]->state, REQUEST_RUNNING);
    while (b.requests[1]->finish == FINISH_NONE) {
        /* The third request may be preempted too, but it is admitted again first. */
        bool third = b.requests[2]->state == REQUEST_PREEMPTED;
        const struct msg_plan *p = step(&b);
        if (p->n_admits) { /* a preempted request is admitted again with all its ids as a prompt */
            assert_int_equal(p->admits[0].ids.n, b.requests[third ? 2 : 1]->n_ids);
            assert_int_equal(p->admits[0].n_prompt, 14);
        }
        struct answer a;
        answer(p, OTHER_ID, &a);
        give(&b, &a);
    }
    assert_int_equal(b.requests[1]->n_ids, 74);
    close_bed(&b);
}

static void deadlines_end_requests_wherever_they_are(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.max_num_seqs = 1;
    open_bed(&b, &c);
    for (int i = 0; i < 3; i++) {
        struct msg_submit m = submit(&b, 4, 50);
        m.deadline_ms = i == 2 ? 0 : 1;
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    }
    turn(&b, OTHER_ID);
    assert_null(scheduler_pop_ended(b.s));
    b.now_ns += 1000000;
    const struct msg_plan *p = step(&b);
    assert_true(p->finished.n == 1 && p->n_admits == 1); /* the third request has the slot */
    for (int i = 0; i < 2; i++) {
        struct request *r = scheduler_pop_ended(b.s);
        assert_true(r && r->finish == FINISH_TIMEOUT && r->state == REQUEST_FINISHED && !r->sched);
    }
    assert_null(scheduler_pop_ended(b.s));
    close_bed(&b);
}

static void a_resubmission_that_has_ended_is_answered(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    open_bed(&b, &c);
    struct msg_submit m = submit(&b, 4, 2);
    m.ids.n = 6;
    struct request *r = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, r), STATUS_OK);
    assert_null(step(&b));
    assert_ptr_equal(scheduler_pop_ended(b.s), r);
    assert_int_equal(r->finish, FINISH_LENGTH);
    close_bed(&b);
}

static void a_request_leaves_at_any_time(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    struct answer a;
    c.depth = 2;
    open_bed(&b, &c);
    struct request *waiting = add(&b, 4, 5);
    scheduler_remove(b.s, waiting);
    assert_null(step(&b));
    struct request *running = add(&b, 4, 5);
    answer(step(&b), OTHER_ID, &a);
    scheduler_remove(b.s, running);
    assert_null(running->sched);
    assert_null(step(&b)); /* nothing runs; the next plan names the finished slot */
    give(&b, &a);
    assert_int_equal(b.n_events, 0);
    assert_int_equal(running->n_ids, 4);
    add(&b, 4, 5);
    const struct msg_plan *p = step(&b);
    assert_true(p->finished.n == 1 && p->admits[0].slot == p->finished.ptr[0]);
    close_bed(&b);
}

struct handed {
    struct request *order[MAX_REQUESTS];
    uint32_t n;
};

static void note_handed(void *ctx, struct request *r)
{
    struct handed *h = ctx;
    h->order[h->n++] = r;
}

static void a_reset_hands_everything_back_in_order(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    struct handed h = {.n = 0};
    struct scheduler_stats stats;
    c.max_num_seqs = 2;
    c.depth = 2;
    open_bed(&b, &c);
    for (int i = 0; i < 4; i++) {
        struct msg_submit m = submit(&b, 4, 50);
        m.priority = i % 2;
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    }
    step(&b);
    scheduler_reset(b.s, EPOCH + 1, note_handed, &h);
    assert_int_equal(h.n, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_ptr_equal(h.order[i], b.requests[i]);
        assert_int_equal(h.order[i]->state, i % 2 ? REQUEST_QUEUED : REQUEST_PREEMPTED);
        assert_null(h.order[i]->sched);
    }
    scheduler_get_stats(b.s, &stats);
    assert_true(stats.in_flight == 0 && stats.n_blocks_used == 0 && stats.running == 0);
    assert_int_equal(scheduler_add(b.s, b.requests[0]), STATUS_OK);
    const struct msg_plan *p = step(&b);
    assert_true(p->term_epoch == EPOCH + 1 && p->step == 1 && p->finished.n == 0);
    close_bed(&b);
}

static void a_window_group_drops_what_nobody_sees(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.n_kv_groups = 2;
    c.enable_prefix_caching = true;
    c.kv_groups[1] = (struct kv_group){
        .kind = KV_WINDOW, .window_tokens = 32, .block_tokens = 16, .n_blocks = 8};
    open_bed(&b, &c);
    add(&b, 200, 4); /* the prompt has 13 blocks, and the window's pool has 8 */
    uint32_t n_dropped = 0;
    while (b.requests[0]->finish == FINISH_NONE) {
        const struct msg_plan *p = step(&b);
        for (uint32_t k = 0; k < p->runs[0].n_blocks; k++)
            if (p->runs[0].blocks[k].i_group == 1)
                n_dropped += p->runs[0].blocks[k].drop_leading;
        struct answer a;
        answer(p, OTHER_ID, &a);
        give(&b, &a);
    }
    assert_int_equal(n_dropped, (192 - 32) / 16);
    assert_int_equal(scheduler_cached_tokens(b.s, b.requests[0]), 192);
    /* A hit at position 192 has two blocks of the window. Ten earlier blocks are marked as
     * missing. */
    add(&b, 198, 1);
    const struct msg_plan *p = step(&b);
    const struct plan_run *run = &p->runs[p->n_runs - 1];
    assert_int_equal(run->start, 192);
    assert_true(run->blocks[1].i_group == 1 && run->blocks[1].drop_leading == 10 &&
                run->blocks[1].ids.n == 3 && run->blocks[0].ids.n == 13);
    close_bed(&b);
}

/* ---- no malloc while stepping ---- */

/* Runs ten requests to their ends. Returns the number of allocations meanwhile. */
static uint64_t mallocs_of_steps(uint32_t n_slots, struct scheduler_stats *stats)
{
    struct bed b;
    struct scheduler_config c = config(160);
    c.max_num_seqs = n_slots;
    c.depth = 2;
    c.enable_prefix_caching = true;
    open_bed(&b, &c);
    c.max_waiting = 64;
    for (uint32_t i = 0; i < 10; i++)
        add(&b, 20 + i, 900);
    static struct answer answers[2];
    uint64_t n_before = n_mallocs, n_steps = 0;
    for (uint32_t n_in_flight = 0;; n_steps++) {
        for (const struct msg_plan *p; (p = scheduler_step(b.s, b.now_ns)); n_in_flight++)
            answer(p, OTHER_ID + (uint32_t)n_steps % 40, &answers[n_in_flight]);
        if (n_in_flight == 0)
            break;
        give(&b, &answers[0]);
        answers[0] = answers[1];
        for (uint32_t i = 0; i < answers[0].m.n_items; i++)
            answers[0].items[i].ids.ptr = &answers[0].token;
        answers[0].m.items = answers[0].items;
        n_in_flight--;
    }
    assert_true(n_before > 0 && n_steps > 2000);
    uint64_t n = n_mallocs - n_before;
    scheduler_get_stats(b.s, stats);
    close_bed(&b);
    return n;
}

/* When slots exist for all requests, a request gets its memory before it is planned. A request
 * that waits for a slot gets its memory with its first slot and keeps it. */
static void stepping_allocates_nothing_but_for_who_waited(void **state)
{
    struct scheduler_stats stats;
    if (!COUNTS_MALLOC)
        skip(); /* the sanitizer replaces malloc */
    assert_int_equal(mallocs_of_steps(16, &stats), 0);
    assert_true(stats.n_preemptions > 0 && stats.prefix_hit_tokens > 0);
    /* the allocations are ids, hashes and tables */
    assert_in_range(mallocs_of_steps(4, &stats), 6, 6 * 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_are_checked),
        cmocka_unit_test(decodes_go_first_and_prompts_share_the_rest),
        cmocka_unit_test(long_prompts_come_in_pieces),
        cmocka_unit_test(prompts_are_cut_to_the_time_of_a_step),
        cmocka_unit_test(the_rows_of_a_step_are_counted_apart),
        cmocka_unit_test(the_queue_is_ordered),
        cmocka_unit_test(admission_is_bounded),
        cmocka_unit_test(the_next_step_does_not_wait_for_the_result),
        cmocka_unit_test(a_late_end_costs_one_token),
        cmocka_unit_test(wrong_results_are_refused),
        cmocka_unit_test(a_prefix_is_computed_once),
        cmocka_unit_test(a_planned_prompt_is_found),
        cmocka_unit_test(the_lowest_class_and_the_youngest_is_preempted),
        cmocka_unit_test(deadlines_end_requests_wherever_they_are),
        cmocka_unit_test(a_resubmission_that_has_ended_is_answered),
        cmocka_unit_test(a_request_leaves_at_any_time),
        cmocka_unit_test(a_reset_hands_everything_back_in_order),
        cmocka_unit_test(a_window_group_drops_what_nobody_sees),
        cmocka_unit_test(stepping_allocates_nothing_but_for_who_waited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
