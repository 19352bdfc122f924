/* Tests plans on real executors that share work between sequences. plan_driver.c plays a head
 * with one or two steps in flight, and runs a few streams on ranks that are threads of this
 * process. Cases: common prefixes, draft tokens, a device that samples, a smaller TP.
 * Invariants: tokens, score distances and log-probabilities equal those of each sequence alone
 * in one stage, bit for bit. tiny_model.c writes the models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/unit/worker/executor/plan_driver.c"
#include "tests/unit/worker/executor/sampler_double.c"
#include "tests/unit/worker/tiny_model.c"
#include "worker/executor/device/open.h"
#include "worker/executor/state.h"

static const struct {
    const char *name;
    void (*write)(const char *folder, uint64_t seed);
    uint32_t tp, pp;
} models[] = {
    {"one rank", tiny_model_write, 1, 1},
    {"two ranks", tiny_model_write, 2, 1},
    {"two stages", tiny_model_write, 1, 2},
    {"one rank, a window", tiny_window_model_write, 1, 1},
    {"two ranks, a window", tiny_window_model_write, 2, 1},
    {"two stages of two ranks, a window", tiny_window_model_write, 2, 2},
};

enum { STEP_TIMEOUT_S = 90 };
static struct driver d;
static char folder[64];

static void make_model(void (*write)(const char *folder, uint64_t seed))
{
    strcpy(folder, "/tmp/cox-plans-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write(folder, 7);
}

static void open_model_by(size_t i, uint32_t pp, struct speculation_options speculation,
                          driver_open_fn *open)
{
    make_model(models[i].write);
    driver_open_by(&d,
                   &(struct worker_options){.model = folder,
                                            .device = WORKER_DEVICE_CPU,
                                            .tp = models[i].tp,
                                            .pp = pp,
                                            .threads = 2,
                                            .step_timeout_s = STEP_TIMEOUT_S,
                                            .speculation = speculation},
                   open);
}

static void open_model(size_t i, uint32_t pp, struct speculation_options speculation)
{
    open_model_by(i, pp, speculation, executor_open);
}

static void close_model(void)
{
    char path[128];
    driver_close(&d);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

/* Sets the number of rows of a pass. 0 means the engine's default. */
static void set_pass_rows(uint32_t n)
{
    for (uint32_t i = 0; i < d.n_ranks; i++) {
        struct executor_model *x = (struct executor_model *)d.ranks[i].executor;
        batch_fini(&x->batch);
        batch_init(&x->batch, n ? n : x->engine->pass_rows, d.limits.n_kv_groups);
        batch_set_stages(&x->batch, d.pp);
    }
}

/* ---- a common prefix of several runs of a plan ---- */

/* Adds prompts of 70 ids and more. All but streams 0 and 3 begin with 48 ids of stream 0, and
 * compute none or only the first 16 of these. Stream 3 has nothing in common. */
static void add_sharing_streams(void)
{
    d.n_streams = 5;
    for (uint32_t i = 0; i < d.n_streams; i++) {
        struct stream *s = &d.streams[i];
        s->n_prompt = 70 + 3 * i;
        s->n_shared = i == 0 || i == 3 ? 0 : 48;
        s->n_own = i == 2 ? 16 : 0;
        for (uint32_t k = 0; k < s->n_prompt; k++)
            s->ids[k] = (k < s->n_shared ? k * 7 + 3 : k * 11 + 5 * i) % TINY_VOCAB;
        if (i == 0)
            for (uint32_t k = 0; k < s->n_prompt; k++)
                s->ids[k] = (k * 7 + 3) % TINY_VOCAB;
        s->sampling = (struct sampling_params){.temperature = i % 2 ? 1.0f : 0.0f,
                                               .top_p = 1,
                                               .repetition_penalty = 1,
                                               .seed = 5,
                                               .i_choice = i,
                                               .max_tokens = 12,
                                               .n_logprobs = 1};
    }
}

static void test_runs_share_what_a_plan_computes(void **state)
{
    static const struct {
        const char *name;
        uint32_t pass_rows;
        struct way way;
    } ways[] = {
        {"all at once", 0, {.n_flight = 1, .share = true, .seed = 1}},
        {"in chunks", 0, {.n_flight = 1, .share = true, .chunk = 64, .seed = 2}},
        {"two in flight", 0, {.n_flight = 2, .share = true, .seed = 3}},
        {"in passes", 13, {.n_flight = 1, .share = true, .seed = 4}},
        {"row by row", 1, {.n_flight = 2, .share = true, .chunk = 50, .seed = 5}},
    };
    static struct stream want[DRIVER_STREAMS];
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        open_model(m, 1, (struct speculation_options){0});
        add_sharing_streams();
        driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true});
        memcpy(want, d.streams, sizeof want);
        close_model();
        open_model(m, models[m].pp, (struct speculation_options){0});
        add_sharing_streams();
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            if (driver_leaves_out(m, i))
                continue;
            set_pass_rows(ways[i].pass_rows);
            driver_must_give(&d, models[m].name, ways[i].name, &ways[i].way, want);
        }
        close_model();
    }
}

/* ---- draft tokens ---- */

/* Adds streams that n-grams draft well or badly, and streams for each rule of the sampler that
 * uses earlier tokens. A draft token counts as generated for the tokens after it. */
static void add_drafted_streams(void)
{
    static const uint32_t eos[] = {1}, few[] = {11, 12, 13}, bad[] = {11, 12, UINT32_MAX, 5};
    static const struct logit_bias bias[] = {{20, 60}, {21, 60}, {22, 58}};
    static const struct sampling_params params[DRIVER_STREAMS] = {
        {.repetition_penalty = 1, .max_tokens = 40, .n_logprobs = -1},
        {.temperature = 1,
         .top_p = 1,
         .repetition_penalty = 1,
         .allowed_ids = {few, 3},
         .max_tokens = 40,
         .n_logprobs = 2},
        {.temperature = 0.7f,
         .top_p = 0.9f,
         .top_k = 4,
         .repetition_penalty = 1.1f,
         .frequency_penalty = 0.5f,
         .presence_penalty = 0.2f,
         .logit_bias = bias,
         .n_logit_bias = 3,
         .max_tokens = 33,
         .n_logprobs = 0},
        {.repetition_penalty = 1,
         .allowed_ids = {few, 3},
         .bad_words = {bad, 4},
         .eos_ids = {eos, 1},
         .min_tokens = 20,
         .max_tokens = 25,
         .n_logprobs = -1},
        {.temperature = 1,
         .min_p = 0.5f,
         .top_p = 1,
         .repetition_penalty = 1,
         .max_tokens = 1,
         .n_logprobs = -1},
        /* This stream runs up to the model's length. */
        {.repetition_penalty = 1, .max_tokens = 1000, .n_logprobs = 1},
    };
    d.n_streams = DRIVER_STREAMS;
    for (uint32_t i = 0; i < d.n_streams; i++) {
        struct stream *s = &d.streams[i];
        *s = (struct stream){.n_prompt = i == 5 ? TINY_LENGTH - 30 : 20 + 9 * i,
                             .sampling = params[i]};
        for (uint32_t k = 0; k < s->n_prompt; k++)
            s->ids[k] = i == 4 ? k * 11 % TINY_VOCAB : 11 + k % (3 + i);
        s->sampling.seed = 77 + i;
        s->has_prompt_logprobs = i % 2 == 1;
        s->sampling.n_prompt_logprobs = (int32_t)i;
        s->sampling.i_choice = i;
    }
}

static void test_drafts_change_nothing(void **state)
{
    static const struct {
        const char *name;
        uint32_t pass_rows;
        struct way way;
    } ways[] = {
        {"none granted", 0, {.n_flight = 1, .seed = 1}},
        {"up to one", 0, {.n_flight = 1, .max_draft = 1, .seed = 2}},
        {"up to four, two in flight", 0, {.n_flight = 2, .max_draft = 4, .seed = 3}},
        {"as many as there are", 0, {.n_flight = 1, .max_draft = 16, .seed = 4}},
        {"more, two in flight", 0, {.n_flight = 2, .max_draft = 30, .chunk = 30, .seed = 5}},
        {"in passes", 5, {.n_flight = 2, .max_draft = 8, .chunk = 7, .seed = 6}},
        {"row by row", 1, {.n_flight = 2, .max_draft = 8, .seed = 7}},
        {"alone", 0, {.n_flight = 2, .max_draft = 6, .one_by_one = true, .seed = 8}},
    };
    static struct stream want[DRIVER_STREAMS];
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        open_model(m, 1, (struct speculation_options){0});
        add_drafted_streams();
        driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true, .max_draft = 3});
        /* The head grants draft tokens, but this rank does not draft. */
        assert_int_equal(d.n_drafted, 0);
        memcpy(want, d.streams, sizeof want);
        close_model();
        open_model(m, models[m].pp, (struct speculation_options){.n_tokens = 16, .lookup_min = 1});
        uint64_t n_drafted = 0, n_empty = 0;
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            if (driver_leaves_out(m, i))
                continue;
            add_drafted_streams();
            set_pass_rows(ways[i].pass_rows);
            driver_must_give(&d, models[m].name, ways[i].name, &ways[i].way, want);
            n_drafted += d.n_drafted;
            for (uint32_t k = 0; k < d.n_streams; k++)
                n_empty += d.streams[k].n_empty;
            if (ways[i].way.max_draft > 1)
                assert_true(d.n_accepted > 0 && d.n_accepted < d.n_drafted);
        }
        assert_true(n_drafted > 0 && n_empty > 0);
        close_model();
    }
}

/* ---- a device that samples ---- */

/* Adds a stream with two biases on one id, which the device cannot apply. The host samples it. */
static void add_what_the_host_samples(void)
{
    static const struct logit_bias twice[] = {{20, 6}, {20, 7}};
    struct stream *s = &d.streams[4];
    s->sampling.max_tokens = 9;
    s->sampling.logit_bias = twice;
    s->sampling.n_logit_bias = 2;
}

/* Adds a stream with 700 biases. The ids of most biases are outside the vocabulary. */
static void add_many_biases(void)
{
    static struct logit_bias many[700];
    struct stream *s = &d.streams[4];
    for (uint32_t i = 0; i < 700; i++)
        many[i] = (struct logit_bias){i, (float)(i * 7 % 13)};
    s->sampling.max_tokens = 9;
    s->sampling.logit_bias = many;
    s->sampling.n_logit_bias = 700;
}

static uint32_t n_ids_sampled(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d.n_streams; i++)
        n += d.streams[i].n_ids - d.streams[i].n_prompt;
    return n;
}

static void test_halves_change_nothing(void **state)
{
    static const struct {
        const char *name;
        void (*add)(void);
        bool all;
    } kinds[] = {{"all by the device", NULL, true},
                 {"some by the host", add_what_the_host_samples, false},
                 {"many biases", add_many_biases, true}};
    static const struct {
        const char *name;
        uint32_t pass_rows;
        struct way way;
    } ways[] = {
        {"one by one", 0, {.n_flight = 1, .seed = 1}},
        {"two under way", 0, {.n_flight = 2, .seed = 2}},
        {"two under way, in chunks", 0, {.n_flight = 2, .chunk = 7, .seed = 3}},
        {"two under way, row by row", 1, {.n_flight = 2, .seed = 4}},
        {"draft tokens", 0, {.n_flight = 1, .max_draft = 4, .seed = 5}},
        {"draft tokens, two under way", 5, {.n_flight = 2, .max_draft = 4, .chunk = 30, .seed = 6}},
        {"alone, two under way", 0, {.n_flight = 2, .one_by_one = true, .seed = 8}},
    };
    static struct stream want[DRIVER_STREAMS];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        open_model(0, 1, (struct speculation_options){0});
        add_drafted_streams();
        if (kinds[k].add)
            kinds[k].add();
        driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true});
        memcpy(want, d.streams, sizeof want);
        close_model();
        open_model_by(0, 1, (struct speculation_options){.n_tokens = 16, .lookup_min = 1},
                      double_executor_open);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            if (driver_leaves_out(k, i))
                continue;
            add_drafted_streams();
            if (kinds[k].add)
                kinds[k].add();
            set_pass_rows(ways[i].pass_rows);
            sampler_double->n_rows = sampler_double->n_pending = sampler_double->n_prompt_logprobs =
                0;
            driver_must_give(&d, kinds[k].name, ways[i].name, &ways[i].way, want);
            assert_true(sampler_double->n_rows > 100);
            assert_true(sampler_double->n_prompt_logprobs > 100 || !kinds[k].all);
            assert_true((sampler_double->n_rows >= n_ids_sampled()) == kinds[k].all);
            if (ways[i].way.n_flight == 2 && ways[i].way.max_draft == 0)
                assert_true(sampler_double->n_pending > 0);
        }
        close_model();
    }
}

/* Begins a step with one run of slot 10: the whole prompt of a new stream, or its next id. */
static void begin_step(const struct stream *s, bool enters, bool after_another, uint32_t n_sampled)
{
    struct executor *e = d.ranks[0].executor;
    const uint32_t first[] = {5, 6, 7, 8}, second[] = {20, 21, 22, 23}, slot = 10;
    const struct plan_blocks blocks = {.ids = {after_another ? second : first, enters ? 4 : 0}};
    const struct plan_admit admit = {.slot = slot,
                                     .n_prompt = s->n_prompt,
                                     .ids = {s->ids, s->n_prompt},
                                     .sampling = s->sampling};
    const struct plan_run run = {.slot = slot,
                                 .start = enters ? 0 : s->n_prompt + n_sampled - 1,
                                 .n_tokens = enters ? s->n_prompt : 1,
                                 .sample = true,
                                 .blocks = &blocks,
                                 .n_blocks = enters};
    const struct msg_plan p = {.step = ++d.step,
                               .finished = {&slot, enters && after_another},
                               .admits = &admit,
                               .n_admits = enters,
                               .runs = &run,
                               .n_runs = 1};
    struct error err = {0};
    arena_reset(&d.arenas[d.step % DRIVER_FLIGHT]);
    if (e->ops->begin(e, &p, &d.arenas[d.step % DRIVER_FLIGHT], &err) != STATUS_OK)
        driver_die("begin", err.text);
}

static void finish_step(uint32_t want)
{
    struct executor *e = d.ranks[0].executor;
    struct msg_result r;
    struct error err = {0};
    assert_int_equal(e->ops->finish(e, &r, &err), STATUS_OK);
    assert_int_equal(r.n_items, 1);
    assert_int_equal(r.items[0].slot, 10);
    assert_int_equal(r.items[0].ids.ptr[0], want);
}

/* A sequence leaves while an id of it is pending on the device, and another sequence takes its
 * slot. In the second round all sequences leave. */
static void test_who_leaves_with_ids_on_the_way(void **state)
{
    static struct stream want[DRIVER_STREAMS];
    struct executor *e;
    struct error err;
    open_model_by(0, 1, (struct speculation_options){0}, double_executor_open);
    e = d.ranks[0].executor;
    add_drafted_streams();
    d.streams[1].n_prompt =
        /* the first id of stream 1 takes the position of an id of stream 0 */
        d.streams[0].n_prompt + 1;
    d.streams[1].sampling = d.streams[0].sampling;
    driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true});
    memcpy(want, d.streams, sizeof want);
    assert_int_not_equal(want[0].out[1].id, want[1].out[0].id);
    assert_int_equal(e->ops->reset(e, &err), STATUS_OK);
    for (int round = 0; round < 2; round++) {
        d.step = 0;
        begin_step(&want[0], true, false, 0);
        begin_step(&want[0], false, false, 1);
        if (round == 0) { /* The rank leaves its group, and no result of these steps is returned. */
            assert_false(e->ops->is_due(e));
            e->ops->interrupt(e);
            assert_true(e->ops->is_due(e));
            e->ops->abort_comm(e);
            driver_join(&d);
            continue;
        }
        finish_step(want[0].out[0].id);
        begin_step(&want[1], true, true, 0);
        finish_step(want[0].out[1].id);
        begin_step(&want[1], false, true, 1);
        finish_step(want[1].out[0].id);
        begin_step(&want[1], false, true, 2);
        finish_step(want[1].out[1].id);
        finish_step(want[1].out[2].id);
    }
    driver_must_give(&d, "afterwards", "two under way", &(struct way){.n_flight = 2}, want);
    close_model();
}

/* A step that computes counts as progress until its time limit has passed. Then it fails, and
 * the process must end. An interrupted rank does not wait. */
static void test_a_device_that_hangs(void **state)
{
    struct executor *e;
    struct msg_result r;
    struct error err = {0};
    open_model_by(0, 1, (struct speculation_options){0}, double_executor_open);
    e = d.ranks[0].executor;
    add_drafted_streams();
    for (int round = 0; round < 2; round++) {
        struct executor_model *x = (struct executor_model *)e;
        assert_true(round > 0 || x->loss.stuck_ns == STEP_TIMEOUT_S * NS_PER_S);
        driver_join(&d);
        d.step = 0;
        sampler_double->hangs = true;
        x->loss.stuck_ns = round == 0 ? 3600 * NS_PER_S : 50 * NS_PER_MS;
        begin_step(&d.streams[0], true, false, 0);
        uint64_t before = atomic_load(&e->progress);
        while (round == 0 && atomic_load(&e->progress) < before + 3)
            assert_false(e->ops->is_due(e));
        if (round == 0) {
            e->ops->interrupt(e);
            assert_int_equal(e->ops->finish(e, &r, &err), STATUS_CLOSED);
            e->ops->abort_comm(e);
            assert_false(e->ops->lost(e, &err));
            continue;
        }
        while (!e->ops->is_due(e))
            ;
        assert_int_equal(e->ops->finish(e, &r, &err), STATUS_TIMEOUT);
        assert_true(e->ops->lost(e, &err));
        assert_non_null(strstr(err.text, "hangs"));
    }
    close_model();
}

/* ---- fewer ranks than at the start ---- */

/* Ranks that now have another TP give the same output as ranks that were started with it.
 * Streams have draft tokens or none, are sampled or greedy, have prompt_logprobs, or run in
 * chunks. */
static void test_fewer_ranks_change_nothing(void **state)
{
    static const struct {
        const char *name;
        void (*write)(const char *folder, uint64_t seed);
        uint32_t tp, pp, way[6];
    } cases[] = {
        {"four ranks", tiny_model_write, 4, 1, {2, 1, 4, 1, 2, 4}},
        {"four ranks, a window", tiny_window_model_write, 4, 1, {1, 4, 2}},
        {"two stages of two ranks", tiny_model_write, 2, 2, {1, 2}},
        {"two stages of two ranks, a window", tiny_window_model_write, 2, 2, {1, 2}},
    };
    static const struct way wild = {.n_flight = 2, .max_draft = 4, .chunk = 30, .seed = 3};
    static struct stream want[5][DRIVER_STREAMS];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_model(cases[i].write);
        struct worker_options o = {.model = folder,
                                   .device = WORKER_DEVICE_CPU,
                                   .tp = cases[i].tp,
                                   .pp = cases[i].pp,
                                   .threads = 2,
                                   .step_timeout_s = STEP_TIMEOUT_S};
        struct speculation_options drafts[] = {
            {0}, {.n_tokens = 4, .lookup_min = 1}, {.n_tokens = 4, .model = folder}};
        for (uint32_t tp = 1; tp <= cases[i].tp; tp *= 2) {
            struct worker_options own = o;
            own.tp = tp;
            driver_open(&d, &own);
            add_drafted_streams();
            driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true});
            memcpy(want[tp], d.streams, sizeof want[tp]);
            driver_close(&d);
        }
        o.elastic_tp = true;
        for (size_t k = 0; k < sizeof drafts / sizeof drafts[0]; k++) {
            o.speculation = drafts[k];
            driver_open(&d, &o);
            for (uint32_t w = 0; w < 6 && cases[i].way[w] > 0; w++) {
                uint32_t tp = cases[i].way[w];
                driver_reshape(&d, tp);
                add_drafted_streams();
                driver_must_give(&d, cases[i].name, "reshaped", &wild, want[tp]);
                assert_true((d.n_drafted > 0) == (k > 0));
                bool is_own = tp == cases[i].tp;
                for (uint32_t r = 0; r < d.n_ranks; r++)
                    assert_true(is_own || d.ranks[r].executor->shard_tp == tp);
            }
            driver_close(&d);
        }
        d.n_open = 0;
        close_model();
    }
}

/* Hello lists smaller TPs only with --elastic-tp. A join with a TP that was not offered is
 * refused. */
static void test_what_is_not_offered(void **state)
{
    struct error err = {0};
    make_model(tiny_model_write);
    for (int is_elastic = 0; is_elastic < 2; is_elastic++) {
        struct worker_options o = {.model = folder,
                                   .device = WORKER_DEVICE_CPU,
                                   .tp = 4,
                                   .pp = 1,
                                   .threads = 1,
                                   .elastic_tp = is_elastic > 0};
        driver_open(&d, &o);
        struct driver_rank *r = &d.ranks[0];
        struct executor *e = r->executor;
        const struct executor_info *info = e->ops->info(e);
        assert_int_equal(info->n_elastic, is_elastic ? 2 : 0);
        for (uint32_t k = 0; k < info->n_elastic; k++) {
            assert_int_equal(info->elastic[k].tp, 2 - k);
            assert_int_equal(info->elastic[k].n_blocks[0], DRIVER_BLOCKS);
        }
        e->ops->abort_comm(e);
        r->comm.tp = is_elastic ? 3 : 2;
        r->comm.n_addresses = r->comm.tp;
        assert_int_equal(e->ops->join_comm(e, &r->comm, &err), STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, "--tp 4"));
        driver_reshape(&d, 4); /* The refused join loses no data. */
        driver_close(&d);
    }
    d.n_open = 0;
    close_model();
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_share_what_a_plan_computes),
        cmocka_unit_test(test_drafts_change_nothing),
        cmocka_unit_test(test_halves_change_nothing),
        cmocka_unit_test(test_who_leaves_with_ids_on_the_way),
        cmocka_unit_test(test_a_device_that_hangs),
        cmocka_unit_test(test_fewer_ranks_change_nothing),
        cmocka_unit_test(test_what_is_not_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
