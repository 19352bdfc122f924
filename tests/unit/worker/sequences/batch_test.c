/* Tests plans as rows of passes. The tests apply a plan to `sequences` and walk the passes of a
 * batch, with different limits for a pass. Invariants: all passes together have the same rows in
 * the same order. Each row has the ids of its sequence and the blocks of its KV group, and the
 * same rows are sampled. All tests run on one thread. */
#include "worker/sequences/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N_RUNS = 3, N_ROWS = 24 };

static const struct sequences_limits limits = {
    .max_model_len = 128,
    .vocab_size = 1000,
    .n_kv_groups = 2,
    .kv_groups = {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = 16},
                  {.kind = KV_WINDOW, .window_tokens = 16, .block_tokens = 16, .n_blocks = 16}},
};

/* Slot 5 has 19 ids: its id 0 was computed before, and the last 18 run and are sampled. Slot 2
 * has 40 ids: a prefix hit leaves positions 32 to 36 to this step. None of them is sampled, and
 * the first block of the window is gone. Slot 7 has one id, which is sampled. */
static const struct plan_run shapes[N_RUNS] = {
    {.slot = 5, .start = 1, .n_tokens = 18, .sample = true},
    {.slot = 2, .start = 32, .n_tokens = 5},
    {.slot = 7, .start = 0, .n_tokens = 1, .sample = true},
};
static const uint32_t n_ids[N_RUNS] = {19, 40, 1}, n_dropped[N_RUNS] = {0, 1, 0};

struct expected_row {
    uint32_t slot, position, n_dropped;
    bool sample;
};

static uint32_t id_at(uint32_t slot, uint32_t position)
{
    return 100 * slot + position;
}

static struct sequences *apply_plan(struct msg_plan *plan, struct plan_run runs[N_RUNS])
{
    static uint32_t ids[N_RUNS][64], blocks[N_RUNS][2][3];
    static struct plan_admit admits[N_RUNS];
    static struct plan_blocks tables[N_RUNS][2];
    for (uint32_t r = 0; r < N_RUNS; r++) {
        uint32_t slot = shapes[r].slot;
        for (uint32_t i = 0; i < n_ids[r]; i++)
            ids[r][i] = id_at(slot, i);
        for (uint32_t i = 0; i < 3; i++) {
            blocks[r][0][i] = 3 * r + i;
            blocks[r][1][i] = 15 - 3 * r - i;
        }
        admits[r] = (struct plan_admit){.slot = slot,
                                        .n_prompt = n_ids[r],
                                        .n_computed = shapes[r].start,
                                        .ids = {ids[r], n_ids[r]},
                                        .sampling = {.n_prompt_logprobs = -1}};
        for (uint32_t g = 0; g < 2; g++)
            tables[r][g] = (struct plan_blocks){
                .i_group = g, .drop_leading = g == 1 ? n_dropped[r] : 0, .ids = {blocks[r][g], 3}};
        runs[r] = shapes[r];
        runs[r].blocks = tables[r];
        runs[r].n_blocks = 2;
    }
    *plan = (struct msg_plan){
        .step = 1, .admits = admits, .n_admits = N_RUNS, .runs = runs, .n_runs = N_RUNS};
    struct sequences *s = sequences_new(&limits);
    struct error err;
    assert_int_equal(sequences_apply(s, plan, &err), STATUS_OK);
    return s;
}

static void list_rows(struct expected_row rows[N_ROWS])
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < N_RUNS; r++)
        for (uint32_t i = 0; i < shapes[r].n_tokens; i++)
            rows[n++] = (struct expected_row){shapes[r].slot, shapes[r].start + i, n_dropped[r],
                                              shapes[r].sample && i + 1 == shapes[r].n_tokens};
    assert_int_equal(n, N_ROWS);
}

static void check_row(const struct batch *b, const struct sequences *s, uint32_t i,
                      const struct expected_row *want)
{
    const struct sequence *q = sequences_find(s, want->slot);
    assert_int_equal(b->rows.ids[i], id_at(want->slot, want->position));
    assert_int_equal(b->rows.positions[i], want->position);
    for (uint32_t g = 0; g < 2; g++) {
        assert_ptr_equal(b->rows.kv_rows[g][i].blocks, q->tables[g].ids);
        assert_int_equal(b->rows.kv_rows[g][i].position, want->position);
        assert_int_equal(b->rows.kv_rows[g][i].n_dropped, g == 1 ? want->n_dropped : 0);
    }
}

static void test_passes_of_any_size(void **state)
{
    struct expected_row want[N_ROWS];
    list_rows(want);
    for (uint32_t pass_rows = 1; pass_rows <= N_ROWS + 1; pass_rows++) {
        struct plan_run runs[N_RUNS];
        struct msg_plan plan;
        struct sequences *s = apply_plan(&plan, runs);
        struct batch b;
        uint32_t done = 0;
        batch_init(&b, pass_rows, limits.n_kv_groups);
        batch_begin(&b, sequences_runs(s));
        while (batch_next(&b)) {
            uint32_t left = N_ROWS - done, i_sample = 0;
            assert_int_equal(b.rows.n_rows, left < pass_rows ? left : pass_rows);
            for (uint32_t i = 0; i < b.rows.n_rows; i++, done++) {
                check_row(&b, s, i, &want[done]);
                if (!want[done].sample)
                    continue;
                assert_true(i_sample < b.n_samples && i_sample < b.rows.n_kept);
                assert_int_equal(b.rows.kept[i_sample], i);
                assert_int_equal(b.samples[i_sample].row, i);
                assert_ptr_equal(b.samples[i_sample++].run->q, sequences_find(s, want[done].slot));
            }
            assert_int_equal(b.n_samples, i_sample);
            assert_int_equal(b.rows.n_kept, i_sample);
        }
        assert_int_equal(done, N_ROWS);
        batch_fini(&b);
        sequences_free(s);
    }
}

/* Runs whose block tables together exceed the device's limit are put into separate passes. A run
 * that exceeds the limit alone has a pass of its own. */
static void test_passes_of_few_tables(void **state)
{
    static const struct {
        uint64_t most_entries;
        uint32_t want[3];
    } cases[] = {{6, {18, 5, 1}}, {12, {23, 1}}, {17, {23, 1}}, {18, {24}}, {1, {18, 5, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_run runs[N_RUNS];
        struct msg_plan plan;
        struct sequences *s = apply_plan(&plan, runs);
        struct batch b;
        uint32_t n = 0;
        batch_init(&b, 100, limits.n_kv_groups);
        assert_int_equal(b.most_entries, PASS_TABLE_ENTRIES);
        b.most_entries = cases[i].most_entries;
        batch_begin(&b, sequences_runs(s));
        for (; batch_next(&b); n++)
            assert_int_equal(b.rows.n_rows, n < 3 ? cases[i].want[n] : 0);
        assert_true(n == 3 || cases[i].want[n] == 0);
        batch_fini(&b);
        sequences_free(s);
    }
}

/* There is a pass for each stage if there are enough rows, and no pass is longer than necessary. */
static void test_passes_of_stages(void **state)
{
    static const struct {
        uint32_t n_stages, pass_rows, n_rows, want[4];
    } cases[] = {
        {1, 16, 24, {16, 8}},    {2, 16, 24, {12, 12}},    {2, 100, 24, {12, 12}},
        {2, 100, 15, {15}},      {2, 100, 16, {8, 8}},     {3, 100, 24, {8, 8, 8}},
        {4, 100, 24, {8, 8, 8}}, {3, 7, 24, {6, 6, 6, 6}}, {2, 100, 17, {9, 8}},
        {2, 100, 0, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_run runs[N_RUNS];
        struct msg_plan plan;
        struct sequences *s = apply_plan(&plan, runs);
        struct sequence *q = sequences_find(s, 2);
        struct sequence_run run = {.q = q, .n_tokens = cases[i].n_rows};
        struct batch b;
        uint32_t n = 0;
        batch_init(&b, cases[i].pass_rows, limits.n_kv_groups);
        batch_set_stages(&b, cases[i].n_stages);
        batch_begin(&b, (struct sequence_runs){&run, 1});
        for (; batch_next(&b); n++)
            assert_int_equal(b.rows.n_rows, cases[i].want[n]);
        assert_true(n == 4 || cases[i].want[n] == 0);
        batch_fini(&b);
        sequences_free(s);
    }
}

/* A newest id that is still pending is listed apart from the ids before it. */
static void test_late_rows(void **state)
{
    struct plan_run runs[N_RUNS];
    struct msg_plan plan;
    struct sequences *s = apply_plan(&plan, runs);
    struct batch b;
    batch_init(&b, N_ROWS, limits.n_kv_groups);
    for (uint32_t slot = 0; slot < 8; slot++)
        if (sequences_find(s, slot))
            sequences_find(s, slot)->is_pending = true;
    batch_begin(&b, sequences_runs(s));
    assert_true(batch_next(&b));
    assert_int_equal(b.n_pending, 2); /* the run of slot 2 ends before its newest id */
    assert_int_equal(b.pending[0].row, shapes[0].n_tokens - 1);
    assert_ptr_equal(b.pending[0].q, sequences_find(s, 5));
    assert_int_equal(b.pending[1].row, N_ROWS - 1);
    assert_ptr_equal(b.pending[1].q, sequences_find(s, 7));
    batch_fini(&b);
    sequences_free(s);
}

/* Each row of a prompt with prompt_logprobs has the id that follows it, except the last row. */
static void test_prompt_logprob_rows(void **state)
{
    for (uint32_t pass_rows = 1; pass_rows <= N_ROWS; pass_rows++) {
        struct plan_run runs[N_RUNS];
        struct msg_plan plan;
        struct sequences *s = apply_plan(&plan, runs);
        struct batch b;
        uint32_t position = 1, n_samples = 0;
        sequences_find(s, 5)->sampling.n_prompt_logprobs = 3;
        /* A prompt of one id has no prompt_logprobs. */
        sequences_find(s, 7)->sampling.n_prompt_logprobs = 3;
        batch_init(&b, pass_rows, limits.n_kv_groups);
        batch_begin(&b, sequences_runs(s));
        assert_int_equal(sequence_run_n_prompt_logprobs(&b.runs.ptr[0]), 17);
        assert_int_equal(sequence_run_n_prompt_logprobs(&b.runs.ptr[2]), 0);
        while (batch_next(&b)) {
            for (uint32_t i = 0; i < b.n_prompt_logprobs; i++, position++) {
                assert_int_equal(b.rows.positions[b.prompt_logprobs[i].row], position);
                assert_int_equal(b.prompt_logprobs[i].target, id_at(5, position + 1));
                assert_int_equal(b.prompt_logprobs[i].n_entries, 3);
            }
            assert_int_equal(b.rows.n_kept, b.n_prompt_logprobs + b.n_samples);
            n_samples += b.n_samples;
        }
        assert_int_equal(position, 18);
        assert_int_equal(n_samples, 2);
        batch_fini(&b);
        sequences_free(s);
    }
}

/* Mean pooling keeps all rows, and last-token pooling only the last row. Rows are kept in order. */
static void test_kept_rows(void **state)
{
    static const struct {
        enum pooling_kind of_5, of_2;
        uint32_t n;
    } cases[] = {{POOLING_NONE, POOLING_NONE, 2},
                 {POOLING_LAST, POOLING_LAST, 2},
                 {POOLING_MEAN, POOLING_NONE, 19},
                 {POOLING_MEAN, POOLING_MEAN, N_ROWS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_run runs[N_RUNS];
        struct msg_plan plan;
        struct sequences *s = apply_plan(&plan, runs);
        struct batch b;
        sequences_find(s, 5)->sampling.pooling = cases[i].of_5;
        sequences_find(s, 2)->sampling.pooling = cases[i].of_2;
        batch_init(&b, N_ROWS, limits.n_kv_groups);
        batch_begin(&b, sequences_runs(s));
        assert_true(batch_next(&b));
        assert_int_equal(b.rows.n_kept, cases[i].n);
        for (uint32_t k = 1; k < b.rows.n_kept; k++)
            assert_true(b.rows.kept[k] > b.rows.kept[k - 1]);
        assert_int_equal(b.rows.kept[b.rows.n_kept - 1], N_ROWS - 1);
        batch_fini(&b);
        sequences_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_of_any_size),  cmocka_unit_test(test_passes_of_few_tables),
        cmocka_unit_test(test_passes_of_stages),    cmocka_unit_test(test_late_rows),
        cmocka_unit_test(test_prompt_logprob_rows), cmocka_unit_test(test_kept_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
