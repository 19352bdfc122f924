/* Tests the block tables of a replica. The first test plays random bytes against a model
 * (`blocks_play`, blocks_model.h), and the others show single rules: copies of an end block,
 * quarantine, hits at the borders of KV groups. Each test makes its own `struct blocks` and
 * sequences and frees them. `blocks_on_sent` and `blocks_on_done` take step numbers in order.
 * All tests run on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "tests/unit/head/kv/blocks_model.c"
#include "tests/unit/head/kv/blocks_play.c"

enum { N_WORLDS = 3000, MAX_BYTES = 1500, BT = 16, MAX_LEN = 256, MAX_CHUNK = 64 };

/* COX_BLOCKS_WORLDS sets the number of worlds. */
static void random_operations_agree_with_the_model(void **state)
{
    const char *wanted = getenv("COX_BLOCKS_WORLDS");
    uint64_t n_worlds = wanted ? strtoull(wanted, NULL, 10) : N_WORLDS;
    struct model_stats s = {0};
    for (uint64_t seed = 1; seed <= n_worlds; seed++) {
        static uint8_t bytes[MAX_BYTES];
        struct error err;
        struct rng rng = {seed};
        size_t n = 100 + rng_below(&rng, MAX_BYTES - 100);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)rng_next(&rng);
        if (!blocks_play(bytes, n, &s, &err))
            fail_msg("world %llu: %s", (unsigned long long)seed, err.text);
    }
    printf(
        "%u steps, %u tokens hit, %u on the way, %u copies, %u evictions, %u waited, %u "
        "preempted, %u finished, %u alone, %u draft tokens kept, %u held, %u imported (%u not to "
        "the end), %u refused\n",
        s.n_steps, s.n_hit_tokens, s.n_advanced, s.n_copies, s.n_evictions, s.n_soon, s.n_preempted,
        s.n_finished, s.n_alone, s.n_accepted, s.n_held, s.n_imported, s.n_let_go_early,
        s.n_refused);
    /* The worlds together must contain each case, because the test shows nothing otherwise. */
    assert_true(s.n_hit_tokens && s.n_advanced && s.n_copies && s.n_evictions && s.n_soon &&
                s.n_preempted && s.n_finished && s.n_alone && s.n_accepted && s.n_held &&
                s.n_imported && s.n_let_go_early && s.n_refused);
}

/* ---- case by case ---- */

struct life {
    struct request r;
    uint32_t ids[MAX_LEN], table_ids[2 * MAX_LEN / BT];
    struct block_table tables[2];
};

static struct blocks *open_blocks(uint32_t n_groups, const struct kv_group *groups)
{
    const struct blocks_config c = {n_groups, groups, MAX_LEN, MAX_CHUNK, 4, .caching = true};
    struct blocks *b;
    struct error err;
    if (blocks_new(&c, &b, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return b;
}

/* Opens a sequence with the ids first, first + 1 and so on. */
static void open_life(struct blocks *b, struct life *x, uint32_t n_prompt, uint32_t cap,
                      uint32_t first)
{
    *x = (struct life){.r = {.sampling = {.n_prompt_logprobs = -1},
                             .n_prompt = n_prompt,
                             .n_ids = n_prompt,
                             .ids_cap = cap}};
    x->r.ids = x->ids;
    for (uint32_t i = 0; i < MAX_LEN; i++)
        x->ids[i] = first + i;
    arena_init(&x->r.arena, 0);
    assert_true(blocks_hash(b, &x->r));
    blocks_init_tables(b, x->tables, x->table_ids, cap);
}

static void close_life(struct blocks *b, struct life *x)
{
    blocks_release(b, x->tables);
    arena_fini(&x->r.arena);
}

static struct blocks_hit find(struct blocks *b, const struct life *x)
{
    struct blocks_hit hit;
    blocks_find(b, &x->r, &hit);
    return hit;
}

/* Admits the sequence, runs its whole prompt in one step and applies the result. Adds a first
 * token if a block is free for it. Returns the number of cached positions. */
static uint32_t run_whole(struct blocks *b, struct life *x, uint64_t step)
{
    struct plan_blocks out[2];
    struct blocks_hit hit = find(b, x);
    assert_true(blocks_fit_admit(b, &hit, x->r.n_ids, 0, false));
    blocks_begin_step(b);
    uint32_t n_cached = blocks_take(b, x->tables, &x->r, &hit);
    blocks_extend(b, x->tables, 0, n_cached, x->r.n_ids, out);
    blocks_enter(b, x->tables, &x->r, x->r.n_ids);
    blocks_settle(b, x->tables);
    blocks_on_sent(b, step);
    blocks_enter_tail(b, x->tables, &x->r);
    blocks_on_done(b, step);
    return n_cached;
}

/* The second of two equal prompts shares all full blocks. It copies the last, partial block only
 * if the pool has one block more than the sequence needs. Otherwise source and copy would never
 * fit together. */
static void an_end_is_copied_where_there_is_room_for_both(void **state)
{
    static const struct {
        uint32_t n_blocks, n_prompt, want;
    } cases[] = {
        {8, 50, 49}, {5, 50, 49}, {4, 50, 48}, {4, 49, 48}, {4, 64, 48}, {1, 8, 0}, {2, 8, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct kv_group k = {.block_tokens = BT, .n_blocks = cases[i].n_blocks};
        struct blocks *b = open_blocks(1, &k);
        struct life x, y;
        open_life(b, &x, cases[i].n_prompt, cases[i].n_prompt + 1, 0);
        assert_int_equal(run_whole(b, &x, 1), 0);
        close_life(b, &x);
        open_life(b, &y, cases[i].n_prompt, cases[i].n_prompt + 1, 0);
        assert_int_equal(run_whole(b, &y, 2), cases[i].want);
        close_life(b, &y);
        blocks_free(b);
    }
}

/* After a reset, the steps in flight of the earlier epoch no longer count. */
static void a_reset_begins_the_count_of_steps_anew(void **state)
{
    const struct kv_group k = {
        .kind = KV_WINDOW, .window_tokens = BT, .block_tokens = BT, .n_blocks = 6};
    struct blocks *b = open_blocks(1, &k);
    struct plan_blocks out[2];
    struct life x;
    blocks_begin_step(b);
    blocks_on_sent(b, 1);
    blocks_on_done(b, 1);
    blocks_reset(b);
    open_life(b, &x, 2 * MAX_CHUNK, 2 * MAX_CHUNK + 1, 0);
    struct blocks_hit hit = find(b, &x);
    blocks_begin_step(b);
    blocks_take(b, x.tables, &x.r, &hit);
    blocks_extend(b, x.tables, 0, 0, MAX_CHUNK, out);
    blocks_on_sent(b, 1);
    blocks_begin_step(b); /* step 1 may still read the blocks that left the window */
    assert_int_equal(blocks_fit(b, x.tables, MAX_CHUNK, 2 * MAX_CHUNK), BLOCKS_FIT_SOON);
    blocks_on_done(b, 1);
    blocks_begin_step(b);
    assert_int_equal(blocks_fit(b, x.tables, MAX_CHUNK, 2 * MAX_CHUNK), BLOCKS_FIT);
    assert_int_equal(blocks_extend(b, x.tables, 0, MAX_CHUNK, 2 * MAX_CHUNK, out), 1);
    assert_int_equal(out[0].drop_leading, 3);
    close_life(b, &x);
    blocks_free(b);
}

/* Blocks have 16 or 32 tokens, and one group has a window of 40. A hit ends at a position where
 * all groups have a block border. The window's group shares only its last window there. */
static void a_hit_ends_at_a_border_of_every_group(void **state)
{
    static const struct {
        uint32_t n_prompt, n_again, want;
    } cases[] = {{100, 100, 96}, {100, 97, 96}, {100, 96, 64},
                 {100, 33, 32},  {100, 32, 0},  {40, 100, 32}};
    const struct kv_group groups[] = {
        {.block_tokens = BT, .n_blocks = 20},
        {.kind = KV_WINDOW, .window_tokens = 40, .block_tokens = 2 * BT, .n_blocks = 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct blocks *b = open_blocks(2, groups);
        struct life x, y;
        open_life(b, &x, cases[i].n_prompt, MAX_LEN, 0);
        run_whole(b, &x, 1);
        open_life(b, &y, cases[i].n_again, MAX_LEN, 0);
        struct blocks_hit hit = find(b, &y);
        assert_int_equal(hit.n_tokens + hit.n_tail, cases[i].want);
        assert_int_equal(hit.n[0] - hit.first[0], cases[i].want / BT);
        assert_int_equal(hit.first[1], cases[i].want > 40 ? (cases[i].want - 40) / (2 * BT) : 0);
        close_life(b, &x);
        close_life(b, &y);
        blocks_free(b);
    }
}

/* A request with prompt_logprobs shares nothing, because it needs every position computed. A
 * request with another salt or adapter shares nothing either. */
static void who_may_not_share_does_not(void **state)
{
    const struct kv_group k = {.block_tokens = BT, .n_blocks = 20};
    struct blocks *b = open_blocks(1, &k);
    struct life x, y[4];
    open_life(b, &x, 100, MAX_LEN, 0);
    run_whole(b, &x, 1);
    for (int i = 0; i < 4; i++) {
        open_life(b, &y[i], 100, MAX_LEN, 0);
        y[i].r.chains = NULL;
        y[i].r.salt.hi = i == 1;
        y[i].r.sampling.lora = i == 2 ? STR("a") : STR("");
        y[i].r.sampling.n_prompt_logprobs = i == 3 ? 0 : -1;
        assert_true(blocks_hash(b, &y[i].r));
        assert_int_equal(find(b, &y[i]).n_tokens, i == 0 ? 96 : 0);
        close_life(b, &y[i]);
    }
    close_life(b, &x);
    blocks_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_is_copied_where_there_is_room_for_both),
        cmocka_unit_test(a_reset_begins_the_count_of_steps_anew),
        cmocka_unit_test(a_hit_ends_at_a_border_of_every_group),
        cmocka_unit_test(who_may_not_share_does_not),
        cmocka_unit_test(random_operations_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
