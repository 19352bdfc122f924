/* Tests blocks that move from the table of one replica to the table of another. Each test opens
 * two schedulers (`scheduler_bed.h`), computes a prompt on the first, holds its blocks there and
 * imports them into the second. Invariants: held and imported blocks are not reused, and all
 * blocks are free after `scheduler_let_go` or the end of the request. tests/sim and
 * blocks_test.c play random moves. All tests run on one thread. */
#include "head/kv/block_part.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { PROMPT = 100, ID = 5 };

static struct scheduler_config caching(uint32_t n_blocks)
{
    struct scheduler_config c = config(n_blocks);
    c.enable_prefix_caching = true;
    c.max_num_batched_tokens = 256;
    return c;
}

static uint32_t n_used(const struct bed *b)
{
    struct scheduler_stats s;
    scheduler_get_stats(b->s, &s);
    return s.n_blocks_used;
}

static uint32_t n_to_copy(const struct bed *b, uint64_t id)
{
    uint32_t n, n_copies = 0;
    const struct blocks_part *parts = scheduler_parts(b->s, id, &n);
    for (uint32_t i = 0; i < n; i++)
        n_copies += !parts[i].was_there;
    return n_copies;
}

/* Only full blocks with a result may move. Blocks of steps in flight, or of a prompt that is
 * half computed, may not. */
static void what_is_computed_may_move(void **state)
{
    struct bed b;
    struct scheduler_config c = caching(64);
    c.max_num_batched_tokens = 64;
    c.depth = 2;
    open_bed(&b, &c);
    struct request *r = add(&b, PROMPT, 50);
    struct answer first, second;
    assert_int_equal(scheduler_movable(b.s, r), 0);
    answer(step(&b), OTHER_ID, &first);
    answer(step(&b), OTHER_ID, &second);
    give(&b, &first);
    /* 64 tokens have results, but the prompt is half computed */
    assert_int_equal(scheduler_movable(b.s, r), 0);
    give(&b, &second);
    assert_int_equal(scheduler_movable(b.s, r), 96);
    /* ids 101 to 111 get results; the newest id has not been run */
    for (uint32_t i = 0; i < 11; i++)
        turn(&b, OTHER_ID);
    assert_int_equal(r->n_ids, 112);
    assert_int_equal(scheduler_movable(b.s, r), 96);
    answer(step(&b), OTHER_ID, &first); /* position 111 is in flight */
    assert_int_equal(scheduler_movable(b.s, r), 96);
    assert_int_equal(scheduler_hold(b.s, r, 112, ID), STATUS_NOT_FOUND);
    give(&b, &first);
    assert_int_equal(scheduler_movable(b.s, r), 112);
    close_bed(&b);
}

static void what_is_held_outlives_its_request(void **state)
{
    struct bed b;
    struct scheduler_config c = caching(8);
    open_bed(&b, &c);
    struct request *r = add(&b, PROMPT, 2);
    turn(&b, OTHER_ID);
    assert_int_equal(scheduler_hold(b.s, r, 96, ID), STATUS_OK);
    assert_int_equal(scheduler_hold(b.s, r, 96, ID), STATUS_LIMIT); /* this id is in use */
    turn(&b, STOP_ID);
    assert_true(b.events[0].ended);
    assert_int_equal(n_used(&b), 6);
    struct request *other = add(&b, 30, 2);
    other->ids[0] = 7; /* the two prompts have no common prefix */
    turn(&b, OTHER_ID);
    /* this request waits for the held blocks, and takes none of them */
    add(&b, 120, 2)->ids[0] = 8;
    turn(&b, STOP_ID);
    assert_null(step(&b));
    scheduler_let_go(b.s, ID);
    assert_int_equal(n_used(&b), 0);
    assert_non_null(step(&b));
    close_bed(&b);
}

static const struct {
    const char *name;
    uint32_t n_groups;
    struct kv_group groups[2];
    uint32_t n_parts; /* number of blocks that 96 tokens take */
} kinds[] = {
    {"full", 1, {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = 32}}, 6},
    {"latent", 1, {{.kind = KV_LATENT, .block_tokens = 32, .n_blocks = 32}}, 3},
    {"window",
     1,
     {{.kind = KV_WINDOW, .window_tokens = 32, .block_tokens = 16, .n_blocks = 32}},
     2},
    {"both",
     2,
     {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = 32},
      {.kind = KV_WINDOW, .window_tokens = 40, .block_tokens = 32, .n_blocks = 32}},
     6 + 2},
};

/* The imported list has the same blocks in the same order. Only the request that the list
 * belongs to finds the blocks, and only after the copy. */
static void a_prefix_is_found_where_it_went(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct bed from, to;
        struct scheduler_config c = caching(32);
        c.n_kv_groups = kinds[i].n_groups;
        memcpy(c.kv_groups, kinds[i].groups, sizeof kinds[i].groups);
        open_bed(&from, &c);
        open_bed(&to, &c);
        struct request *r = add(&from, PROMPT, 50);
        turn(&from, OTHER_ID);
        uint32_t n_from, n_to;
        assert_int_equal(scheduler_hold(from.s, r, 96, ID), STATUS_OK);
        assert_int_equal(scheduler_import(to.s, r, 96, ID), STATUS_OK);
        const struct blocks_part *x = scheduler_parts(from.s, ID, &n_from);
        const struct blocks_part *y = scheduler_parts(to.s, ID, &n_to);
        assert_true(n_from == kinds[i].n_parts && n_to == n_from);
        for (uint32_t k = 0; k < n_to; k++)
            assert_true(x[k].i_group == y[k].i_group && x[k].index == y[k].index &&
                        !y[k].was_there);
        assert_int_equal(scheduler_cached_tokens(to.s, r), 0);
        assert_true(scheduler_leave(from.s, r));
        scheduler_remove(from.s, r);
        scheduler_let_go(from.s, ID);
        scheduler_imported(to.s, ID);
        assert_int_equal(scheduler_cached_tokens(to.s, r), 96);
        assert_int_equal(scheduler_add(to.s, r), STATUS_OK);
        const struct msg_plan *p = step(&to);
        assert_true(p && p->n_admits == 1 && p->admits[0].n_computed == 96);
        /* the request owns the imported blocks now */
        assert_null(scheduler_parts(to.s, ID, &n_to));
        scheduler_remove(to.s, r);
        close_bed(&to);
        close_bed(&from);
    }
}

/* Blocks that the other cache already holds are not copied, but the import keeps them too. */
static void what_is_there_is_not_copied(void **state)
{
    struct bed from, to;
    struct scheduler_config c = caching(16);
    open_bed(&from, &c);
    open_bed(&to, &c);
    struct request *r = add(&from, PROMPT, 50);
    turn(&from, OTHER_ID);
    add(&to, 50, 2);
    turn(&to, STOP_ID);
    assert_int_equal(n_used(&to), 0);
    assert_int_equal(scheduler_import(to.s, r, 96, ID), STATUS_OK);
    assert_int_equal(n_used(&to), 6);
    assert_int_equal(n_to_copy(&to, ID), 3);
    scheduler_let_go(to.s, ID); /* a failed copy keeps the blocks that were there before */
    assert_int_equal(n_used(&to), 0);
    assert_int_equal(scheduler_cached_tokens(to.s, r), 48);
    close_bed(&to);
    close_bed(&from);
}

static void results_in_flight_are_awaited(void **state)
{
    struct bed b;
    struct scheduler_config c = caching(64);
    c.depth = 2;
    open_bed(&b, &c);
    struct request *r = add(&b, PROMPT, 50);
    struct answer a, more;
    answer(step(&b), OTHER_ID, &a);
    answer(step(&b), OTHER_ID, &more);
    assert_false(scheduler_leave(b.s, r));
    give(&b, &a);
    assert_false(scheduler_may_leave(r));
    give(&b, &more);
    assert_true(scheduler_may_leave(r));
    assert_int_equal(r->n_ids, PROMPT + 2);
    scheduler_remove(b.s, r);
    close_bed(&b);
}

/* An import takes no more blocks than a request could. Complete imports are freed before a
 * sequence is preempted. */
static void who_runs_goes_first(void **state)
{
    struct bed from, to;
    struct scheduler_config c = caching(64), small = caching(9);
    open_bed(&from, &c);
    open_bed(&to, &small);
    struct request *r = add(&from, PROMPT, 50);
    turn(&from, OTHER_ID);
    /* this request takes two blocks, then one more at a time */
    struct request *runs = add(&to, 31, 100);
    runs->ids[0] = 7;
    turn(&to, OTHER_ID);
    assert_int_equal(scheduler_import(to.s, r, 96, ID), STATUS_OK);
    scheduler_imported(to.s, ID);
    /* The second import shares blocks with the first import. */
    assert_int_equal(scheduler_import(to.s, r, 32, ID + 1), STATUS_OK);
    scheduler_let_go(to.s, ID + 1);
    for (uint32_t i = 0; i < 60; i++)
        turn(&to, OTHER_ID);
    uint32_t n;
    assert_null(scheduler_parts(to.s, ID, &n));
    assert_int_equal(runs->state, REQUEST_RUNNING);
    assert_int_equal(scheduler_import(to.s, r, 96, ID), STATUS_LIMIT);
    close_bed(&to);
    close_bed(&from);
}

/* An import is freed with the request that it was made for. */
static void an_import_goes_with_its_request(void **state)
{
    struct bed from, to;
    struct scheduler_config c = caching(64), tiny = caching(64);
    tiny.max_num_batched_tokens = tiny.max_num_seqs;
    open_bed(&from, &c);
    open_bed(&to, &tiny);
    struct request *r = add(&from, PROMPT, 50);
    turn(&from, OTHER_ID);
    assert_int_equal(scheduler_import(to.s, r, 96, ID), STATUS_OK);
    scheduler_imported(to.s, ID);
    scheduler_remove(from.s, r);
    assert_int_equal(scheduler_add(to.s, r), STATUS_OK);
    assert_int_equal(n_used(&to), 6);
    scheduler_remove(to.s, r);
    assert_int_equal(n_used(&to), 0);
    assert_int_equal(scheduler_import(to.s, r, 96, ID), STATUS_OK);
    scheduler_reset(to.s, EPOCH + 1, NULL, NULL); /* after a lost rank no import is left */
    uint32_t n;
    assert_null(scheduler_parts(to.s, ID, &n));
    scheduler_imported(to.s, ID);
    scheduler_let_go(to.s, ID);
    close_bed(&to);
    close_bed(&from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_computed_may_move),
        cmocka_unit_test(what_is_held_outlives_its_request),
        cmocka_unit_test(a_prefix_is_found_where_it_went),
        cmocka_unit_test(what_is_there_is_not_copied),
        cmocka_unit_test(results_in_flight_are_awaited),
        cmocka_unit_test(who_runs_goes_first),
        cmocka_unit_test(an_import_goes_with_its_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
