/* Tests the statistics line of the log: the words that users' scripts search for, and the times
 * at which the head writes the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "head/admin/stats_line.h"

static const struct head_stats before = {.n_prompt_tokens = 100,
                                         .n_generated_tokens = 1000,
                                         .prefix_query_tokens = 50,
                                         .prefix_hit_tokens = 10,
                                         .n_draft_steps = 5,
                                         .n_drafted = 20,
                                         .n_accepted = 7};

static void the_words(void **state)
{
    static const struct {
        enum stats_format format;
        struct head_stats now;
        const char *want, *want_speculation;
    } cases[] = {
        {STATS_VLLM,
         {.n_prompt_tokens = 214,
          .n_generated_tokens = 1737,
          .running = 1,
          .waiting = 3,
          .n_replicas_ready = 1,
          .n_blocks = 1000,
          .n_blocks_used = 5,
          .n_draft_steps = 5},
         "Engine 000: Avg prompt throughput: 11.4 tokens/s, Avg generation throughput: 73.7 "
         "tokens/s, Running: 1 reqs, Waiting: 3 reqs, GPU KV cache usage: 0.5%, Prefix cache hit "
         "rate: 25.0%",
         ""},
        {STATS_VLLM,
         {.n_prompt_tokens = 100,
          .n_generated_tokens = 1001,
          .n_replicas_ready = 3,
          .n_draft_steps = 15,
          .n_drafted = 60,
          .n_accepted = 22},
         "3 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
         "0.1 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache "
         "hit rate: 25.0%",
         "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 1.50 tokens/s, "
         "Drafted throughput: 4.00 tokens/s, Accepted: 15 tokens, Drafted: 40 tokens, Avg Draft "
         "acceptance rate: 37.5%"},
        {STATS_VLLM0,
         {.n_prompt_tokens = 214,
          .n_generated_tokens = 1737,
          .running = 1,
          .n_draft_steps = 15,
          .n_replicas_ready = 1},
         "Avg prompt throughput: 11.4 tokens/s, Avg generation throughput: 73.7 tokens/s, Running: "
         "1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.0%, CPU KV cache usage: "
         "0.0%.",
         ""},
        {STATS_VLLM,
         {.n_prompt_tokens = 100, .n_generated_tokens = 1000, .n_draft_steps = 5},
         "",
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stats_line l = {.format = cases[i].format, .last = before, .hit_rate = 0.25};
        struct strbuf b;
        strbuf_init(&b, 0);
        stats_line_text(&l, &cases[i].now, 10 * NS_PER_S, &b);
        assert_string_equal(b.ptr ? b.ptr : "", cases[i].want);
        strbuf_reset(&b);
        stats_line_speculation(&l, &cases[i].now, 10 * NS_PER_S, &b);
        assert_string_equal(b.ptr ? b.ptr : "", cases[i].want_speculation);
        strbuf_fini(&b);
    }
}

static void when_it_is_due(void **state)
{
    static const struct {
        enum stats_format format;
        double interval_s;
        uint64_t want_s; /* seconds between two lines; 0 = never */
    } cases[] = {
        {STATS_VLLM, -1, 10}, {STATS_VLLM0, -1, 5}, {STATS_VLLM0, 2, 2}, {STATS_VLLM, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stats_line l;
        uint64_t begin = 77 * NS_PER_S, want = cases[i].want_s * NS_PER_S;
        stats_line_init(&l, cases[i].format, cases[i].interval_s, begin);
        assert_int_equal(stats_line_is_due(&l, begin + want), want > 0);
        assert_false(want > 0 && stats_line_is_due(&l, begin + want - 1));
        assert_int_equal(stats_line_is_due(&l, begin + 1000 * NS_PER_S), want > 0);
        stats_line_log(&l, &before, begin + want);
        assert_int_equal(l.last.n_generated_tokens, 1000);
        assert_true(l.hit_rate > 0.19 && l.hit_rate < 0.21);
        assert_false(stats_line_is_due(&l, begin + want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_words),
                                       cmocka_unit_test(when_it_is_due)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
