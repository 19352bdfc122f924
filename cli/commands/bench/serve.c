/* Implements `cox bench serve`, like `vllm bench serve` and benchmark_serving.py. It sends a
 * load of streamed requests to a running server.
 * Options become a `struct serve`: target, arrivals and limits. cli/bench/dataset.h makes the
 * prompts, and cli/bench/load.h sends them. cli/bench/report/ computes and prints the figures,
 * and `save` writes the JSON.
 * Invariants: everything that can fail before the load (options, result folder, plot's name) is
 * checked before the load starts. `struct serve` owns all memory of the run. The command runs in
 * one thread. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/bench/arrivals.h"
#include "cli/bench/interrupt.h"
#include "cli/bench/load.h"
#include "cli/bench/prepare.h"
#include "cli/bench/progress.h"
#include "cli/bench/report/metrics.h"
#include "cli/bench/report/plot.h"
#include "cli/bench/report/report.h"
#include "cli/commands/bench/serve_flags.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

#define BACKENDS "vllm|openai|openai-chat|vllm-chat|sglang|sglang-oai|lmdeploy|scalellm"
enum backend { BACKEND_OPENAI_CHAT = 2, BACKEND_VLLM_CHAT = 3 };
enum { USUAL_READY_S = 600, ID_PREFIX_MAX = 200 };

struct serve_options {
    struct bench_access access;
    struct bench_dataset_options dataset;
    int backend, ramp;
    const char *endpoint, *request_rate, *burstiness;
    struct option_list headers, metadata, goodput;
    int64_t max_concurrency, warmups;
    double ready_s, ramp_from, ramp_to;
    const char *percentile_metrics, *metric_percentiles, *plot;
    bool histogram;
    bool save_result, save_detailed, append_result, ignore_eos;
    const char *result_dir, *result_filename, *label, *extra_body;
    double temperature, top_p, min_p, frequency_penalty, presence_penalty, repetition_penalty;
    int64_t top_k, logprobs;
    const char *request_id_prefix;
    struct option_list lora_modules;
    int lora_assignment; /* order of the adapters: 0 = random, 1 = round-robin */
};

#define S serve_options
const struct option_spec bench_serve_specs[] = {
    {.name = "backend",
     .aliases = "endpoint-type",
     .type = OPTION_ENUM,
     .offset = offsetof(struct S, backend),
     .choices = BACKENDS,
     .def = "openai",
     .help = "API of the server. Every value means OpenAI's API; values with -chat use "
             "/v1/chat/completions."},
    BENCH_TEXT(S, access.model, "model", NULL,
               "Name of the model at the server. Default: the first model that the server has."),
    OPT_STRING(S, access.served_model_name, "served-model-name", NULL,
               "Name of the model at the server, if --model is a path."),
    BENCH_ACCESS_ROWS(S, access),
    OPT_STRING(S, endpoint, "endpoint", NULL,
               "Path of the API. Default: /v1/completions, or the path of --backend."),
    OPT_WORDS(S, headers, "header", WORDS_ARE_VALUES,
              "Header of every request, as NAME=VALUE. Repeat the option for several headers."),
    OPT_STRING(S, request_rate, "request-rate", "inf",
               "Requests per second. Each request is sent at its time, whether or not earlier ones "
               "have ended. inf = all at once."),
    OPT_STRING(S, burstiness, "burstiness", "1.0",
               "Burstiness of the arrivals. 1 is a Poisson process. Lower values give bursts "
               "(gamma distribution), higher values more even intervals, and inf equal intervals."),
    OPT_INT(
        S, max_concurrency, "max-concurrency", 0, 1 << 20, "0",
        "Maximum number of open requests; further ones wait before they are sent. 0 = no limit."),
    OPT_ENUM(S, ramp, "ramp-up-strategy", "none|linear|exponential", "none",
             "Change of the rate from --ramp-up-start-rps to --ramp-up-end-rps."),
    OPT_FLOAT(S, ramp_from, "ramp-up-start-rps", 0, 1e6, "0",
              "Requests per second at the start of the ramp."),
    OPT_FLOAT(S, ramp_to, "ramp-up-end-rps", 0, 1e6, "0",
              "Requests per second at the end of the ramp."),
    BENCH_DATASET_ROWS(S, "1000"),
    OPT_INT(S, warmups, "num-warmups", 0, 1 << 20, "0",
            "Number of requests before the measurement."),
    OPT_FLOAT(S, ready_s, "ready-check-timeout-sec", -1, 86400, "-1",
              "Seconds to wait for the server to answer. 0 = send no request before the load. -1 = "
              "600 seconds, but fail at once if the server's port on this machine is closed."),
    OPT_WORDS(S, goodput, "goodput", WORDS_ARE_VALUES,
              "Targets in milliseconds, as ttft:MS tpot:MS e2el:MS. The result counts the requests "
              "that meet all of them."),
    OPT_STRING(S, percentile_metrics, "percentile-metrics", "ttft,tpot,itl",
               "Metrics to print: ttft, tpot, itl, e2el."),
    OPT_STRING(S, metric_percentiles, "metric-percentiles", "99",
               "Percentiles to print, for example 50,90,99.9."),
    OPT_STRING(S, plot, "plot", NULL, "SVG file with histograms of the printed metrics."),
    OPT_BOOL(S, histogram, "histogram", NULL,
             "Print histograms of the printed metrics as text below the table."),
    OPT_BOOL(S, save_result, "save-result", NULL, "Write the results to a JSON file."),
    OPT_BOOL(S, save_detailed, "save-detailed", NULL, "Write the results of each request too."),
    OPT_BOOL(S, append_result, "append-result", NULL,
             "Append the results to the file as one more line."),
    OPT_STRING(S, result_dir, "result-dir", NULL,
               "Folder of the result file. It is created if it is missing."),
    OPT_STRING(S, result_filename, "result-filename", NULL,
               "Name of the result file. Default: BACKEND-RATEqps-MODEL-DATE.json."),
    OPT_STRING(S, label, "label", NULL,
               "Label that replaces BACKEND in the result and its file name."),
    OPT_WORDS(
        S, metadata, "metadata", WORDS_ARE_VALUES,
        "Value to store with the results, as NAME=VALUE. Repeat the option for several values."),
    OPT_BOOL(S, dataset.quiet, "disable-tqdm", NULL, "Show no progress bar."),
    OPT_BOOL(S, ignore_eos, "ignore-eos", NULL,
             "Generate all tokens of each answer, even after an end token."),
    OPT_FLOAT(S, temperature, "temperature", 0, 10, "0", "Sampling temperature."),
    OPT_FLOAT(S, top_p, "top-p", 0, 1, "1", "Probability mass of the tokens to sample from."),
    OPT_INT(S, top_k, "top-k", -1, 1 << 30, "0",
            "Number of most probable tokens to sample from. 0 = the server's default."),
    OPT_FLOAT(S, min_p, "min-p", 0, 1, "0",
              "Minimum probability of a token, relative to the most probable one."),
    OPT_FLOAT(S, frequency_penalty, "frequency-penalty", -2, 2, "0",
              "Penalty for tokens by how often they occurred in the answer."),
    OPT_FLOAT(S, presence_penalty, "presence-penalty", -2, 2, "0",
              "Penalty for tokens that occurred in the answer."),
    OPT_FLOAT(S, repetition_penalty, "repetition-penalty", 0, 10, "1",
              "Factor against tokens that occurred in the prompt or the answer."),
    OPT_INT(S, logprobs, "logprobs", -1, 1000, "-1",
            "Number of log-probabilities to ask for per token. -1 = none."),
    {.name = "extra-body",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, extra_body),
     .help = "JSON object with further members of every request.",
     .json = true},
    OPT_STRING(S, request_id_prefix, "request-id-prefix", NULL,
               "Prefix of the X-Request-Id header of each request; the request's number follows "
               "it. Default: no header."),
    OPT_WORDS(S, lora_modules, "lora-modules", WORDS_ARE_VALUES,
              "Names of adapters at the server. Each request uses one of them."),
    OPT_ENUM(
        S, lora_assignment, "lora-assignment", "random|round-robin", "random",
        "Choice of the adapter of each request. random: chosen with --seed. round-robin: in turn."),
    OPT_BOOL(S, access.gateway.insecure, "insecure", NULL,
             "Accept any certificate, for example a self-signed one, for https."),
    BENCH_SERVE_FOREIGN,
};
#undef S
const size_t bench_serve_n_specs = sizeof bench_serve_specs / sizeof bench_serve_specs[0];

/* `serve` holds the state of one run. */
struct serve {
    const struct serve_options *o;
    struct bench_target target;
    struct bench_arrivals arrivals;
    struct bench_prompts prompts;
    struct bench_goodput goodput;
    struct bench_report report;
    char **owned_headers; /* [o->headers.n_items] headers of the form "Name: value" */
    char backend[64]; /* label in the report: the value of --label, or else the backend's name */
};

/* ---- options ---- */

static enum status read_rate(const char *flag, const char *text, double *out, struct error *err)
{
    if (strcmp(text, "inf") == 0) {
        *out = (double)INFINITY;
        return STATUS_OK;
    }
    if (str_to_f64(str_from(text), out) != STATUS_OK || *out <= 0)
        return error_set(err, STATUS_INVALID, "%s %s is invalid: give a number above 0, or inf",
                         flag, text);
    return STATUS_OK;
}

static enum status read_arrivals(struct serve *v, struct error *err)
{
    const struct serve_options *o = v->o;
    struct bench_arrivals *a = &v->arrivals;
    TRY(read_rate("--request-rate", o->request_rate, &a->per_s, err));
    TRY(read_rate("--burstiness", o->burstiness, &a->burstiness, err));
    a->ramp = o->ramp;
    a->ramp_from = o->ramp_from;
    a->ramp_to = o->ramp_to;
    if (a->ramp != BENCH_RAMP_NONE && isfinite(a->per_s))
        return error_set(
            err, STATUS_INVALID,
            "--ramp-up-strategy and --request-rate exclude each other: remove --request-rate");
    if (a->ramp != BENCH_RAMP_NONE && (a->ramp_to <= 0 || a->ramp_from <= 0))
        return error_set(
            err, STATUS_INVALID,
            "--ramp-up-strategy requires --ramp-up-start-rps and --ramp-up-end-rps, both above 0");
    return STATUS_OK;
}

/* Converts each header option "Name=value" to "Name: value". */
static enum status read_headers(struct serve *v, struct error *err)
{
    const struct option_list *l = &v->o->headers;
    v->owned_headers = mem_array(l->n_items + 1, sizeof *v->owned_headers);
    for (size_t i = 0; i < l->n_items; i++) {
        const char *eq = strchr(l->items[i], '=');
        if (!eq || eq == l->items[i])
            return error_set(err, STATUS_INVALID, "--header %s is invalid: give it as NAME=VALUE",
                             l->items[i]);
        size_t n = strlen(l->items[i]) + 2;
        v->owned_headers[i] = mem_alloc(n);
        snprintf(v->owned_headers[i], n, "%.*s: %s", (int)(eq - l->items[i]), l->items[i], eq + 1);
    }
    return STATUS_OK;
}

static enum status check_metadata(const struct option_list *l, struct error *err)
{
    for (size_t i = 0; i < l->n_items; i++)
        if (!strchr(l->items[i], '='))
            return error_set(err, STATUS_INVALID, "--metadata %s is invalid: give it as NAME=VALUE",
                             l->items[i]);
    return STATUS_OK;
}

/* Checks that the plot's file name ends in .svg. The picture is always SVG, and programs would
 * not open it under another suffix. */
static enum status check_plot(const char *path, struct error *err)
{
    size_t n = path ? strlen(path) : 0;
    if (!path || (n >= 4 && strcmp(path + n - 4, ".svg") == 0))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "--plot %s: the plot is an SVG file. Give a name that ends in .svg; "
                     "rsvg-convert can convert it to PNG",
                     path);
}

static enum status read_options(struct serve *v, struct error *err)
{
    const struct serve_options *o = v->o;
    TRY(read_arrivals(v, err));
    TRY(bench_metrics_parse(o->percentile_metrics, &v->report.shown, err));
    TRY(bench_percentiles_parse(o->metric_percentiles, v->report.percentiles,
                                &v->report.n_percentiles, err));
    for (size_t i = 0; i < o->goodput.n_items; i++)
        TRY(bench_goodput_parse(&v->goodput, o->goodput.items[i], err));
    TRY(check_metadata(&o->metadata, err));
    TRY(check_plot(o->plot, err));
    if (o->request_id_prefix && strlen(o->request_id_prefix) > ID_PREFIX_MAX)
        return error_set(err, STATUS_INVALID,
                         "--request-id-prefix is too long: at most %d bytes are allowed",
                         ID_PREFIX_MAX);
    struct str backend = {BACKENDS, 0};
    for (int i = 0; i <= o->backend; i++) {
        backend.ptr += backend.len + (i > 0);
        backend.len = strcspn(backend.ptr, "|");
    }
    snprintf(v->backend, sizeof v->backend, "%.*s", (int)backend.len, backend.ptr);
    v->report.has_goodput = v->goodput.is_given;
    v->report.request_per_s = v->arrivals.per_s;
    v->report.max_concurrency = (uint32_t)o->max_concurrency;
    return read_headers(v, err);
}

static void set_number(json_t *fields, const char *key, double v, double usual)
{
    if (v != usual)
        json_object_set_new(fields, key, json_real(v));
}

static enum status set_fields(struct serve *v, struct error *err)
{
    const struct serve_options *o = v->o;
    json_t *f = v->target.fields;
    json_object_set_new(f, "temperature", json_real(o->temperature));
    set_number(f, "top_p", o->top_p, 1);
    set_number(f, "min_p", o->min_p, 0);
    set_number(f, "frequency_penalty", o->frequency_penalty, 0);
    set_number(f, "presence_penalty", o->presence_penalty, 0);
    set_number(f, "repetition_penalty", o->repetition_penalty, 1);
    if (o->top_k != 0)
        json_object_set_new(f, "top_k", json_integer(o->top_k));
    if (o->logprobs >= 0)
        json_object_set_new(f, v->target.is_chat ? "top_logprobs" : "logprobs",
                            json_integer(o->logprobs));
    if (o->logprobs >= 0 && v->target.is_chat)
        json_object_set_new(f, "logprobs", json_true());
    if (o->ignore_eos)
        json_object_set_new(f, "ignore_eos", json_true());
    json_error_t why;
    json_t *extra = o->extra_body ? json_loads(o->extra_body, 0, &why) : json_object();
    if (!json_is_object(extra)) {
        json_decref(extra);
        return error_set(err, STATUS_INVALID,
                         "--extra-body is not a JSON object: give for example '{\"top_k\": 5}'");
    }
    json_object_update(f, extra);
    json_decref(extra);
    return STATUS_OK;
}

/* ---- the result file ---- */

static const char *model_word(const char *model)
{
    const char *slash = strrchr(model, '/');
    return slash && slash[1] ? slash + 1 : model;
}

static void date_now(char *out, size_t size)
{
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    struct tm tm;
    (void)localtime_r(&now, &tm);
    (void)strftime(out, size, "%Y%m%d-%H%M%S", &tm);
}

/* Makes and checks the result folder before the load. Otherwise a folder without write
 * permission could lose the results of a long run. */
static enum status check_folder(const struct serve_options *o, struct error *err)
{
    const char *dir = o->result_dir ? o->result_dir : ".";
    if (!o->save_result && !o->append_result)
        return STATUS_OK;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot use --result-dir %s: %s", dir, strerror(errno));
    if (access(dir, W_OK) != 0)
        return error_set(err, STATUS_IO, "cannot use --result-dir %s: %s", dir, strerror(errno));
    return STATUS_OK;
}

static void file_name(const struct serve *v, const char *date, char *out, size_t size)
{
    const struct serve_options *o = v->o;
    char rate[40], bound[40] = "";
    bench_float_text(rate, sizeof rate, v->arrivals.per_s);
    if (o->max_concurrency > 0)
        snprintf(bound, sizeof bound, "-concurrency%lld", (long long)o->max_concurrency);
    const char *dir = o->result_dir ? o->result_dir : "";
    const char *sep = dir[0] ? "/" : "";
    if (o->result_filename)
        snprintf(out, size, "%s%s%s", dir, sep, o->result_filename);
    else
        snprintf(out, size, "%s%s%s-%sqps%s-%s-%s.json", dir, sep, o->label ? o->label : v->backend,
                 rate, bound, model_word(v->target.model), date);
}

static void set_rate(json_t *j, const char *key, double v)
{
    json_object_set_new(j, key, isfinite(v) ? json_real(v) : json_string("inf"));
}

/* Makes the JSON: the configuration with vLLM's keys in vLLM's order, then the figures. */
static json_t *make_json(const struct serve *v, const struct bench_result *results,
                         const char *date)
{
    const struct serve_options *o = v->o;
    const char *tokenizer = o->access.tokenizer ? o->access.tokenizer : v->target.model;
    json_t *j = json_object();
    json_object_set_new(j, "date", json_string(date));
    json_object_set_new(j, "endpoint_type", json_string(v->backend));
    json_object_set_new(j, "backend", json_string(v->backend));
    json_object_set_new(j, "label", o->label ? json_string(o->label) : json_null());
    json_object_set_new(j, "model_id", json_string(v->target.model));
    json_object_set_new(j, "tokenizer_id", json_string(tokenizer));
    json_object_set_new(j, "num_prompts", json_integer(v->prompts.n));
    for (size_t i = 0; i < o->metadata.n_items; i++) {
        const char *eq = strchr(o->metadata.items[i], '=');
        json_object_setn_new(j, o->metadata.items[i], (size_t)(eq - o->metadata.items[i]),
                             json_string(eq + 1));
    }
    set_rate(j, "request_rate", v->arrivals.per_s);
    set_rate(j, "burstiness", v->arrivals.burstiness);
    json_object_set_new(j, "max_concurrency",
                        o->max_concurrency ? json_integer(o->max_concurrency) : json_null());
    json_t *figures =
        bench_report_json(&v->report, o->save_detailed ? results : NULL, v->prompts.n);
    json_object_update(j, figures);
    json_decref(figures);
    return j;
}

static enum status save(const struct serve *v, const struct bench_result *results,
                        struct error *err)
{
    char date[40], path[4096];
    if (!v->o->save_result && !v->o->append_result)
        return STATUS_OK;
    date_now(date, sizeof date);
    file_name(v, date, path, sizeof path);
    json_t *j = make_json(v, results, date);
    enum status s = bench_report_write(j, path, v->o->append_result, err);
    json_decref(j);
    if (s == STATUS_OK)
        fprintf(stderr, "cox bench serve: results written to %s\n", path);
    return s;
}

/* ---- histograms ---- */

static enum status draw(const struct serve *v, struct error *err)
{
    char title[800], rate[40];
    struct winsize w = {.ws_col = 80};
    if (v->o->histogram) {
        (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
        bench_plot_text(v->report.m, v->report.shown, w.ws_col > 0 ? w.ws_col : 80, stdout);
        fflush(stdout);
    }
    if (!v->o->plot)
        return STATUS_OK;
    snprintf(title, sizeof title, "%s, %s requests/s asked for", v->target.model,
             bench_float_text(rate, sizeof rate, v->arrivals.per_s));
    return bench_plot_write(v->report.m, v->report.shown, title, v->o->plot, err);
}

/* ---- the run ---- */

static void say_plan(const struct serve *v)
{
    char text[40];
    const char *kind = v->arrivals.burstiness == 1 ? "Poisson process" : "Gamma distribution";
    printf("Starting main benchmark run...\n");
    if (v->arrivals.ramp == BENCH_RAMP_NONE)
        printf("Traffic request rate: %s\n",
               bench_float_text(text, sizeof text, v->arrivals.per_s));
    else
        printf("Traffic ramp-up strategy: %s.\nWill increase RPS from %g to %g RPS over the "
               "duration of the benchmark.\n",
               v->arrivals.ramp == BENCH_RAMP_LINEAR ? "linear" : "exponential",
               v->arrivals.ramp_from, v->arrivals.ramp_to);
    printf("Burstiness factor: %s (%s)\n",
           bench_float_text(text, sizeof text, v->arrivals.burstiness), kind);
    if (v->o->max_concurrency > 0)
        printf("Maximum request concurrency: %lld\n", (long long)v->o->max_concurrency);
    else
        printf("Maximum request concurrency: None\n");
    fflush(stdout);
}

static enum status warm_up(const struct serve *v, struct error *err)
{
    struct bench_load l = {.target = &v->target, .prompts = &v->prompts};
    if (v->o->ready_s != 0) {
        printf("Starting initial single prompt test run...\n");
        fflush(stdout);
        TRY(bench_load_probe(&l, v->o->ready_s > 0 ? v->o->ready_s : USUAL_READY_S, err));
        printf("Initial test run completed.\n");
    } else {
        printf("Skipping endpoint ready check.\n");
    }
    if (v->o->warmups == 0)
        return STATUS_OK;
    printf("Warming up with %lld requests...\n", (long long)v->o->warmups);
    fflush(stdout);
    uint32_t n = (uint32_t)v->o->warmups;
    struct bench_prompts prompts = {.items = mem_array(n, sizeof *prompts.items), .n = n};
    struct bench_result *results = mem_array(n, sizeof *results);
    double seconds = 0;
    for (uint32_t i = 0; i < n; i++)
        prompts.items[i] = v->prompts.items[i % v->prompts.n];
    l.prompts = &prompts;
    l.max_concurrency = (uint32_t)v->o->max_concurrency;
    enum status s = bench_load_run(&l, results, &seconds, err);
    bench_results_fini(results, n);
    mem_free(results);
    mem_free(prompts.items);
    if (s == STATUS_OK)
        printf("Warmup run completed.\n");
    return s;
}

static enum status measure(struct serve *v, struct bench_result *results, struct error *err)
{
    const uint32_t n = v->prompts.n;
    struct bench_metrics m;
    struct bench_progress progress;
    struct rng rng = {(uint64_t)v->o->dataset.seed + 1};
    double *at = mem_array(n, sizeof *at), seconds = 0;
    bench_arrivals_draw(&v->arrivals, &rng, n, at);
    bench_progress_start(&progress, v->o->dataset.quiet, "requests", n);
    const struct bench_load l = {.target = &v->target,
                                 .prompts = &v->prompts,
                                 .arrivals_s = at,
                                 .max_concurrency = (uint32_t)v->o->max_concurrency,
                                 .keep_text = v->o->save_detailed,
                                 .progress = &progress};
    enum status s = bench_load_run(&l, results, &seconds, err);
    bench_progress_end(&progress);
    bench_metrics_compute(&m, results, n, seconds, &v->goodput);
    v->report.m = &m;
    bench_report_print(&v->report, stdout);
    fflush(stdout);
    bench_report_failures(v->target.owner, results, n);
    struct error not_saved = {0};
    enum status saved = save(v, results, &not_saved);
    if (saved == STATUS_OK)
        saved = draw(v, &not_saved);
    if (s == STATUS_OK && saved != STATUS_OK) {
        s = saved;
        *err = not_saved;
    } else if (s == STATUS_OK && m.n_failed > 0) {
        s = error_set(err, STATUS_IO,
                      "%u of %u requests failed; the results describe only the others", m.n_failed,
                      n);
    }
    bench_metrics_fini(&m);
    mem_free(at);
    return s;
}

/* Chooses the adapter of each request. */
static void share_adapters(struct serve *v)
{
    const struct option_list *l = &v->o->lora_modules;
    struct rng rng = {(uint64_t)v->o->dataset.seed + 2};
    for (uint32_t i = 0; l->n_items > 0 && i < v->prompts.n; i++)
        v->prompts.items[i].model =
            l->items[v->o->lora_assignment == 1 ? i % l->n_items : rng_below(&rng, l->n_items)];
}

static enum status run(struct serve *v, struct error *err)
{
    const struct serve_options *o = v->o;
    bool is_chat = o->backend == BACKEND_OPENAI_CHAT || o->backend == BACKEND_VLLM_CHAT;
    TRY(read_options(v, err));
    TRY(check_folder(o, err));
    TRY(bench_dataset_check(&o->dataset, err));
    bench_catch_signals();
    TRY(bench_connect(&v->target, &o->access, o->endpoint, is_chat,
                      o->ready_s < 0 ? -USUAL_READY_S : o->ready_s, "bench serve", err));
    v->target.request_id_prefix = o->request_id_prefix;
    v->target.headers = (const char *const *)v->owned_headers;
    v->target.n_headers = o->headers.n_items;
    TRY(set_fields(v, err));
    TRY(bench_prepare(&v->prompts, &v->target, &o->access, &o->dataset, err));
    share_adapters(v);
    TRY(warm_up(v, err));
    say_plan(v);
    struct bench_result *results = mem_array(v->prompts.n, sizeof *results);
    enum status s = measure(v, results, err);
    bench_results_fini(results, v->prompts.n);
    mem_free(results);
    return s;
}

int cmd_bench_serve(int argc, char **argv)
{
    struct serve_options o = {0};
    struct config_result res;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox bench serve [OPTION...]",
                                      .specs = bench_serve_specs,
                                      .n_specs = bench_serve_n_specs,
                                      .groups = bench_option_groups};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        struct serve v = {.o = &o};
        enum status s = run(&v, &err);
        code = s == STATUS_OK ? EXIT_FINE : bench_fail(argv[0], s, &err);
        for (size_t i = 0; v.owned_headers && i < o.headers.n_items; i++)
            mem_free(v.owned_headers[i]);
        mem_free(v.owned_headers);
        bench_prompts_fini(&v.prompts);
        bench_target_close(&v.target);
    }
    config_fini(&res);
    return code;
}
