/* Measures the cost of a sampled token beyond its logits. It runs sampler_choose on one row of a
 * vocabulary and prints this thread's time, the median of rounds with different seeds. The
 * logits are made up: a bell curve of standard deviation 3, and three logits far above it. Such
 * a row is like that of a model with high confidence.
 * Usage: bench_sampler [VOCABULARY [ROUNDS]] */
#include <math.h>
#include <time.h>

#include "bench/count.h"
#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "common/base/random.h"
#include "worker/sampling/sampler.h"
#include "worker/sampling/sweep.h"

enum { MAX_ROUNDS = 999, LEAST_VOCAB = 4096, MOST_VOCAB = 1 << 24 };

static const struct {
    const char *name;
    float temperature, top_p, min_p;
    int32_t top_k;
} ways[] = {
    {"greedy", 0, 1, 0, 0},
    {"temperature 1", 1, 1, 0, 0},
    {"temperature 0.7, top_k 40", 0.7f, 1, 0, 40},
    {"temperature 0.6, top_p 0.9", 0.6f, 0.9f, 0, 0},
    {"temperature 1, top_p 0.95, top_k 64", 1, 0.95f, 0, 64},
    {"temperature 1, min_p 0.05", 1, 1, 0.05f, 0},
};

static float *logits_new(uint32_t n, struct sampler_row *row)
{
    float *logits = mem_array(n, sizeof *logits);
    struct rng rng = {5};
    for (uint32_t i = 0; i < n; i++) { /* the sum of twelve uniform numbers is nearly normal */
        double sum = 0;
        for (int k = 0; k < 12; k++)
            sum += (double)(rng_next(&rng) >> 40) * 0x1p-24;
        logits[i] = (float)(3 * (sum - 6));
    }
    row->best_id = n / 3;
    row->best = logits[n / 3] = 22;
    row->second = logits[n / 2] = 21;
    logits[n / 7] = 20.5f;
    row->logits = logits;
    return logits;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? count_argument(argv, 1, "vocabulary", LEAST_VOCAB, MOST_VOCAB) : 262144;
    uint32_t n_rounds = argc > 2 ? count_argument(argv, 2, "rounds", 1, MAX_ROUNDS) : 99;
    static const uint32_t ids[] = {1, 2, 3, 4};
    struct sampler *s = sampler_new(n);
    struct sampler_row row = {.ids = ids, .n_ids = 4, .n_prompt = 4};
    struct arena arena;
    if (!s)
        return 1;
    float *logits = logits_new(n, &row);
    arena_init(&arena, 0);
    sweep_limit(SWEEP_AVX512);
    printf("a vocabulary of %-22u us a row\n", n);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        double us[MAX_ROUNDS];
        for (uint32_t i = 0; i < n_rounds; i++) {
            const struct sampling_params p = {.temperature = ways[w].temperature,
                                              .top_p = ways[w].top_p,
                                              .min_p = ways[w].min_p,
                                              .top_k = ways[w].top_k,
                                              .repetition_penalty = 1,
                                              .n_logprobs = -1,
                                              .n_prompt_logprobs = -1,
                                              .seed = i};
            struct sampler_choice choice;
            struct error err;
            double start = now_us();
            row.params = &p;
            if (sampler_choose(s, &row, &arena, &choice, NULL, &err) != STATUS_OK)
                return 1;
            us[i] = now_us() - start;
        }
        qsort(us, n_rounds, sizeof *us, order_doubles);
        printf("%-38s %8.0f\n", ways[w].name, us[n_rounds / 2]);
    }
    arena_fini(&arena);
    sampler_free(s);
    mem_free(logits);
    return 0;
}
