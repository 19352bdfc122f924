/* Implements `cox bench throughput`, like `vllm bench throughput` and benchmark_throughput.py.
 * It sends all prompts at once and measures the time to the last answer. */
#include "cli/base/command_line.h"
#include "cli/bench/engine.h"
#include "cli/bench/load.h"
#include "cli/bench/progress.h"
#include "cli/bench/report/metrics.h"
#include "cli/bench/report/report.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "common/base/mem.h"

enum { BACKEND_VLLM_CHAT = 1 };

struct throughput_options {
    struct bench_engine_options engine;
    struct bench_dataset_options dataset;
    int backend;
    int64_t n, max_concurrency;
    double temperature;
    const char *output_json;
};

#define S throughput_options
const struct option_spec bench_throughput_specs[] = {
    OPT_ENUM(S, backend, "backend", "vllm|vllm-chat", "vllm",
             "API of the requests. vllm: completions. vllm-chat: chats. Both use a cluster that "
             "the benchmark starts, or the server at --base-url."),
    BENCH_ENGINE_ROWS(S),
    BENCH_ACCESS_ROWS(S, engine.access),
    BENCH_DATASET_ROWS(S, "1000"),
    OPT_INT(S, n, "n", 1, 128, "1", "Number of answers per prompt."),
    OPT_INT(S, max_concurrency, "max-concurrency", 1, 1 << 20, "512",
            "Maximum number of open requests. Use more than the server runs at the same time, so "
            "that its queue is never empty."),
    OPT_FLOAT(S, temperature, "temperature", 0, 10, "1", "Sampling temperature."),
    OPT_STRING(S, output_json, "output-json", NULL, "File to write the results to."),
    OPT_BOOL(S, dataset.quiet, "disable-tqdm", NULL, "Show no progress bar."),
    BENCH_OFFLINE_IGNORED,
};
#undef S
const size_t bench_throughput_n_specs =
    sizeof bench_throughput_specs / sizeof bench_throughput_specs[0];

static enum status tell(const struct throughput_options *o, const struct bench_metrics *m,
                        struct error *err)
{
    printf("Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n",
           m->requests_per_s, m->total_per_s, m->output_per_s);
    printf("Total num prompt tokens:  %llu\n", (unsigned long long)m->n_input_tokens);
    printf("Total num output tokens:  %llu\n", (unsigned long long)m->n_output_tokens);
    fflush(stdout);
    if (!o->output_json)
        return STATUS_OK;
    uint64_t n_tokens = m->n_input_tokens + m->n_output_tokens;
    json_t *j =
        json_pack("{s:f, s:i, s:I, s:f, s:f}", "elapsed_time", m->duration_s, "num_requests",
                  (int)m->n_completed, "total_num_tokens", (json_int_t)n_tokens,
                  "requests_per_second", m->requests_per_s, "tokens_per_second", m->total_per_s);
    enum status s = bench_report_write(j, o->output_json, false, err);
    json_decref(j);
    return s;
}

static enum status measure(const void *options, const struct bench_target *target,
                           const struct bench_prompts *prompts, struct error *err)
{
    const struct throughput_options *o = options;
    const uint32_t n = prompts->n;
    const struct bench_goodput none = {0};
    struct bench_metrics m;
    struct bench_progress progress;
    struct bench_result *results = mem_array(n, sizeof *results);
    double seconds = 0;
    bench_progress_start(&progress, o->dataset.quiet, "prompts", n);
    const struct bench_load l = {.target = target,
                                 .prompts = prompts,
                                 .max_concurrency = (uint32_t)o->max_concurrency,
                                 .progress = &progress};
    enum status s = bench_load_run(&l, results, &seconds, err);
    bench_progress_end(&progress);
    bench_metrics_compute(&m, results, n, seconds, &none);
    bench_report_failures(target->owner, results, n);
    if (s == STATUS_OK && m.n_failed > 0)
        s = error_set(err, STATUS_IO, "%u of %u requests failed, so the throughput is not reported",
                      m.n_failed, n);
    if (s == STATUS_OK)
        s = tell(o, &m, err);
    bench_metrics_fini(&m);
    bench_results_fini(results, n);
    mem_free(results);
    return s;
}

static enum status prepare(const void *options, const struct bench_target *target,
                           struct bench_prompts *prompts, struct error *err)
{
    const struct throughput_options *o = options;
    return bench_prepare(prompts, target, &o->engine.access, &o->dataset, err);
}

static enum status run(void *options, const struct option_list *words, struct error *err)
{
    struct throughput_options *o = options;
    const struct bench_offline b = {.owner = "bench throughput",
                                    .is_chat = o->backend == BACKEND_VLLM_CHAT,
                                    .n = o->n,
                                    .temperature = o->temperature,
                                    .options = o,
                                    .prepare = prepare,
                                    .measure = measure};
    TRY(bench_dataset_check(&o->dataset, err));
    return bench_offline_run(&b, &o->engine, words, err);
}

int cmd_bench_throughput(int argc, char **argv)
{
    struct throughput_options o = {0};
    const struct command_line line = {
        .usage = "cox bench throughput --model MODEL [OPTION...] [-- OPTION-OF-COX-UP...]",
        .specs = bench_throughput_specs,
        .n_specs = bench_throughput_n_specs,
        .groups = bench_option_groups};
    return bench_offline_command(argc, argv, line, &o, run);
}
