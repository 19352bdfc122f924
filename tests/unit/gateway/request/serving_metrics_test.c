#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "gateway/request/metrics.h"

#define S NS_PER_S

static void a_choice_s_time_is_cut_into_phases(void **state)
{
    static const struct {
        const char *name;
        struct choice_times t;
        struct choice_phases want;
    } cases[] = {
        {"all of them",
         {.arrival_ns = S,
          .submit_ns = 2 * S,
          .queue_ns = S,
          .first_token_ns = 7 * S,
          .last_token_ns = 10 * S,
          .now_ns = 11 * S},
         {.queue = 1, .prefill = 4, .decode = 3, .inference = 7, .e2e = 10}},
        {"the head says that it waited longer than there was time",
         {.arrival_ns = S,
          .submit_ns = 2 * S,
          .queue_ns = 9 * S,
          .first_token_ns = 7 * S,
          .last_token_ns = 7 * S,
          .now_ns = 7 * S},
         {.queue = 9, .e2e = 6}},
        {"a vector: no tokens",
         {.arrival_ns = S, .submit_ns = S, .queue_ns = S / 2, .now_ns = 2 * S},
         {.queue = .5, .e2e = 1}},
        {"never sent", {.arrival_ns = 5 * S, .now_ns = 6 * S}, {.e2e = 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct choice_phases got = serving_metrics_phases(&cases[i].t), want = cases[i].want;
        if (got.queue != want.queue || got.prefill != want.prefill || got.decode != want.decode ||
            got.inference != want.inference || got.e2e != want.e2e)
            fail_msg("%s: queue %g prefill %g decode %g inference %g e2e %g", cases[i].name,
                     got.queue, got.prefill, got.decode, got.inference, got.e2e);
    }
}

static struct msg_cluster cluster_of(uint64_t preemptions, uint64_t n_blocks)
{
    return (struct msg_cluster){.running = 3,
                                .waiting = 5,
                                .load = {.n_blocks = n_blocks,
                                         .n_blocks_used = n_blocks / 4,
                                         .n_preemptions = preemptions,
                                         .block_tokens = 16,
                                         .prefix_caching = true}};
}

/* A counter never falls when a new head begins at 0. The configuration of the cache is one
 * series. */
static void what_the_head_tells_is_passed_on(void **state)
{
    struct metrics *reg = metrics_new();
    struct serving_metrics m;
    struct strbuf out;
    strbuf_init(&out, 0);
    serving_metrics_init(&m, reg, "a\"model");
    metrics_render(reg, &out);
    assert_null(strstr(out.ptr, "cache_config_info"));
    static const struct {
        uint64_t told, want;
    } steps[] = {{7, 7}, {7, 7}, {9, 9}, {2, 11}, {3, 12}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const struct msg_cluster c = cluster_of(steps[i].told, 100 + i);
        serving_metrics_cluster(&m, &c);
        assert_true(metric_value(m.preemptions.metric) == (double)steps[i].want);
    }
    strbuf_reset(&out);
    metrics_render(reg, &out);
    assert_non_null(
        strstr(out.ptr, "vllm:num_requests_waiting{model_name=\"a\\\"model\",engine=\"0\"} 5\n"));
    const char *info = strstr(out.ptr, "\nvllm:cache_config_info{");
    assert_non_null(info);
    assert_int_equal(strncmp(info + 1,
                             "vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks="
                             "\"104\",enable_prefix_caching=\"True\"} 1\n",
                             strcspn(info + 1, "\n") + 1),
                     0);
    assert_null(strstr(info + 1, "\nvllm:cache_config_info{"));
    serving_metrics_fini(&m);
    strbuf_fini(&out);
    metrics_free(reg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_s_time_is_cut_into_phases),
        cmocka_unit_test(what_the_head_tells_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
