/* Implements `cox bench latency`, like `vllm bench latency` and benchmark_latency.py. It sends
 * one batch after another and measures how long each batch takes. Each batch has its own
 * prompts, so that no prompt hits the prefix cache. */
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/bench/engine.h"
#include "cli/bench/load.h"
#include "cli/bench/progress.h"
#include "cli/bench/report/metrics.h"
#include "cli/bench/report/report.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "common/base/mem.h"

struct latency_options {
    struct bench_engine_options engine;
    int64_t input_len, output_len, batch_size, n, n_warmups, n_iterations, seed;
    double temperature;
    const char *output_json;
    bool disable_tqdm;
};

#define S latency_options
const struct option_spec bench_latency_specs[] = {
    BENCH_ENGINE_ROWS(S),
    BENCH_ACCESS_ROWS(S, engine.access),
    OPT_INT(S, input_len, "input-len", 1, 1 << 24, "32", "Tokens in each prompt."),
    OPT_INT(S, output_len, "output-len", 1, 1 << 24, "128", "Tokens in each answer."),
    OPT_INT(S, batch_size, "batch-size", 1, 65536, "8",
            "Number of requests that are sent at once."),
    OPT_INT(S, n, "n", 1, 128, "1", "Number of answers per prompt."),
    OPT_INT(S, n_warmups, "num-iters-warmup", 0, 1 << 20, "10",
            "Number of batches before the measurement."),
    OPT_INT(S, n_iterations, "num-iters", 1, 1 << 20, "30", "Number of batches that are measured."),
    OPT_INT(S, seed, "seed", 0, 9007199254740992.0, "0", "Seed of the prompts."),
    OPT_FLOAT(S, temperature, "temperature", 0, 10, "1", "Sampling temperature."),
    OPT_STRING(S, output_json, "output-json", NULL, "File to write the results to."),
    OPT_BOOL(S, disable_tqdm, "disable-tqdm", NULL, "Show no progress bar."),
    BENCH_OFFLINE_IGNORED,
};
#undef S
const size_t bench_latency_n_specs = sizeof bench_latency_specs / sizeof bench_latency_specs[0];

/* Prints the mean and vLLM's percentiles of a sorted series in seconds, and adds them to j. */
static void write_latencies(const struct bench_series *seconds, FILE *to, json_t *j)
{
    static const int told[] = {10, 25, 50, 75, 90, 99};
    char text[40], key[8];
    json_t *percentiles = json_object();
    double mean = bench_spread(seconds).mean;
    fprintf(to, "Avg latency: %s seconds\n", bench_float_text(text, sizeof text, mean));
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        double v = bench_percentile(seconds, told[i]);
        fprintf(to, "%d%% percentile latency: %s seconds\n", told[i],
                bench_float_text(text, sizeof text, v));
        snprintf(key, sizeof key, "%d", told[i]);
        json_object_set_new(percentiles, key, json_real(v));
    }
    json_object_set_new(j, "avg_latency", json_real(mean));
    json_object_set_new(j, "percentiles", percentiles);
}

/* Sends one batch and waits for its last answer. */
static enum status run_batch(const struct bench_target *target, const struct bench_prompts *batch,
                             double *seconds, struct error *err)
{
    const struct bench_load l = {.target = target, .prompts = batch};
    struct bench_result *results = mem_array(batch->n, sizeof *results);
    enum status s = bench_load_run(&l, results, seconds, err);
    for (uint32_t i = 0; s == STATUS_OK && i < batch->n; i++)
        if (!results[i].ok)
            s = error_set(err, STATUS_IO, "a request of the measured batch failed: %.400s",
                          results[i].error);
    bench_results_fini(results, batch->n);
    mem_free(results);
    return s;
}

static enum status measure(const void *options, const struct bench_target *target,
                           const struct bench_prompts *prompts, struct error *err)
{
    const struct latency_options *o = options;
    struct bench_series all = {.values = mem_array((size_t)o->n_iterations, sizeof(double))};
    struct bench_progress progress;
    json_t *j = json_object(), *latencies = json_array();
    enum status s = STATUS_OK;
    json_object_set_new(j, "latencies", latencies);
    bench_progress_start(&progress, o->disable_tqdm, "batches",
                         (uint32_t)(o->n_warmups + o->n_iterations));
    for (int64_t i = 0; s == STATUS_OK && i < o->n_warmups + o->n_iterations; i++) {
        struct bench_prompts batch = {prompts->items + i * o->batch_size, (uint32_t)o->batch_size};
        double seconds = 0;
        bench_progress_tick(&progress);
        s = run_batch(target, &batch, &seconds, err);
        bench_progress_add(&progress, s != STATUS_OK);
        if (s != STATUS_OK || i < o->n_warmups)
            continue;
        all.values[all.n++] = seconds;
        json_array_append_new(latencies, json_real(seconds));
    }
    bench_progress_end(&progress);
    if (s == STATUS_OK) {
        bench_series_sort(&all);
        write_latencies(&all, stdout, j);
        fflush(stdout);
        if (o->output_json)
            s = bench_report_write(j, o->output_json, false, err);
    }
    json_decref(j);
    mem_free(all.values);
    return s;
}

static enum status prepare(const void *options, const struct bench_target *target,
                           struct bench_prompts *prompts, struct error *err)
{
    const struct latency_options *o = options;
    const struct bench_dataset_options d = {.kind = BENCH_DATASET_RANDOM,
                                            .n_prompts =
                                                o->batch_size * (o->n_warmups + o->n_iterations),
                                            .seed = o->seed,
                                            .input_len = o->input_len,
                                            .output_len = o->output_len,
                                            .quiet = o->disable_tqdm};
    if (d.n_prompts > 1 << 22)
        return error_set(err, STATUS_INVALID,
                         "--batch-size * (--num-iters-warmup + --num-iters) needs %lld prompts, "
                         "more than the limit of %d. Use lower values",
                         (long long)d.n_prompts, 1 << 22);
    return bench_prepare(prompts, target, &o->engine.access, &d, err);
}

static enum status run(void *options, const struct option_list *words, struct error *err)
{
    static const char *const no_cache[] = {"--no-enable-prefix-caching", NULL};
    struct latency_options *o = options;
    const struct bench_offline b = {.owner = "bench latency",
                                    .extra = no_cache,
                                    .n = o->n,
                                    .temperature = o->temperature,
                                    .options = o,
                                    .prepare = prepare,
                                    .measure = measure};
    return bench_offline_run(&b, &o->engine, words, err);
}

int cmd_bench_latency(int argc, char **argv)
{
    struct latency_options o = {0};
    const struct command_line line = {
        .usage = "cox bench latency --model MODEL [OPTION...] [-- OPTION-OF-COX-UP...]",
        .specs = bench_latency_specs,
        .n_specs = bench_latency_n_specs,
        .groups = bench_option_groups};
    return bench_offline_command(argc, argv, line, &o, run);
}
