/* Tests plans as a rank applies them. A table lists one-line changes of a good plan, and words
 * that each refusal must contain. Other tests apply a good history and check the sequences,
 * block tables and digest that it leaves. Invariants: a refused plan changes nothing until a
 * reset, and the incremental digest equals one computed from the tables. All tests run on one
 * thread. */
#include "worker/sequences/sequences.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/plan_digest.h"

static const struct sequences_limits limits = {
    .max_model_len = 64,
    .vocab_size = 300,
    .n_kv_groups = 2,
    .kv_groups = {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = 8},
                  {.kind = KV_WINDOW, .window_tokens = 16, .block_tokens = 16, .n_blocks = 4}},
};

/* `draft` is a good plan with all its parts, for a test to change. */
struct draft {
    uint32_t finished[2], ids[70], full_ids[4], window_ids[4];
    struct plan_copy copies[1];
    struct plan_admit admits[2];
    struct plan_blocks blocks[2][2];
    struct plan_run runs[2];
    struct msg_plan plan;
};

/* Makes a plan that admits slot 3 with 20 ids, runs all of them and samples. */
static void draft_init(struct draft *d, uint64_t step)
{
    *d = (struct draft){.full_ids = {1, 2, 7, 6}, .window_ids = {0, 3, 1, 2}};
    for (uint32_t i = 0; i < 70; i++)
        d->ids[i] = 100 + i % 50;
    d->admits[0] = (struct plan_admit){
        .slot = 3, .n_prompt = 20, .ids = {d->ids, 20}, .sampling = {.n_prompt_logprobs = -1}};
    d->admits[1] = (struct plan_admit){
        .slot = 4, .n_prompt = 5, .ids = {d->ids, 5}, .sampling = {.n_prompt_logprobs = -1}};
    d->blocks[0][0] = (struct plan_blocks){.i_group = 0, .ids = {d->full_ids, 2}};
    d->blocks[0][1] = (struct plan_blocks){.i_group = 1, .ids = {d->window_ids, 2}};
    d->runs[0] = (struct plan_run){
        .slot = 3, .n_tokens = 20, .sample = true, .blocks = d->blocks[0], .n_blocks = 2};
    d->plan = (struct msg_plan){.term_epoch = 1ull << 32 | 1,
                                .step = step,
                                .finished = {d->finished, 0},
                                .copies = d->copies,
                                .admits = d->admits,
                                .n_admits = 1,
                                .runs = d->runs,
                                .n_runs = 1};
}

typedef void bend_fn(struct draft *d);

static void bend_nothing(struct draft *d)
{
}
static void bend_finished_empty(struct draft *d)
{
    d->finished[0] = 9;
    d->plan.finished.n = 1;
}
static void bend_finished_far(struct draft *d)
{
    d->finished[0] = UINT32_MAX;
    d->plan.finished.n = 1;
}
static void bend_slot_huge(struct draft *d)
{
    d->admits[0].slot = UINT32_MAX;
}
static void bend_slot_twice(struct draft *d)
{
    d->admits[1].slot = 3;
    d->plan.n_admits = 2;
}
static void bend_no_ids(struct draft *d)
{
    d->admits[0].ids.n = 0;
}
static void bend_too_long(struct draft *d)
{
    d->admits[0].ids.n = 65;
}
static void bend_prompt_longer(struct draft *d)
{
    d->admits[0].n_prompt = 21;
}
static void bend_all_cached(struct draft *d)
{
    d->admits[0].n_computed = 20;
}
static void bend_vocabulary(struct draft *d)
{
    d->ids[19] = 300;
}
static void bend_run_empty_slot(struct draft *d)
{
    d->runs[0].slot = 5;
}
static void bend_run_again(struct draft *d)
{
    d->admits[0].n_computed = 2;
    d->runs[0].start = 1;
    d->runs[0].n_tokens = 19;
}
/* Lets the run begin later: another sequence has computed the positions before the run. */
static void bend_run_behind_a_hit(struct draft *d)
{
    d->runs[0].start = 16;
    d->runs[0].n_tokens = 4;
}
/* Asks for mean pooling after a prefix hit, which lacks the rows before the run. */
static void bend_mean_behind_a_hit(struct draft *d)
{
    bend_run_behind_a_hit(d);
    d->admits[0].sampling.pooling = POOLING_MEAN;
}
static void bend_mean_cached(struct draft *d)
{
    d->admits[0].n_computed = 16;
    bend_mean_behind_a_hit(d);
}
/* Asks for prompt_logprobs after a prefix hit, although all rows must be computed here for them. */
static void bend_score_behind_a_hit(struct draft *d)
{
    bend_run_behind_a_hit(d);
    d->admits[0].sampling.n_prompt_logprobs = 0;
}
static void bend_score_cached(struct draft *d)
{
    d->admits[0].n_computed = 16;
    bend_score_behind_a_hit(d);
}
static void bend_last_cached(struct draft *d)
{
    bend_mean_cached(d);
    d->admits[0].sampling.pooling = POOLING_LAST;
}
static void bend_run_none(struct draft *d)
{
    d->runs[0].n_tokens = 0;
}
static void bend_run_beyond(struct draft *d)
{
    d->runs[0].n_tokens = 21;
}
static void bend_run_overflow(struct draft *d)
{
    d->runs[0].n_tokens = UINT32_MAX;
}
static void bend_run_twice(struct draft *d)
{
    d->runs[1] = (struct plan_run){.slot = 3, .start = 20, .n_tokens = 1};
    d->plan.n_runs = 2;
}
static void bend_sample_early(struct draft *d)
{
    d->runs[0].n_tokens = 19;
}
static void bend_block_range(struct draft *d)
{
    d->full_ids[1] = 8;
}
static void bend_block_group(struct draft *d)
{
    d->blocks[0][0].i_group = 2;
}
static void bend_table_short(struct draft *d)
{
    d->blocks[0][1].ids.n = 1;
}
static void bend_drafts_behind_a_prompt(struct draft *d)
{
    d->runs[0].n_draft = 1;
}
static void bend_drafts_without_sample(struct draft *d)
{
    d->runs[0].n_tokens = 1;
    d->runs[0].sample = false;
    d->runs[0].n_draft = 1;
}
static void bend_follows_with_many(struct draft *d)
{
    d->runs[0].follows = true;
}
static void bend_follows_without_sample(struct draft *d)
{
    d->runs[0].follows = true;
    d->runs[0].n_tokens = 1;
    d->runs[0].sample = false;
}
static void bend_follows_nothing(struct draft *d)
{
    d->runs[0].follows = true;
    d->runs[0].n_tokens = 1;
}
static void bend_follows_the_unknown(struct draft *d)
{
    d->admits[0].n_computed = 19;
    d->runs[0].follows = true;
    d->runs[0].start = 20;
    d->runs[0].n_tokens = 1;
}
static void bend_drop_too_many(struct draft *d)
{
    d->blocks[0][1].drop_leading = 1;
}
/* Drops a block that a prefix hit of 16 tokens needs: position 16 with a window of 16 still
 * attends to position 1. */
static void bend_drop_needed(struct draft *d, uint32_t i_group)
{
    d->admits[0].n_computed = 16;
    d->runs[0].start = 16;
    d->runs[0].n_tokens = 4;
    d->blocks[0][i_group].drop_leading = 1;
    d->blocks[0][i_group].ids.n = 1;
}
static void bend_drop_in_window(struct draft *d)
{
    bend_drop_needed(d, 1);
}
static void bend_drop_full(struct draft *d)
{
    bend_drop_needed(d, 0);
}
static void bend_copy_range(struct draft *d)
{
    d->copies[0] = (struct plan_copy){.i_group = 1, .from = 0, .to = 4};
    d->plan.n_copies = 1;
}
static void bend_copy_group(struct draft *d)
{
    d->copies[0] = (struct plan_copy){.i_group = 2, .from = 0, .to = 1};
    d->plan.n_copies = 1;
}
static void bend_digest(struct draft *d)
{
    d->plan.digest = 12345;
}

static const struct {
    const char *name;
    bend_fn *bend;
    const char *want; /* expected words of the refusal; NULL = accepted */
} cases[] = {
    {"as it is", bend_nothing, NULL},
    {"finished slot is empty", bend_finished_empty, "the plan finishes slot 9, which is empty"},
    {"finished slot is out of range", bend_finished_far,
     "the plan finishes slot 4294967295, which is empty"},
    {"slot out of range", bend_slot_huge, "out of range"},
    {"slot admitted twice", bend_slot_twice, "in use"},
    {"no ids", bend_no_ids, "0 ids"},
    {"longer than the model", bend_too_long, "65 ids"},
    {"prompt longer than the ids", bend_prompt_longer, "21 of them prompt"},
    {"nothing left to compute", bend_all_cached, "20 computed"},
    {"id outside the vocabulary", bend_vocabulary, "id 300 at position 19"},
    {"run of an empty slot", bend_run_empty_slot, "slot 5, which is empty"},
    {"positions again", bend_run_again, "starts at position 1, but 2 positions are computed"},
    {"positions behind a prefix hit", bend_run_behind_a_hit, NULL},
    {"a mean behind a prefix hit", bend_mean_behind_a_hit,
     "a run for a mean over all positions starts at position 16"},
    {"prompt_logprobs behind a prefix hit", bend_score_behind_a_hit,
     "of a prompt with prompt_logprobs"},
    {"prompt_logprobs of a cached prompt", bend_score_cached,
     "but 16 positions are already computed"},
    {"a mean of what is cached", bend_mean_cached, "but 16 positions are already computed"},
    {"a last state behind what is cached", bend_last_cached, NULL},
    {"run of nothing", bend_run_none, "run of 0"},
    {"run beyond the ids", bend_run_beyond, "only 20 ids are known"},
    {"run length overflows", bend_run_overflow, "only 20 ids are known"},
    {"slot runs twice", bend_run_twice, "the plan runs slot 3 twice"},
    {"sample inside the ids", bend_sample_early, "the plan samples at position 19"},
    {"block out of range", bend_block_range, "block 8"},
    {"KV group out of range", bend_block_group, "KV group 2"},
    {"table too short", bend_table_short, "KV group 1 end at 16"},
    {"draft tokens behind a prompt", bend_drafts_behind_a_prompt,
     "a run with 1 draft tokens must have one token and sample, but this one has 20"},
    {"draft tokens without sample", bend_drafts_without_sample, "does not sample"},
    {"a prompt follows", bend_follows_with_many,
     "a run that follows draft tokens must have one token and sample, but this one has 20 and "
     "samples"},
    {"follows without sample", bend_follows_without_sample, "this one has 1 and does not sample"},
    {"follows what was not run", bend_follows_nothing, "20 ids are known and 0 computed"},
    {"follows beyond the ids", bend_follows_the_unknown, "at position 20, but 20 ids"},
    {"drops a block that the window still sees", bend_drop_in_window, "still needs position 1"},
    {"drops a block of a group without a window", bend_drop_full, "still needs position 0"},
    {"drops blocks that are not there", bend_drop_too_many, "the plan drops 1 blocks"},
    {"copy out of range", bend_copy_range, "the plan copies block 0 to block 4"},
    {"copy in no group", bend_copy_group,
     "the plan copies a block in KV group 2, but this rank has 2 groups"},
    {"digest differs", bend_digest, "digest"},
};

static void test_hostile(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct draft d;
        struct error err = {0};
        struct sequences *s = sequences_new(&limits);
        draft_init(&d, 1);
        cases[i].bend(&d);
        enum status st = sequences_apply(s, &d.plan, &err);
        if (!cases[i].want && st != STATUS_OK)
            fail_msg("%s: %s", cases[i].name, err.text);
        if (cases[i].want) {
            if (st != STATUS_PROTOCOL || !strstr(err.text, cases[i].want))
                fail_msg("%s: status %s, text \"%s\"", cases[i].name, status_name(st), err.text);
            /* After a refusal, all plans are refused until a reset. */
            draft_init(&d, 2);
            d.plan.full = true;
            assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_PROTOCOL);
            assert_int_equal(sequences_reset(s, (struct u32_span){0}, &err), STATUS_OK);
            assert_null(sequences_find(s, 3));
            assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
        }
        sequences_free(s);
    }
}

static void test_history(void **state)
{
    struct draft d;
    struct error err = {0};
    struct sequences *s = sequences_new(&limits);
    draft_init(&d, 1);
    d.runs[0].n_tokens = 16; /* the first step runs only a chunk */
    d.runs[0].sample = false;
    assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
    struct sequence *q = sequences_find(s, 3);
    assert_non_null(q);
    assert_int_equal(q->n_computed, 16);
    d.plan = (struct msg_plan){.step = 2, .runs = d.runs, .n_runs = 1};
    d.runs[0] = (struct plan_run){.slot = 3, .start = 16, .n_tokens = 4, .sample = true};
    assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
    assert_true(sequence_push(q, 42, limits.max_model_len));
    /* The sequence decodes up to a block border, and then with a new block while another block
     * leaves the window. */
    for (uint32_t i = 20; i < 32; i++) {
        d.plan.step++;
        d.runs[0] = (struct plan_run){.slot = 3, .start = i, .n_tokens = 1, .sample = true};
        assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
        assert_true(sequence_push(q, i, limits.max_model_len));
    }
    d.blocks[0][0] = (struct plan_blocks){.i_group = 0, .ids = {d.full_ids + 2, 1}};
    d.blocks[0][1] =
        (struct plan_blocks){.i_group = 1, .drop_leading = 1, .ids = {d.window_ids + 2, 1}};
    d.plan.step++;
    d.runs[0] = (struct plan_run){.slot = 3,
                                  .start = 32,
                                  .n_tokens = 1,
                                  .sample = true,
                                  .blocks = d.blocks[0],
                                  .n_blocks = 2};
    assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
    assert_int_equal(q->tables[0].n, 3);
    assert_int_equal(q->tables[1].n, 2);
    assert_int_equal(q->tables[1].n_dropped, 1);
    assert_int_equal(q->tables[1].ids[0], 3);
    assert_int_equal(q->tables[1].ids[1], 1);
    const uint32_t full[] = {1, 2, 7}, window[] = {3, 1};
    uint64_t sum = plan_digest_sequence(3, 33);
    for (uint32_t i = 0; i < 3; i++)
        sum += plan_digest_block(3, 0, i, full[i]);
    for (uint32_t i = 0; i < 2; i++)
        sum += plan_digest_block(3, 1, 1 + i, window[i]);
    assert_true(sequences_digest(s) == plan_digest_end(sum));
    /* A slot that finishes may be admitted again in the same plan, and uses the same buffers. */
    draft_init(&d, 100);
    d.finished[0] = 3;
    d.plan.finished.n = 1;
    assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
    assert_ptr_equal(sequences_find(s, 3), q);
    assert_int_equal(q->n_ids, 20);
    assert_int_equal(q->tables[1].n_dropped, 0);
    /* A full plan removes all sequences first. */
    draft_init(&d, 101);
    d.plan.full = true;
    assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
    assert_non_null(sequences_find(s, 3));
    const uint32_t n_blocks[] = {8, 4, 1};
    assert_int_equal(sequences_reset(s, (struct u32_span){n_blocks, 3}, &err), STATUS_INVALID);
    sequences_free(s);
}

/* Returns the digest by a walk through all tables. */
static uint64_t walk_digest(const struct sequences *s)
{
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < 16; slot++) {
        const struct sequence *q = sequences_find(s, slot);
        if (!q)
            continue;
        sum += plan_digest_sequence(slot, q->n_computed);
        for (uint32_t g = 0; g < limits.n_kv_groups; g++)
            for (uint32_t i = 0; i < q->tables[g].n; i++)
                sum += plan_digest_block(slot, g, q->tables[g].n_dropped + i, q->tables[g].ids[i]);
    }
    return plan_digest_end(sum);
}

static void must_apply(struct sequences *s, const struct msg_plan *p, const char *name)
{
    struct error err = {0};
    if (sequences_apply(s, p, &err) != STATUS_OK)
        fail_msg("%s: %s", name, err.text);
    assert_true(sequences_digest(s) == walk_digest(s));
}

/* A sequence has 20 ids, and its tables end at 32 in both groups. `n_sampled` tokens are
 * sampled, and then a second plan runs the sequence. */
static void test_runs_are_resolved(void **state)
{
    static const struct {
        const char *name;
        uint32_t max_tokens, n_sampled;
        struct plan_run run;
        uint32_t start, n_tokens, n_draft; /* expected values of the run */
    } table[] = {
        {"no draft tokens", 40, 1, {.start = 20}, 20, 1, 0},
        {"as many as granted", 40, 1, {.start = 20, .n_draft = 4}, 20, 1, 4},
        {"as many as the tables hold", 40, 1, {.start = 20, .n_draft = 16}, 20, 1, 11},
        {"never more", 40, 1, {.start = 20, .n_draft = UINT32_MAX}, 20, 1, 11},
        {"the table is full", 40, 12, {.start = 31, .n_draft = 4}, 31, 1, 0},
        {"as many as may be sampled", 4, 1, {.start = 20, .n_draft = 9}, 20, 1, 2},
        {"the last one", 2, 1, {.start = 20, .n_draft = 9}, 20, 1, 0},
        {"one more than asked for", 1, 1, {.start = 20, .n_draft = 9}, 20, 1, 0},
        {"no length", 0, 1, {.start = 20, .n_draft = 9}, 20, 1, 0},
        {"a length that overflows", UINT32_MAX, 1, {.start = 20, .n_draft = 9}, 20, 1, 9},
        {"follows", 40, 1, {.start = 20, .follows = true}, 20, 1, 0},
        {"follows two", 40, 3, {.start = 20, .follows = true, .n_draft = 3}, 22, 1, 3},
        {"follows to the end", 4, 3, {.start = 20, .follows = true, .n_draft = 3}, 22, 1, 0},
        {"follows the end", 3, 3, {.start = 20, .follows = true, .n_draft = 3}, 22, 0, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct draft d;
        struct sequences *s = sequences_new(&limits);
        draft_init(&d, 1);
        d.admits[0].sampling.max_tokens = table[i].max_tokens;
        must_apply(s, &d.plan, table[i].name);
        struct sequence *q = sequences_find(s, 3);
        for (uint32_t k = 0; k < table[i].n_sampled; k++)
            assert_true(sequence_push(q, k, limits.max_model_len));
        assert_int_equal(q->n_computed + 1, q->n_ids);
        d.plan = (struct msg_plan){.step = 2, .runs = d.runs, .n_runs = 1};
        d.runs[0] = table[i].run;
        d.runs[0].slot = 3;
        d.runs[0].n_tokens = 1;
        d.runs[0].sample = true;
        must_apply(s, &d.plan, table[i].name);
        struct sequence_runs runs = sequences_runs(s);
        const struct sequence_run *got = runs.ptr;
        assert_int_equal(runs.n, 1);
        assert_ptr_equal(got->q, q);
        if (got->start != table[i].start || got->n_tokens != table[i].n_tokens || !got->sample ||
            got->n_draft != table[i].n_draft || got->n_drafted != 0)
            fail_msg("%s: %u tokens from %u, %u draft tokens", table[i].name, got->n_tokens,
                     got->start, got->n_draft);
        assert_int_equal(q->n_computed, table[i].start + table[i].n_tokens);
        sequences_free(s);
    }
}

/* The first block of a prompt was computed here, and the next two come from another sequence.
 * The window needs only the last of the three blocks. */
static void test_hit_on_the_way(void **state)
{
    static const struct {
        const char *name;
        uint32_t n_drop, n_window;
        const char *want; /* expected words of the refusal; NULL = accepted */
    } table[] = {
        {"what the window needs", 2, 2, NULL},
        {"all of it", 0, 3, NULL},
        {"what it needs is missing", 3, 1, "still needs position 33"},
        {"beyond where the run begins", 4, 1, "the plan drops 4 blocks"},
        {"too few", 2, 1, "end at 48"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct draft d;
        struct error err = {0};
        struct sequences *s = sequences_new(&limits);
        draft_init(&d, 1);
        d.admits[0].n_prompt = d.admits[0].ids.n = 60;
        d.blocks[0][0].ids.n = d.blocks[0][1].ids.n = 1;
        d.runs[0].n_tokens = 16;
        d.runs[0].sample = false;
        must_apply(s, &d.plan, table[i].name);
        d.plan = (struct msg_plan){.step = 2, .runs = d.runs, .n_runs = 1};
        d.blocks[0][0].ids = (struct u32_span){d.full_ids + 1, 3};
        d.blocks[0][1].drop_leading = table[i].n_drop;
        d.blocks[0][1].ids = (struct u32_span){d.window_ids + 1, table[i].n_window};
        d.runs[0].start = 48;
        d.runs[0].n_tokens = 12;
        d.runs[0].sample = true;
        if (table[i].want) {
            assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_PROTOCOL);
            if (!strstr(err.text, table[i].want))
                fail_msg("%s: %s", table[i].name, err.text);
        } else {
            must_apply(s, &d.plan, table[i].name);
            assert_int_equal(sequences_find(s, 3)->n_computed, 60);
        }
        sequences_free(s);
    }
}

static void test_sampling_is_kept(void **state)
{
    struct draft d;
    struct error err = {0};
    struct sequences *s = sequences_new(&limits);
    uint32_t eos[2] = {7, 8};
    struct logit_bias bias[1] = {{9, 1.5f}};
    char lora[] = "adapter";
    draft_init(&d, 1);
    d.admits[0].sampling = (struct sampling_params){.temperature = 0.5f,
                                                    .seed = 77,
                                                    .n_logprobs = 3,
                                                    .n_prompt_logprobs = -1,
                                                    .eos_ids = {eos, 2},
                                                    .logit_bias = bias,
                                                    .n_logit_bias = 1,
                                                    .lora = {lora, 7}};
    assert_int_equal(sequences_apply(s, &d.plan, &err), STATUS_OK);
    memset(eos, 0, sizeof eos);
    memset(bias, 0, sizeof bias);
    memset(lora, 0, sizeof lora);
    const struct sampling_params *sp = &sequences_find(s, 3)->sampling;
    assert_int_equal(sp->seed, 77);
    assert_int_equal(sp->eos_ids.ptr[1], 8);
    assert_int_equal(sp->logit_bias[0].token, 9);
    assert_true(str_eq_c(sp->lora, "adapter"));
    sequences_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile),           cmocka_unit_test(test_history),
        cmocka_unit_test(test_runs_are_resolved), cmocka_unit_test(test_hit_on_the_way),
        cmocka_unit_test(test_sampling_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
