/* Plans that share work, on real executors: what comes out is, to the bit of every gap and
 * log-probability, what each sequence alone gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/unit/worker/plan_driver.c"
#include "tests/unit/worker/tiny_model.c"
#include "worker/executor_cpu_internal.h"

static const struct {
    const char *name;
    void (*write)(const char *folder, uint64_t seed);
    uint32_t tp;
} models[] = {
    {"one rank", tiny_model_write, 1},
    {"two ranks", tiny_model_write, 2},
    {"one rank, a window", tiny_window_model_write, 1},
    {"two ranks, a window", tiny_window_model_write, 2},
};

static struct driver d;
static char folder[64];

static void open_model(size_t i)
{
    strcpy(folder, "/tmp/cox-plans-XXXXXX");
    assert_non_null(mkdtemp(folder));
    models[i].write(folder, 7);
    driver_open(&d, &(struct worker_options){.model = folder,
                                             .device = WORKER_DEVICE_CPU,
                                             .tp = models[i].tp,
                                             .pp = 1,
                                             .threads = 2});
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

/* 0: as many as the executor takes. */
static void set_pass_rows(uint32_t n)
{
    for (uint32_t i = 0; i < d.tp; i++) {
        struct executor_cpu *x = (struct executor_cpu *)d.ranks[i].executor;
        batch_fini(&x->batch);
        batch_init(&x->batch, n ? n : x->engine->pass_rows, d.limits.n_kv_groups);
    }
}

/* What comes out of w must be what is in want. */
static void must_be(const char *model, const char *way, const struct way *w,
                    const struct stream want[DRIVER_STREAMS])
{
    driver_run(&d, w);
    for (uint32_t i = 0; i < d.n_streams; i++) {
        const struct stream *s = &d.streams[i];
        for (uint32_t k = 0; k < want[i].n_ids - want[i].n_prompt; k++)
            if (s->n_ids != want[i].n_ids ||
                memcmp(&s->out[k], &want[i].out[k], sizeof s->out[k]) != 0)
                fail_msg("%s, %s: stream %u of %u ids, token %u is %u, not %u", model, way, i,
                         s->n_ids, k, s->out[k].id, want[i].out[k].id);
    }
}

/* ---- a prefix that several runs of a plan have in common ---- */

/* Prompts of 70 ids and more; all but the first have 48 of stream 0's in front, and of these they
 * compute none, or the first 16, by themselves. Stream 3 has nothing in common. */
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
        open_model(m);
        add_sharing_streams();
        driver_run(&d, &(struct way){.n_flight = 1, .one_by_one = true});
        memcpy(want, d.streams, sizeof want);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            set_pass_rows(ways[i].pass_rows);
            must_be(models[m].name, ways[i].name, &ways[i].way, want);
        }
        close_model();
    }
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_share_what_a_plan_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
