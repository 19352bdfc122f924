/* Tests a draft model on real executors. The tests run streams by plan_driver.c with and without
 * a draft model. Invariants: the tokens are bit for bit those without a draft. A draft that is
 * the target itself is always accepted, which needs correct KV after shared blocks, copies,
 * chunks and draft tokens that were not run. Ranks are threads of this process; models are
 * written by tiny_model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/unit/worker/executor/plan_driver.c"
#include "tests/unit/worker/executor/sampler_double.c"
#include "tests/unit/worker/tiny_model.c"
#include "worker/draft/model.h"
#include "worker/executor/device/open.h"
#include "worker/executor/state.h"

enum { N_DRAFTS = 16, SHORT_LENGTH = 60 };

static const struct tiny_shape plain = {TINY_VOCAB, TINY_LENGTH, false};
static const struct tiny_shape window = {TINY_VOCAB, TINY_LENGTH, true};
static const struct tiny_shape brief = {TINY_VOCAB, SHORT_LENGTH, false};
static const struct tiny_shape strange = {TINY_VOCAB + 4, TINY_LENGTH, false};

static const struct {
    const char *name;
    const struct tiny_shape *target, *draft;
    uint64_t draft_seed; /* seed of the draft's weights; 7 = the target's */
    uint32_t tp, pp;
} pairs[] = {
    {"itself", &plain, &plain, 7, 1, 1},
    {"itself, two ranks", &plain, &plain, 7, 2, 1},
    {"itself, two stages", &plain, &plain, 7, 1, 2},
    {"itself, a window", &window, &window, 7, 1, 1},
    {"itself, two ranks, a window", &window, &window, 7, 2, 1},
    {"another", &plain, &plain, 8, 1, 1},
    {"another, two ranks", &plain, &plain, 8, 2, 1},
    {"another, two stages of two ranks", &plain, &plain, 8, 2, 2},
    {"one with a window", &plain, &window, 7, 1, 1},
    {"one without a window", &window, &plain, 7, 1, 1},
    {"a shorter one", &plain, &brief, 7, 1, 1},
};

static struct driver d;
static char target_folder[64], draft_folder[64];

static void write_model(char *folder, uint64_t seed, const struct tiny_shape *shape)
{
    strcpy(folder, "/tmp/cox-draft-XXXXXX");
    assert_non_null(mkdtemp(folder));
    tiny_write(folder, seed, shape);
}

static void remove_model(const char *folder)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

static struct worker_options options_of(uint32_t tp, uint32_t pp, const char *draft)
{
    return (struct worker_options){
        .model = target_folder,
        .device = WORKER_DEVICE_CPU,
        .tp = tp,
        .pp = pp,
        .threads = 2,
        .speculation = {.model = draft, .n_tokens = draft ? N_DRAFTS : 0}};
}

static void open_pair_by(size_t i, bool speculates, driver_open_fn *open)
{
    write_model(target_folder, 7, pairs[i].target);
    write_model(draft_folder, pairs[i].draft_seed, pairs[i].draft);
    const struct worker_options o =
        options_of(pairs[i].tp, pairs[i].pp, speculates ? draft_folder : NULL);
    driver_open_by(&d, &o, open);
}

static void open_pair(size_t i, bool speculates)
{
    open_pair_by(i, speculates, executor_open);
}

static void close_pair(void)
{
    driver_close(&d);
    remove_model(target_folder);
    remove_model(draft_folder);
}

static struct draft_model *draft_of(uint32_t rank)
{
    return ((struct executor_model *)d.ranks[rank].executor)->draft_model;
}

/* Sets the number of rows of the draft's passes. 0 means the engine's default. */
static void set_draft_rows(uint32_t n)
{
    static uint32_t usual;
    struct engine *e = (struct engine *)draft_model_engine(draft_of((d.pp - 1) * d.tp));
    usual = usual ? usual : e->pass_rows;
    e->pass_rows = n ? n : usual;
}

/* ---- streams ---- */

/* Fills the streams. The first two are greedy and depend only on the model, so the target
 * accepts every draft token of an equal draft in them. All streams but the first and the last
 * share 48 ids with the first stream, and the second computes 16 of these itself. */
static void add_streams(bool others)
{
    static const uint32_t few[] = {11, 12, 13};
    static const struct sampling_params params[DRIVER_STREAMS] = {
        {.repetition_penalty = 1, .max_tokens = 40, .n_logprobs = 1},
        {.repetition_penalty = 1, .max_tokens = 33, .n_logprobs = -1},
        /* This stream runs up to the model's length. */
        {.repetition_penalty = 1, .max_tokens = 1000, .n_logprobs = 0},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .max_tokens = 40, .n_logprobs = 2},
        {.repetition_penalty = 1.3f,
         .allowed_ids = {few, 3},
         .frequency_penalty = 0.5f,
         .max_tokens = 25,
         .n_logprobs = 1},
    };
    d.n_streams = others ? 5 : 3;
    for (uint32_t i = 0; i < d.n_streams; i++) {
        struct stream *s = &d.streams[i];
        *s = (struct stream){.n_prompt = 70 + 3 * i, .sampling = params[i]};
        s->n_shared = i == 0 || i == 4 ? 0 : 48;
        s->n_own = i == 1 ? 16 : 0;
        for (uint32_t k = 0; k < s->n_prompt; k++)
            s->ids[k] = (i == 0 || k < s->n_shared ? k * 7 + 3 : k * 11 + 5 * i) % TINY_VOCAB;
        s->sampling.seed = 77;
        s->sampling.i_choice = i;
    }
}

static const struct {
    const char *name;
    uint32_t draft_rows;
    struct way way;
} ways[] = {
    {"none granted", 0, {.n_flight = 1, .seed = 1}},
    {"up to one", 0, {.n_flight = 1, .max_draft = 1, .seed = 2}},
    {"up to four, two in flight", 0, {.n_flight = 2, .max_draft = 4, .seed = 3}},
    {"as many as there are", 0, {.n_flight = 1, .max_draft = N_DRAFTS, .seed = 4}},
    {"in chunks", 0, {.n_flight = 2, .max_draft = 6, .chunk = 30, .seed = 5}},
    {"shared blocks", 0, {.n_flight = 2, .max_draft = 4, .share = true, .seed = 6}},
    {"shared, in passes", 13, {.n_flight = 1, .max_draft = 4, .share = true, .seed = 7}},
    {"row by row", 1, {.n_flight = 2, .max_draft = 5, .share = true, .chunk = 50, .seed = 8}},
    {"alone", 0, {.n_flight = 2, .max_draft = 6, .one_by_one = true, .seed = 9}},
};

static void test_a_draft_changes_nothing(void **state)
{
    static struct stream want[DRIVER_STREAMS];
    for (size_t m = 0; m < sizeof pairs / sizeof pairs[0]; m++) {
        open_pair(m, false);
        add_streams(true);
        driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true, .max_draft = 3});
        assert_int_equal(d.n_drafted, 0);
        memcpy(want, d.streams, sizeof want);
        close_pair();
        open_pair(m, true);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            if (driver_leaves_out(m, i))
                continue;
            add_streams(true);
            set_draft_rows(ways[i].draft_rows);
            driver_must_give(&d, pairs[m].name, ways[i].name, &ways[i].way, want);
            assert_true(d.n_drafted > 0 || ways[i].way.max_draft == 0 || pairs[m].draft == &brief);
            assert_true(d.n_accepted < d.n_drafted || d.n_drafted == 0);
        }
        set_draft_rows(0);
        close_pair();
    }
}

/* The draft tokens of a draft that equals the target are always accepted, also when both models
 * sum over two ranks. Rounding then differs from a single rank, but equally for draft and
 * target. */
static void test_a_draft_that_is_the_target_is_right(void **state)
{
    for (size_t m = 0; m < sizeof pairs / sizeof pairs[0]; m++) {
        if (pairs[m].draft != pairs[m].target || pairs[m].draft_seed != 7)
            continue;
        open_pair(m, true);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            if (driver_leaves_out(m, i))
                continue;
            add_streams(false);
            set_draft_rows(ways[i].draft_rows);
            driver_run(&d, &ways[i].way);
            if (d.n_accepted != d.n_drafted)
                fail_msg("%s, %s: of %llu draft tokens %llu were right", pairs[m].name,
                         ways[i].name, (unsigned long long)d.n_drafted,
                         (unsigned long long)d.n_accepted);
        }
        set_draft_rows(0);
        close_pair();
    }
}

/* A step without draft tokens begins while only the device knows the ids of the step before. The
 * draft model must run those ids. Otherwise its later draft tokens would follow other ids. */
static void test_a_draft_runs_what_the_device_sampled(void **state)
{
    static const struct {
        const char *name;
        uint32_t draft_rows;
        struct way way;
    } halves[] = {
        {"now and then", 0, {.n_flight = 2, .max_draft = 1, .one_by_one = true, .seed = 1}},
        {"several", 0, {.n_flight = 2, .max_draft = 1, .seed = 2}},
        {"row by row", 1, {.n_flight = 2, .max_draft = 1, .one_by_one = true, .seed = 3}},
    };
    open_pair_by(0, true, double_executor_open);
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
        add_streams(false);
        set_draft_rows(halves[i].draft_rows);
        driver_run(&d, &halves[i].way);
        assert_true(d.n_drafted > 10);
        if (d.n_accepted != d.n_drafted)
            fail_msg("%s: of %llu draft tokens %llu were right", halves[i].name,
                     (unsigned long long)d.n_drafted, (unsigned long long)d.n_accepted);
    }
    set_draft_rows(0);
    close_pair();
}

/* A draft model with a shorter length makes draft tokens only up to its length. */
static void test_a_shorter_draft_drafts_to_its_length(void **state)
{
    const size_t m = sizeof pairs / sizeof pairs[0] - 1;
    assert_ptr_equal(pairs[m].draft, &brief);
    open_pair(m, true);
    d.n_streams = 1;
    d.streams[0] =
        (struct stream){.n_prompt = SHORT_LENGTH - 20,
                        .sampling = {.repetition_penalty = 1, .max_tokens = 40, .n_logprobs = -1}};
    for (uint32_t k = 0; k < d.streams[0].n_prompt; k++)
        d.streams[0].ids[k] = (k * 7 + 3) % TINY_VOCAB;
    driver_run(&d, &(struct way){.n_flight = 1, .max_draft = 4, .seed = 3});
    /* The draft has the same weights, as far as its length goes. */
    assert_int_equal(d.n_accepted, d.n_drafted);
    assert_in_range(d.n_drafted, 10, 21);
    close_pair();
}

/* ---- by hand: a copied block, and a sequence that comes back ---- */

enum { PROMPT = 40, BLOCKS_EACH = 8 };

static const struct sampling_params greedy = {
    .repetition_penalty = 1, .max_tokens = 60, .n_logprobs = -1, .n_prompt_logprobs = -1};

/* Executes one run, with the other parts of the plan as given. */
static struct msg_result step_by_hand(struct msg_plan p, struct plan_run run)
{
    struct driver_rank *rank = &d.ranks[0];
    p.step = ++d.step;
    p.runs = &run;
    p.n_runs = 1;
    arena_reset(&rank->arena);
    if (rank->executor->ops->step(rank->executor, &p, &rank->arena, &rank->result, &rank->err) !=
        STATUS_OK)
        fail_msg("%s", rank->err.text);
    return rank->result;
}

struct text_by_hand {
    uint32_t slot, n, ids[TINY_LENGTH];
};

/* Admits the sequence, whose ids before `start` are computed already, and appends the first
 * token. */
static void enter_by_hand(struct text_by_hand *t, uint32_t start, const uint32_t *blocks,
                          struct msg_plan p)
{
    const struct plan_blocks table = {.ids = {blocks, BLOCKS_EACH}};
    const struct plan_admit a = {.slot = t->slot,
                                 .n_prompt = PROMPT,
                                 .n_computed = start,
                                 .ids = {t->ids, t->n},
                                 .sampling = greedy};
    p.admits = &a;
    p.n_admits = 1;
    struct msg_result r = step_by_hand(p, (struct plan_run){.slot = t->slot,
                                                            .start = start,
                                                            .n_tokens = t->n - start,
                                                            .sample = true,
                                                            .blocks = &table,
                                                            .n_blocks = 1});
    assert_int_equal(r.items[0].ids.n, 1);
    t->ids[t->n++] = r.items[0].ids.ptr[0];
}

/* Executes a step whose draft tokens are all accepted. */
static void propose_by_hand(struct text_by_hand *t, uint32_t n_draft)
{
    struct msg_result r = step_by_hand(
        (struct msg_plan){0},
        (struct plan_run){
            .slot = t->slot, .start = t->n - 1, .n_tokens = 1, .n_draft = n_draft, .sample = true});
    assert_int_equal(r.n_drafted, n_draft);
    assert_int_equal(r.items[0].ids.n, n_draft + 1);
    memcpy(t->ids + t->n, r.items[0].ids.ptr, (n_draft + 1) * sizeof *t->ids);
    t->n += n_draft + 1;
}

static void test_copies_and_preemption(void **state)
{
    static const uint32_t first[] = {9, 3, 5, 1, 2, 4, 6, 8};
    static const uint32_t second[] = {9, 3, 20, 21, 22, 23, 24, 25};
    static const uint32_t again[] = {30, 31, 32, 33, 34, 35, 36, 37};
    static const struct plan_copy copy = {.from = 5, .to = 20};
    struct text_by_hand one = {.slot = 1, .n = PROMPT}, two;
    open_pair(0, true);
    for (uint32_t k = 0; k < PROMPT; k++)
        one.ids[k] = (k * 7 + 3) % TINY_VOCAB;
    two = one;
    two.slot = 2;
    enter_by_hand(&one, 0, first, (struct msg_plan){0});
    propose_by_hand(&one, 4);
    propose_by_hand(&one, 3); /* these draft tokens follow one that was not run */
    propose_by_hand(&one, 0);
    propose_by_hand(&one, 2);
    /* Another choice of the same prompt starts from a copy of its half-full last block. */
    enter_by_hand(&two, PROMPT - 1, second, (struct msg_plan){.copies = &copy, .n_copies = 1});
    propose_by_hand(&two, 8);
    assert_memory_equal(two.ids, one.ids, two.n * sizeof *two.ids);
    /* The first sequence is admitted again after it lost its blocks. */
    enter_by_hand(&one, 0, again, (struct msg_plan){.finished = {&one.slot, 1}});
    propose_by_hand(&one, 6);
    propose_by_hand(&two, 6);
    close_pair();
}

/* ---- refusals and memory ---- */

static void test_what_does_not_fit(void **state)
{
    static const struct {
        const char *name;
        const struct tiny_shape *draft; /* NULL = the folder has no draft */
        uint64_t kv_memory_bytes;
        const char *error;
    } cases[] = {
        {"another vocabulary", &strange, 0, "a vocabulary of 104 tokens"},
        {"no such model", NULL, 0, "draft model /nowhere"},
        {"no room for both KV caches", &plain, 20000, "--kv-cache-memory-bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct executor *e = NULL;
        struct error err = {0};
        write_model(target_folder, 7, &plain);
        write_model(draft_folder, 8, cases[i].draft ? cases[i].draft : &plain);
        struct worker_options o = options_of(1, 1, cases[i].draft ? draft_folder : "/nowhere");
        o.block_size = DRIVER_BLOCK;
        o.kv_cache_memory_bytes = (int64_t)cases[i].kv_memory_bytes;
        assert_int_not_equal(executor_open(&o, &e, &err), STATUS_OK);
        if (!strstr(err.text, cases[i].error))
            fail_msg("%s: %s", cases[i].name, err.text);
        remove_model(target_folder);
        remove_model(draft_folder);
    }
}

/* Both caches share the memory of --kv-cache-memory-bytes. The configuration hash depends on the
 * draft model. */
static void test_memory_and_hash(void **state)
{
    enum { KV_BYTES = 1 << 20 };
    struct executor *executors[3];
    const struct executor_info *infos[3];
    write_model(target_folder, 7, &plain);
    write_model(draft_folder, 8, &plain);
    for (int i = 0; i < 3; i++) {
        struct error err = {0};
        const char *drafts[] = {NULL, draft_folder, target_folder};
        struct worker_options o = options_of(1, 1, drafts[i]);
        o.block_size = DRIVER_BLOCK;
        o.kv_cache_memory_bytes = KV_BYTES;
        if (executor_open(&o, &executors[i], &err) != STATUS_OK)
            fail_msg("%s", err.text);
        infos[i] = executors[i]->ops->info(executors[i]);
    }
    assert_int_equal(infos[0]->draft_bytes + infos[0]->draft_kv_bytes, 0);
    assert_true(infos[1]->draft_bytes > 0);
    /* The draft's cache has the same number of blocks, of the same size. */
    assert_int_equal(infos[1]->draft_kv_bytes, infos[1]->kv_bytes);
    assert_true(infos[1]->kv_bytes + infos[1]->draft_kv_bytes <= KV_BYTES);
    assert_int_equal(infos[1]->limits.kv_groups[0].n_blocks,
                     infos[0]->limits.kv_groups[0].n_blocks / 2);
    assert_memory_not_equal(infos[0]->config_hash, infos[1]->config_hash, 32);
    assert_memory_not_equal(infos[2]->config_hash, infos[1]->config_hash, 32);
    assert_int_equal(infos[1]->n_draft, N_DRAFTS);
    for (int i = 0; i < 3; i++)
        executors[i]->ops->close(executors[i]);
    remove_model(target_folder);
    remove_model(draft_folder);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_draft_changes_nothing),
        cmocka_unit_test(test_a_draft_that_is_the_target_is_right),
        cmocka_unit_test(test_a_draft_runs_what_the_device_sampled),
        cmocka_unit_test(test_a_shorter_draft_drafts_to_its_length),
        cmocka_unit_test(test_copies_and_preemption),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_memory_and_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
