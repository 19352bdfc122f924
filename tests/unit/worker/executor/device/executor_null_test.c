/* Tests the null device. The tests pass plans directly to the executor (compute_test.c has the
 * thread) and compare tokens and log-probabilities with the rule computed here. Other cases:
 * joins, cached prefixes, plans that are refused, failures on request, draft tokens, the
 * configuration hash. Invariants: draft tokens never change the output, and a prefix in a plan
 * must really be in its blocks. All tests run on one thread. */
#include "worker/executor/executor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/null_tokens.h"
#include "tests/unit/worker/executor/plan_driver.c"
#include "worker/executor/device/open.h"

static struct worker_options options(void)
{
    return (struct worker_options){
        .model = "null", .device = WORKER_DEVICE_NULL, .tp = 2, .pp = 1, .block_size = 16};
}

static struct executor *open_null(const struct worker_options *o)
{
    struct executor *e;
    struct error err = {0};
    if (executor_open(o, &e, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return e;
}

static enum status join(struct executor *e, uint32_t rank, struct bytes id, struct error *err)
{
    const uint32_t n_blocks[1] = {64};
    return e->ops->join_comm(e,
                             &(struct executor_comm){.term_epoch = 1ull << 32 | 1,
                                                     .tp = 2,
                                                     .pp = 1,
                                                     .rank = rank,
                                                     .n_blocks = {n_blocks, 1},
                                                     .id = id},
                             err);
}

static void join_first(struct executor *e)
{
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n = sizeof id;
    struct error err = {0};
    assert_int_equal(e->ops->make_comm_id(e, id, &n, &err), STATUS_OK);
    assert_int_equal(join(e, 0, (struct bytes){id, n}, &err), STATUS_OK);
}

/* With --elastic-tp the device offers each smaller TP that divides its own, the largest first. */
static void test_offers_smaller_tps(void **state)
{
    static const struct {
        int64_t tp, blocks;
        bool elastic;
        uint32_t n, offered[4], n_blocks;
    } cases[] = {
        {12, 0, false, 0, {0}, 0},       {1, 0, true, 0, {0}, 0},
        {2, 0, true, 1, {1}, 500},       {6, 0, true, 3, {3, 2, 1}, 500},
        {8, 70, true, 3, {4, 2, 1}, 70}, {4, 600, true, 2, {2, 1}, 500},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct worker_options o = options();
        o.tp = cases[c].tp;
        o.elastic_tp = cases[c].elastic;
        o.num_gpu_blocks_override = 500;
        o.null_elastic_blocks = cases[c].blocks;
        struct executor *e = open_null(&o);
        const struct executor_info *i = e->ops->info(e);
        assert_int_equal(i->n_elastic, cases[c].n);
        for (uint32_t k = 0; k < i->n_elastic; k++) {
            assert_int_equal(i->elastic[k].tp, cases[c].offered[k]);
            assert_int_equal(i->elastic[k].n_blocks[0], cases[c].n_blocks);
        }
        e->ops->close(e);
    }
}

/* Computes the tokens that the rule gives for the ids. Each token depends on the ids and the
 * tokens before it. */
static void oracle(const struct sampling_params *sp, const uint32_t *ids, uint32_t n,
                   uint32_t vocab, uint32_t *out, uint32_t n_out)
{
    struct null_hash h;
    null_hash_init(&h, sp->seed, sp->i_prompt, sp->i_choice, sp->temperature);
    for (uint32_t i = 0; i < n; i++)
        null_hash_push(&h, ids[i]);
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = null_hash_token(&h, vocab);
        null_hash_push(&h, out[i]);
    }
}

/* `one_run` describes a plan with one run of a new sequence in the slot. */
struct one_run {
    uint64_t step;
    uint32_t slot, start;
    struct u32_span ids, blocks;
    const struct plan_copy *copy;
};
static enum status run_one(struct executor *e, const struct one_run *o, struct error *err)
{
    const struct plan_admit admit = {.slot = o->slot,
                                     .n_prompt = o->ids.n,
                                     .n_computed = o->start,
                                     .ids = o->ids,
                                     .sampling = {.n_prompt_logprobs = -1}};
    const struct plan_blocks table = {.ids = o->blocks};
    const struct plan_run run = {.slot = o->slot,
                                 .start = o->start,
                                 .n_tokens = o->ids.n - o->start,
                                 .blocks = &table,
                                 .n_blocks = 1};
    const struct msg_plan p = {.step = o->step,
                               .admits = &admit,
                               .n_admits = 1,
                               .runs = &run,
                               .n_runs = 1,
                               .copies = o->copy,
                               .n_copies = o->copy != NULL};
    struct arena arena;
    struct msg_result r;
    arena_init(&arena, 0);
    enum status s = e->ops->step(e, &p, &arena, &r, err);
    arena_fini(&arena);
    return s;
}

/* A computed prefix that a plan names must be in its blocks: another sequence computed it, or it
 * was copied or moved to the blocks. It must also have the same ids. */
static void test_prefixes(void **state)
{
    enum { N = 40 };
    const struct worker_options o = options();
    struct executor *e = open_null(&o);
    uint32_t ids[N], others[N];
    const uint32_t first[] = {3, 1, 2}, second[] = {3, 1, 9}, third[] = {3, 8, 10},
                   moved[] = {20, 21, 22};
    const struct plan_copy copy = {.from = 1, .to = 8};
    struct error err;
    struct kv_view v;
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = 97 + i;
        others[i] = i == 5 ? 7 : ids[i];
    }
    join_first(e);
#define RUN(n, of, at, from, in, with)                                                             \
    run_one(e,                                                                                     \
            &(struct one_run){.step = n,                                                           \
                              .slot = at,                                                          \
                              .start = from,                                                       \
                              .ids = {of, N},                                                      \
                              .blocks = {in, 3},                                                   \
                              .copy = with},                                                       \
            &err)
    assert_int_equal(RUN(1, ids, 0, 0, first, NULL), STATUS_OK);
    assert_int_equal(RUN(2, ids, 1, 32, second, NULL), STATUS_OK);
    assert_int_equal(RUN(3, ids, 2, 32, third, &copy), STATUS_OK);
    /* This hit ends in the middle of a block. */
    assert_int_equal(RUN(4, ids, 3, 20, third, NULL), STATUS_OK);
    assert_int_equal(RUN(5, ids, 4, 16, moved, NULL), STATUS_PROTOCOL);
    assert_non_null(strstr(err.text, "block 20"));
    assert_non_null(strstr(err.text, "the block was never filled"));
    assert_int_equal(e->ops->reset(e, &err), STATUS_OK);
    assert_int_equal(RUN(1, others, 0, 16, first, NULL), STATUS_PROTOCOL);
    assert_non_null(strstr(err.text, "the block has the KV of another sequence"));
    assert_int_equal(e->ops->reset(e, &err), STATUS_OK);
    e->ops->kv_view(e, &v); /* the test writes the block as a transfer does */
    const struct kv_piece *p = &v.groups[0].pieces[0];
    assert_int_equal(v.n_groups, 1);
    assert_int_equal(v.groups[0].n_blocks, 8192);
    assert_true(v.lags);
    for (uint32_t i = 0; i < 2; i++)
        memcpy(p->ptr + moved[i] * p->block_bytes, p->ptr + first[i] * p->block_bytes,
               p->block_bytes);
    assert_int_equal(RUN(1, ids, 0, 32, moved, NULL), STATUS_OK);
#undef RUN
    e->ops->close(e);
}

static void test_tokens(void **state)
{
    static const struct {
        float temperature;
        uint32_t vocab, n_computed;
        int32_t n_logprobs;
    } cases[] = {{0, 259, 0, -1}, {1, 259, 0, 0}, {1, 32000, 16, 5}, {0.5f, 259, 0, 1 << 30}};
    enum { N_PROMPT = 20, N_TOKENS = 30 };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct worker_options o = options();
        o.vocab_size = cases[c].vocab;
        struct executor *e = open_null(&o);
        join_first(e);
        uint32_t ids[N_PROMPT], want[N_TOKENS], blocks[4] = {3, 1, 2, 9};
        for (uint32_t i = 0; i < N_PROMPT; i++)
            ids[i] = 97 + i;
        struct sampling_params sp = {.temperature = cases[c].temperature,
                                     .seed = 99,
                                     .i_choice = 2,
                                     .n_logprobs = cases[c].n_logprobs,
                                     .n_prompt_logprobs = -1};
        oracle(&sp, ids, N_PROMPT, cases[c].vocab, want, N_TOKENS);
        struct error before = {0};
        if (cases[c].n_computed > 0) /* another sequence computes the prefix */
            assert_int_equal(run_one(e,
                                     &(struct one_run){.step = 100,
                                                       .slot = 3,
                                                       .ids = {ids, N_PROMPT},
                                                       .blocks = {(const uint32_t[]){3, 50}, 2}},
                                     &before),
                             STATUS_OK);
        struct plan_admit admit = {.slot = 70,
                                   .n_prompt = N_PROMPT,
                                   .n_computed = cases[c].n_computed,
                                   .ids = {ids, N_PROMPT},
                                   .sampling = sp};
        struct plan_blocks table = {.ids = {blocks, 4}};
        struct arena arena;
        arena_init(&arena, 0);
        uint32_t start = cases[c].n_computed;
        for (uint32_t step = 1; step <= N_TOKENS; step++) {
            uint32_t n = step == 1 ? N_PROMPT - start : 1;
            struct plan_run run = {.slot = 70,
                                   .start = start,
                                   .n_tokens = n,
                                   .sample = true,
                                   .blocks = &table,
                                   .n_blocks = step == 1};
            struct msg_plan p = {
                .step = step, .admits = &admit, .n_admits = step == 1, .runs = &run, .n_runs = 1};
            struct msg_result r;
            struct error err = {0};
            uint64_t progress = e->progress;
            arena_reset(&arena);
            if (e->ops->step(e, &p, &arena, &r, &err) != STATUS_OK)
                fail_msg("case %zu step %u: %s", c, step, err.text);
            assert_true(e->progress > progress);
            assert_int_equal(r.n_items, 1);
            assert_int_equal(r.items[0].slot, 70);
            assert_int_equal(r.items[0].ids.ptr[0], want[step - 1]);
            int32_t k = cases[c].n_logprobs;
            assert_int_equal(r.items[0].n_logprobs, k >= 0);
            if (k >= 0) {
                const struct logprob_row *row = r.items[0].logprobs;
                uint32_t shown = k > 64 ? 64 : (uint32_t)k;
                assert_int_equal(row->ids.n, shown + 1);
                assert_int_equal(row->ids.ptr[0], want[step - 1]);
                assert_true(fabsf(row->values.ptr[0] + logf((float)(shown + 1))) < 1e-6f);
            }
            start += n;
        }
        arena_fini(&arena);
        e->ops->close(e);
    }
}

static void test_other_rank_is_silent(void **state)
{
    struct worker_options o = options();
    struct executor *e = open_null(&o);
    struct error err = {0};
    uint8_t id[16] = {1};
    assert_int_equal(join(e, 1, (struct bytes){id, 16}, &err), STATUS_OK);
    uint32_t ids[2] = {97, 98}, block = 0;
    struct plan_admit admit = {.slot = 0, .n_prompt = 2, .ids = {ids, 2}};
    struct plan_blocks table = {.ids = {&block, 1}};
    struct plan_run run = {.n_tokens = 2, .sample = true, .blocks = &table, .n_blocks = 1};
    struct msg_plan p = {.step = 1, .admits = &admit, .n_admits = 1, .runs = &run, .n_runs = 1};
    struct msg_result r;
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_OK);
    assert_int_equal(r.n_items, 0);
    /* After a refused plan nothing runs until the rank joins a new communicator. */
    p.step = 2;
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_PROTOCOL);
    assert_non_null(strstr(err.text, "in use"));
    e->ops->abort_comm(e);
    assert_int_equal(join(e, 1, (struct bytes){id, 16}, &err), STATUS_OK);
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_OK);
    assert_int_equal(e->ops->reset(e, &err), STATUS_OK);
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_OK);
    arena_fini(&arena);
    e->ops->close(e);
}

static void test_join(void **state)
{
    struct worker_options o = options();
    o.null_fail_join = 1;
    struct executor *e = open_null(&o);
    struct error err = {0};
    uint8_t id[COMM_ID_MAX_BYTES], other[16] = {7};
    uint32_t n = sizeof id;
    assert_int_equal(e->ops->make_comm_id(e, id, &n, &err), STATUS_OK);
    /* The first join fails, as configured. */
    assert_int_equal(join(e, 0, (struct bytes){id, n}, &err), STATUS_IO);
    assert_int_equal(join(e, 0, (struct bytes){other, 16}, &err), STATUS_INVALID);
    assert_int_equal(join(e, 0, (struct bytes){id, 3}, &err), STATUS_INVALID);
    assert_int_equal(join(e, 0, (struct bytes){id, n}, &err), STATUS_OK);
    /* Each id is valid once. */
    assert_int_equal(join(e, 0, (struct bytes){id, n}, &err), STATUS_INVALID);
    n = 3;
    assert_int_equal(e->ops->make_comm_id(e, id, &n, &err), STATUS_LIMIT);
    e->ops->close(e);
}

static void test_interrupt_ends_a_stall(void **state)
{
    struct worker_options o = options();
    o.null_stall_after_step = 1;
    struct executor *e = open_null(&o);
    join_first(e);
    struct msg_plan p = {.step = 1};
    struct msg_result r;
    struct error err = {0};
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_OK);
    e->ops->interrupt(e); /* an interrupt before the step must not be lost */
    p.step = 2;
    /* This step has no duration. */
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_OK);
    e->ops->abort_comm(e);
    o.null_step_us = 60000000;
    e->ops->close(e);
    e = open_null(&o);
    join_first(e);
    e->ops->interrupt(e);
    p.step = 1;
    assert_int_equal(e->ops->step(e, &p, &arena, &r, &err), STATUS_CLOSED);
    arena_fini(&arena);
    e->ops->close(e);
}

/* Draft tokens by rule or by n-grams do not change the tokens, with or without a grant, with one
 * step in flight or two. */
static void test_drafts_change_nothing(void **state)
{
    static const struct {
        int64_t n_tokens, percent;
        struct way way;
        uint32_t least, most; /* bounds of the accepted draft tokens, in per cent */
    } cases[] = {
        {0, 100, {.n_flight = 2, .max_draft = 4, .seed = 1}, 0, 0},
        {4, 0, {.n_flight = 2, .max_draft = 4, .seed = 2}, 0, 30},
        {4, 50, {.n_flight = 1, .max_draft = 4, .seed = 3}, 15, 60},
        {4, 80, {.n_flight = 2, .max_draft = 9, .seed = 4}, 40, 90},
        {16, 100, {.n_flight = 2, .max_draft = 16, .seed = 5}, 100, 100},
        {3, 100, {.n_flight = 1, .max_draft = 16, .chunk = 7, .seed = 6}, 100, 100},
    };
    static struct driver d;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct worker_options o = options();
        o.tp = 1;
        o.max_model_len = 200;
        o.speculation.n_tokens = cases[c].n_tokens;
        o.null_draft_percent = cases[c].percent;
        driver_open(&d, &o);
        assert_int_equal(d.ranks[0].executor->ops->info(d.ranks[0].executor)->n_draft,
                         cases[c].n_tokens);
        d.n_streams = DRIVER_STREAMS;
        for (uint32_t i = 0; i < d.n_streams; i++) {
            struct stream *s = &d.streams[i];
            *s = (struct stream){.n_prompt = 20 + 32 * i,
                                 .sampling = {.temperature = (float)(i % 2),
                                              .seed = 5,
                                              .i_choice = i,
                                              .max_tokens = 60,
                                              .n_logprobs = (int32_t)i - 1,
                                              .n_prompt_logprobs = -1}};
            for (uint32_t k = 0; k < s->n_prompt; k++)
                s->ids[k] = 97 + k % 9;
        }
        driver_run(&d, &cases[c].way);
        for (uint32_t i = 0; i < d.n_streams; i++) {
            const struct stream *s = &d.streams[i];
            uint32_t want[DRIVER_OUT], n = 200 - s->n_prompt;
            n = n < 60 ? n : 60;
            oracle(&s->sampling, s->ids, s->n_prompt, d.limits.vocab_size, want, n);
            assert_int_equal(s->n_ids, s->n_prompt + n);
            assert_memory_equal(s->ids + s->n_prompt, want, n * sizeof *want);
        }
        if (d.n_accepted * 100 < d.n_drafted * cases[c].least ||
            d.n_accepted * 100 > d.n_drafted * cases[c].most ||
            (cases[c].n_tokens > 0) != (d.n_drafted > 0))
            fail_msg("case %zu: %llu of %llu draft tokens were right", c,
                     (unsigned long long)d.n_accepted, (unsigned long long)d.n_drafted);
        driver_close(&d);
    }
}

static void test_options(void **state)
{
    static const struct {
        const char *name;
        int device;
        const char *model;
        int64_t kv_bytes, blocks, len, vocab;
        enum status want;
        uint32_t want_blocks;
    } cases[] = {
        {"default", WORKER_DEVICE_NULL, "null", 0, 0, 0, 0, STATUS_OK, 8192},
        {"long model", WORKER_DEVICE_NULL, "null", 0, 0, 1 << 20, 0, STATUS_OK, 131072},
        {"auto is null for null", WORKER_DEVICE_AUTO, "null", 0, 0, 0, 0, STATUS_OK, 8192},
        {"auto is cpu for others", WORKER_DEVICE_AUTO, "/no/such", 0, 0, 0, 0, STATUS_NOT_FOUND, 0},
        {"cpu", WORKER_DEVICE_CPU, "null", 0, 0, 0, 0, STATUS_UNSUPPORTED, 0},
        {"cuda", WORKER_DEVICE_CUDA, "null", 0, 0, 0, 0, STATUS_UNSUPPORTED, 0},
        {"bytes", WORKER_DEVICE_NULL, "null", 6400, 0, 0, 0, STATUS_OK, 100},
        {"override wins", WORKER_DEVICE_NULL, "null", 6400, 7, 0, 0, STATUS_OK, 7},
        {"the shortest", WORKER_DEVICE_NULL, "null", 0, 0, 2, 0, STATUS_OK, 8192},
        {"no room for an answer", WORKER_DEVICE_NULL, "null", 0, 0, 1, 0, STATUS_INVALID, 0},
        {"longer than a message", WORKER_DEVICE_NULL, "null", 0, 9, (1 << 24) + 1, 0,
         STATUS_INVALID, 0},
        {"no room", WORKER_DEVICE_NULL, "null", 63, 0, 0, 0, STATUS_INVALID, 0},
        {"tiny vocabulary", WORKER_DEVICE_NULL, "null", 0, 0, 0, 10, STATUS_INVALID, 0},
        {"no such file", WORKER_DEVICE_NULL, "/no/such/model", 0, 0, 0, 0, STATUS_NOT_FOUND, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct worker_options o = options();
        struct executor *e = NULL;
        struct error err = {0};
        o.comm_host = "127.0.0.1"; /* only the CPU device uses comm_host */
        o.gpu = -1;
        o.device = cases[i].device;
        o.model = cases[i].model;
        o.kv_cache_memory_bytes = cases[i].kv_bytes;
        o.num_gpu_blocks_override = cases[i].blocks;
        o.max_model_len = cases[i].len;
        o.vocab_size = cases[i].vocab;
        enum status s = executor_open(&o, &e, &err);
        if (s != cases[i].want)
            fail_msg("%s: %s: %s", cases[i].name, status_name(s), err.text);
        if (s != STATUS_OK) {
            assert_true(err.text[0] != '\0');
            continue;
        }
        assert_int_equal(e->ops->info(e)->limits.kv_groups[0].n_blocks, cases[i].want_blocks);
        e->ops->close(e);
    }
}

static void test_there_is_no_draft_model(void **state)
{
    struct worker_options o = options();
    struct executor *e = NULL;
    struct error err = {0};
    o.speculation.model = "null";
    assert_int_equal(executor_open(&o, &e, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the null device cannot run a model"));
}

static void test_config_hash(void **state)
{
    struct config_identity a = {.model_hashes = STR("null"),
                                .dtype = "null",
                                .quantisation = "none",
                                .kv_dtype = "null",
                                .block_size = 16,
                                .tp = 2,
                                .pp = 1,
                                .max_model_len = 10,
                                .vocab_size = 300};
    uint8_t h1[32], h2[32], h3[32];
    executor_config_hash(&a, h1);
    executor_config_hash(&a, h2);
    assert_memory_equal(h1, h2, 32);
    a.kv_dtype = "I8"; /* Ranks with another KV data type would have blocks of another size. */
    executor_config_hash(&a, h2);
    assert_memory_not_equal(h1, h2, 32);
    a.kv_dtype = "null";
    a.pass_rows = 512; /* Ranks with other pass rows would have collectives of another length. */
    executor_config_hash(&a, h2);
    assert_memory_not_equal(h1, h2, 32);
    /* Pass rows do not matter without peers, so replicas on different devices can share a
     * configuration. */
    a.tp = 1;
    executor_config_hash(&a, h2);
    a.pass_rows = 0;
    executor_config_hash(&a, h3);
    assert_memory_equal(h2, h3, 32);
    a.tp = 2;
    a.speculation.max_seqs = 7; /* without draft tokens, max_seqs does not matter */
    executor_config_hash(&a, h2);
    assert_memory_equal(h1, h2, 32);
    a.speculation = (struct speculation){.n_tokens = 4, .lookup_max = 16, .lookup_min = 2};
    executor_config_hash(&a, h2);
    assert_memory_not_equal(h1, h2, 32);
    memcpy(h1, h2, 32);
    a.speculation.max_seqs = 7;
    executor_config_hash(&a, h2);
    assert_memory_equal(h1, h2, 32);
    a.speculation.lookup_min = 3;
    executor_config_hash(&a, h2);
    assert_memory_not_equal(h1, h2, 32);
    a.speculation = (struct speculation){.n_tokens = 4, .method = SPECULATION_DRAFT_MODEL};
    a.draft_hashes = STR("11");
    executor_config_hash(&a, h1);
    assert_memory_not_equal(h1, h2, 32);
    a.draft_hashes = STR("12"); /* these are other draft weights */
    executor_config_hash(&a, h2);
    assert_memory_not_equal(h1, h2, 32);
    a.speculation = (struct speculation){0};
    a.tp = 1;
    executor_config_hash(&a, h1);
    assert_memory_not_equal(h1, h2, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offers_smaller_tps),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_other_rank_is_silent),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_interrupt_ends_a_stall),
        cmocka_unit_test(test_drafts_change_nothing),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_there_is_no_draft_model),
        cmocka_unit_test(test_config_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
