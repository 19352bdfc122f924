/* Tests the sharing of blocks between sequences of a scheduler: prompts planned in the same
 * step, hits found during a prefill, copies of an end block, preemption and draft tokens. Each
 * test adds requests to a bed (`scheduler_bed.h`), plans steps, answers them and reads the runs
 * and blocks of the plans. Invariants: a shared position is computed once, and no request is
 * preempted in vain. All tests run on one thread. */
#include "tests/unit/head/scheduler/scheduler_bed.h"

static struct scheduler_config sharing(uint32_t n_blocks)
{
    struct scheduler_config c = config(n_blocks);
    c.enable_prefix_caching = true;
    c.max_num_batched_tokens = 256;
    return c;
}

static void twins_of_one_step_compute_their_prompt_once(void **state)
{
    struct bed b;
    struct scheduler_config c = sharing(64);
    open_bed(&b, &c);
    for (int i = 0; i < 3; i++)
        add(&b, 100, 4);
    const struct msg_plan *p = step(&b);
    assert_int_equal(p->n_runs, 3);
    assert_true(p->runs[0].start == 0 && p->runs[0].n_tokens == 100);
    for (uint32_t i = 1; i < 3; i++) {
        assert_true(p->runs[i].start == 96 && p->runs[i].n_tokens == 4 && p->runs[i].sample);
        assert_memory_equal(p->runs[i].blocks[0].ids.ptr, p->runs[0].blocks[0].ids.ptr,
                            6 * sizeof(uint32_t));
        assert_int_equal(b.requests[i]->n_cached, 96);
    }
    assert_int_equal(p->n_copies, 0); /* the prompt's end is computed in this same step */
    close_bed(&b);
}

static void a_prompt_takes_on_its_way_what_others_plan(void **state)
{
    struct bed b;
    struct answer a;
    struct scheduler_config c = sharing(64);
    c.long_prefill_token_threshold = 32;
    open_bed(&b, &c);
    add(&b, 100, 4);
    add(&b, 100, 4);
    const struct msg_plan *p = step(&b);
    assert_true(p->runs[0].start == 0 && p->runs[0].n_tokens == 32);
    /* The second run starts after the shared part of the first prompt. */
    assert_true(p->runs[1].start == 32 && p->runs[1].n_tokens == 32);
    answer(p, OTHER_ID, &a);
    give(&b, &a);
    p = step(&b);
    assert_true(p->runs[0].start == 64 && p->runs[0].n_tokens == 32);
    /* Two of the blocks are hits. */
    assert_true(p->runs[0].n_blocks == 1 && p->runs[0].blocks[0].ids.n == 4);
    assert_true(p->runs[1].start == 96 && p->runs[1].n_tokens == 4 && p->runs[1].sample);
    answer(p, OTHER_ID, &a);
    give(&b, &a);
    /* The second request already decodes, so its run is the first. The first request still has
     * the end of its prompt to compute. */
    p = step(&b);
    assert_true(p->runs[0].slot != p->runs[1].slot && p->runs[0].start == 100);
    assert_true(p->runs[1].start == 96 && p->runs[1].n_tokens == 4);
    close_bed(&b);
}

static void the_end_of_a_prompt_is_copied(void **state)
{
    struct bed b;
    struct scheduler_stats stats;
    struct scheduler_config c = sharing(64);
    open_bed(&b, &c);
    add(&b, 100, 8);
    turn(&b, OTHER_ID);
    add(&b, 100, 8);
    const struct msg_plan *p = step(&b);
    assert_int_equal(p->n_copies, 1);
    const struct plan_run *run = &p->runs[1];
    assert_true(run->start == 99 && run->n_tokens == 1 && run->sample);
    assert_true(p->copies[0].to == run->blocks[0].ids.ptr[6] &&
                p->copies[0].from != p->copies[0].to);
    scheduler_get_stats(b.s, &stats);
    assert_int_equal(stats.n_copied_blocks, 1);
    close_bed(&b);
}

/* Choices of one request share blocks even without prefix caching. Other requests do not. */
static void choices_share_without_a_cache(void **state)
{
    struct bed b;
    struct scheduler_config c = sharing(64);
    c.enable_prefix_caching = false;
    open_bed(&b, &c);
    for (uint32_t i = 0; i < 3; i++) {
        struct msg_submit m = submit(&b, 60, 4);
        m.id = (struct request_id){1, i < 2 ? 77 : 78};
        m.i_choice = m.sampling.i_choice = i;
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    }
    const struct msg_plan *p = step(&b);
    assert_true(p->runs[0].start == 0 && p->runs[1].start == 48 && p->runs[2].start == 0);
    struct scheduler_stats stats;
    scheduler_get_stats(b.s, &stats);
    assert_true(stats.prefix_hit_tokens == 0 && b.requests[1]->n_cached == 0);
    close_bed(&b);
}

static void only_so_many_prompts_are_half_done(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.long_prefill_token_threshold = 10;
    c.max_partial_prefills = 2;
    open_bed(&b, &c);
    for (int i = 0; i < 3; i++)
        add(&b, 25, 2);
    assert_int_equal(step(&b)->n_runs, 2);
    close_bed(&b);
}

static void a_better_class_takes_a_place(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.max_num_seqs = 1;
    open_bed(&b, &c);
    struct msg_submit m = submit(&b, 10, 20);
    m.priority = 5;
    struct request *low = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, low), STATUS_OK);
    turn(&b, OTHER_ID);
    struct request *equal = make(&b, &m), *high;
    assert_int_equal(scheduler_add(b.s, equal), STATUS_OK);
    turn(&b, OTHER_ID);
    assert_int_equal(low->state, REQUEST_RUNNING); /* only a request of the same class waits */
    m.priority = 4;
    high = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, high), STATUS_OK);
    turn(&b, OTHER_ID);
    assert_true(low->state == REQUEST_PREEMPTED && high->state == REQUEST_RUNNING);
    while (high->finish == FINISH_NONE)
        turn(&b, OTHER_ID);
    turn(&b, OTHER_ID);
    assert_true(low->state == REQUEST_RUNNING && equal->state == REQUEST_QUEUED);
    close_bed(&b);
}

/* A request that does not fit even after all possible preemptions preempts no other request. The
 * two low requests hold too few blocks. */
static void nobody_is_preempted_in_vain(void **state)
{
    struct bed b;
    struct scheduler_config c = config(20);
    c.max_num_batched_tokens = 512;
    open_bed(&b, &c);
    struct msg_submit m = submit(&b, 150, 40);
    struct request *same = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, same), STATUS_OK);
    turn(&b, OTHER_ID);
    m = submit(&b, 30, 40);
    m.priority = 5;
    struct request *low = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, low), STATUS_OK);
    turn(&b, OTHER_ID);
    m = submit(&b, 200, 4);
    struct request *big = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, big), STATUS_OK);
    turn(&b, OTHER_ID);
    assert_true(low->state == REQUEST_RUNNING && big->state == REQUEST_QUEUED);
    close_bed(&b);
}

/* A request that would have to wait for a place among the partial prefills preempts no other
 * request either. */
static void nobody_is_preempted_for_one_prompt_too_many(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.max_num_seqs = 2;
    c.max_partial_prefills = 1;
    c.long_prefill_token_threshold = 4;
    open_bed(&b, &c);
    add(&b, 60, 2);
    turn(&b, OTHER_ID);
    struct msg_submit m = submit(&b, 4, 40);
    m.priority = 5;
    struct request *low = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, low), STATUS_OK);
    turn(&b, OTHER_ID);
    assert_int_equal(low->state, REQUEST_RUNNING);
    add(&b, 60, 2);
    turn(&b, OTHER_ID);
    assert_int_equal(low->state, REQUEST_RUNNING);
    close_bed(&b);
}

static void keep(void *ctx, struct request *r)
{
}

/* A request counts its cached tokens once, even when its replica is lost. */
static void cached_tokens_never_exceed_the_prompt(void **state)
{
    struct bed b;
    struct scheduler_stats stats;
    struct scheduler_config c = sharing(64);
    c.long_prefill_token_threshold = 32;
    open_bed(&b, &c);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 3; i++)
            if (round == 0)
                add(&b, 100, 40);
            else
                assert_int_equal(scheduler_add(b.s, b.requests[i]), STATUS_OK);
        for (int i = 0; i < 3; i++)
            turn(&b, OTHER_ID);
        for (uint32_t i = 0; i < 3; i++)
            assert_true(b.requests[i]->n_cached < 100);
        scheduler_get_stats(b.s, &stats);
        assert_int_equal(stats.prefix_query_tokens, 300);
        scheduler_reset(b.s, EPOCH + 1, keep, NULL);
        scheduler_reset(b.s, EPOCH, keep, NULL);
    }
    close_bed(&b);
}

/* ---- draft tokens ---- */

static void answer_drafts(const struct msg_plan *p, const uint32_t *ids, uint32_t n,
                          struct answer *a)
{
    answer(p, OTHER_ID, a);
    a->items[0].ids = (struct u32_span){ids, n};
    a->m.n_drafted = p->runs[0].n_draft;
}

static void accepted_drafts_move_a_sequence_on(void **state)
{
    static const uint32_t ids[] = {101, 102, 103, 104};
    struct bed b;
    struct answer first, second;
    struct error err;
    struct scheduler_stats stats;
    struct scheduler_config c = config(64);
    c.depth = 2;
    c.n_draft = 3;
    open_bed(&b, &c);
    struct request *r = add(&b, 14, 12);
    turn(&b, 100);
    answer_drafts(step(&b), ids, 3, &first);
    const struct msg_plan *p = step(&b);
    assert_true(p->runs[0].follows && p->runs[0].start == 15 && p->runs[0].n_draft == 3);
    /* The request has 14 + 4 positions from the first run, and 4 from this run. The first run
     * already had two blocks for them. */
    assert_true(p->runs[0].n_blocks == 0);
    answer_drafts(p, ids + 3, 1, &second);
    give(&b, &first);
    assert_true(b.n_events == 1 && b.events[0].n_new == 3 && r->n_ids == 14 + 1 + 3);
    give(&b, &second);
    assert_true(r->n_ids == 14 + 1 + 4 && r->ids[18] == 104);
    p = step(&b);
    assert_true(!p->runs[0].follows && p->runs[0].start == 18);
    scheduler_get_stats(b.s, &stats);
    assert_true(stats.n_draft_steps == 3 && stats.n_drafted == 6 && stats.n_accepted == 2);
    uint64_t accepted_at[SCHEDULER_MAX_DRAFT] = {10};
    scheduler_add_accepted(b.s, accepted_at);
    assert_true(accepted_at[0] == 11 && accepted_at[1] == 1 && accepted_at[2] == 0);
    /* An item with more tokens than the run could yield, or with none, is a protocol error. */
    answer_drafts(p, ids, 0, &first);
    assert_int_equal(scheduler_on_result(b.s, &first.m, 1, &b.events, &b.n_events, &err),
                     STATUS_PROTOCOL);
    static const uint32_t many[5] = {1, 1, 1, 1, 1};
    answer_drafts(p, many, 1, &first);
    first.m.n_drafted = 4; /* the run had three draft tokens */
    assert_int_equal(scheduler_on_result(b.s, &first.m, 1, &b.events, &b.n_events, &err),
                     STATUS_PROTOCOL);
    answer_drafts(p, many, 5, &first);
    assert_int_equal(scheduler_on_result(b.s, &first.m, 1, &b.events, &b.n_events, &err),
                     STATUS_PROTOCOL);
    close_bed(&b);
}

/* The request ends while a run after its draft tokens is in flight. The result of that run has
 * an item without ids. */
static void a_run_after_the_end_gives_nothing(void **state)
{
    static const uint32_t ids[] = {1, 2, 3};
    struct bed b;
    struct answer first, second;
    struct scheduler_config c = config(64);
    c.depth = 2;
    c.n_draft = 4;
    open_bed(&b, &c);
    struct request *r = add(&b, 14, 4);
    turn(&b, 100);
    const struct msg_plan *p = step(&b);
    /* Two draft tokens and one sampled token end the request. */
    assert_int_equal(p->runs[0].n_draft, 2);
    answer_drafts(p, ids, 3, &first);
    p = step(&b);
    assert_true(p->runs[0].follows);
    answer_drafts(p, ids, 0, &second);
    give(&b, &first);
    assert_true(r->finish == FINISH_LENGTH && r->n_ids == 18 && !r->sched);
    give(&b, &second);
    assert_int_equal(b.n_events, 0);
    close_bed(&b);
}

static void many_sequences_get_no_drafts(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.n_draft = 2;
    c.draft_max_seqs = 2;
    open_bed(&b, &c);
    add(&b, 4, 40);
    add(&b, 4, 40);
    turn(&b, OTHER_ID);
    const struct msg_plan *p = step(&b);
    assert_true(p->runs[0].n_draft == 2 && p->runs[1].n_draft == 2);
    struct answer a;
    answer(p, OTHER_ID, &a);
    give(&b, &a);
    add(&b, 4, 40);
    turn(&b, OTHER_ID);
    p = step(&b);
    assert_true(p->n_runs == 3 && p->runs[0].n_draft == 0);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twins_of_one_step_compute_their_prompt_once),
        cmocka_unit_test(a_prompt_takes_on_its_way_what_others_plan),
        cmocka_unit_test(the_end_of_a_prompt_is_copied),
        cmocka_unit_test(choices_share_without_a_cache),
        cmocka_unit_test(only_so_many_prompts_are_half_done),
        cmocka_unit_test(a_better_class_takes_a_place),
        cmocka_unit_test(nobody_is_preempted_in_vain),
        cmocka_unit_test(nobody_is_preempted_for_one_prompt_too_many),
        cmocka_unit_test(cached_tokens_never_exceed_the_prompt),
        cmocka_unit_test(accepted_drafts_move_a_sequence_on),
        cmocka_unit_test(a_run_after_the_end_gives_nothing),
        cmocka_unit_test(many_sequences_get_no_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
