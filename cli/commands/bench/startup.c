/* Implements `cox bench startup`, like `vllm bench startup`. Several times, it measures the time
 * from `cox up MODEL` until requests are served. Cold starts first drop the model's files from
 * the page cache. Warm starts do not.
 * `start_often` starts a cluster through cli/bench/engine.h, measures, and ends the cluster.
 * `report` prints the figures or writes JSON.
 * Invariants: at most one cluster runs at a time, and each cluster is ended before the next
 * starts. The command runs in one thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/bench/engine.h"
#include "cli/bench/interrupt.h"
#include "cli/bench/report/metrics.h"
#include "cli/bench/report/report.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/prepare/model_fetch.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/model/gguf/gguf.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"

struct startup_options {
    struct bench_engine_options engine;
    int64_t n_cold, n_warmups, n_warm;
    const char *output_json;
    bool disable_tqdm;
};

#define S startup_options
const struct option_spec bench_startup_specs[] = {
    BENCH_ENGINE_ROWS(S),
    OPT_INT(S, n_cold, "num-iters-cold", 0, 1000, "3",
            "Number of starts with the model's files removed from the page cache."),
    OPT_INT(S, n_warmups, "num-iters-warmup", 0, 1000, "1",
            "Number of unmeasured starts that fill the page cache before the warm starts."),
    OPT_INT(S, n_warm, "num-iters-warm", 0, 1000, "3",
            "Number of starts with the model's files in the page cache."),
    OPT_STRING(S, output_json, "output-json", NULL, "File to write the results to."),
    OPT_BOOL(S, disable_tqdm, "disable-tqdm", NULL, "Show no progress bar."),
    OPT_IGNORED("trust-remote-code", TAKES_NOTHING, "No code of a model is run."),
};
#undef S
const size_t bench_startup_n_specs = sizeof bench_startup_specs / sizeof bench_startup_specs[0];

/* ---- the page cache ---- */

static enum status forget_file(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot open the model file %s: %s", path,
                         strerror(errno));
    /* the page cache can drop only pages that are already written to the disk */
    (void)fdatasync(fd);
    int rc = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return rc == 0 ? STATUS_OK
                   : error_set(err, STATUS_IO, "cannot drop %s from the page cache: %s", path,
                               strerror(rc));
}

static enum status forget_folder(const char *folder, struct error *err)
{
    struct stat st;
    char file[8192];
    DIR *d = opendir(folder);
    if (!d)
        return error_set(err, STATUS_IO, "cannot read the model folder %s: %s", folder,
                         strerror(errno));
    enum status s = STATUS_OK;
    for (struct dirent *e; s == STATUS_OK && (e = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", folder, e->d_name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            s = forget_file(file, err);
    }
    closedir(d);
    return s;
}

/* Drops all parts of a GGUF file from the page cache, but no other files of the folder. The file
 * is closed first, because mapped pages cannot be dropped. */
static enum status forget_gguf(const char *path, struct error *err)
{
    struct gguf *g = NULL;
    TRY(gguf_open(path, &g, err));
    uint32_t n = gguf_n_parts(g);
    char **parts = mem_array(n, sizeof *parts);
    for (uint32_t i = 0; i < n; i++)
        parts[i] = mem_strdup(gguf_path(gguf_part(g, i)));
    gguf_close(g);
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (s == STATUS_OK)
            s = forget_file(parts[i], err);
        mem_free(parts[i]);
    }
    mem_free(parts);
    return s;
}

static enum status forget_model(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return error_set(err, STATUS_IO, "cannot find the model %s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? forget_folder(path, err) : forget_gguf(path, err);
}

/* Finds the model's path. *path is NULL for a model without files. The caller frees it with
 * `mem_free`. */
static enum status find_model(const char *model, char **path, struct error *err)
{
    char cache_dir[4096];
    struct model_info info;
    *path = NULL;
    model_cache_dir(getenv("COX_CACHE"), getenv("HOME"), cache_dir, sizeof cache_dir);
    TRY(model_info_open(model, cache_dir, &info, err));
    if (info.format != MODEL_NULL)
        *path = mem_strdup(info.path);
    model_info_fini(&info);
    return STATUS_OK;
}

/* ---- starts ---- */

static enum status start_once(const struct startup_options *o, const struct option_list *words,
                              double *seconds, struct error *err)
{
    struct batch_cluster cluster;
    /* the options are copied, since each start writes the cluster's socket into them */
    struct bench_engine_options engine = o->engine;
    uint64_t begin_ns = clock_mono_ns();
    enum status s = bench_engine_start(&cluster, &engine, NULL, words, err);
    *seconds = (double)(clock_mono_ns() - begin_ns) / 1e9;
    batch_cluster_end(&cluster);
    return s;
}

/* Starts the cluster n times. With a path, the model's files are dropped from the page cache
 * before each start. */
static enum status start_often(const struct startup_options *o, const struct option_list *words,
                               int64_t n, const char *path, struct bench_series *out,
                               struct error *err)
{
    out->values = mem_array((size_t)n + 1, sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        double seconds = 0;
        if (bench_is_interrupted())
            return error_set(err, STATUS_CLOSED, "the command was interrupted by a signal");
        if (path)
            TRY(forget_model(path, err));
        TRY(start_once(o, words, &seconds, err));
        if (!o->disable_tqdm)
            fprintf(stderr, "cox bench startup: %s start %lld of %lld: %.3f s\n",
                    path ? "cold" : "warm", (long long)i + 1, (long long)n, seconds);
        out->values[out->n++] = seconds;
    }
    return STATUS_OK;
}

/* ---- the report ---- */

static void tell(const char *head, const char *key, const struct bench_series *s, json_t *j)
{
    static const int told[] = {10, 25, 50, 75, 90, 99};
    char name[64], word[8];
    json_t *times = json_array(), *percentiles = json_object();
    if (s->n > 0)
        printf("\n%s:\nAvg total startup time: %.2f seconds\nStartup time percentiles:\n", head,
               bench_spread(s).mean);
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(times, json_real(s->values[i]));
    for (size_t i = 0; s->n > 0 && i < sizeof told / sizeof *told; i++) {
        double v = bench_percentile(s, told[i]);
        printf("  %d%%: %.2f seconds\n", told[i], v);
        snprintf(word, sizeof word, "%d", told[i]);
        json_object_set_new(percentiles, word, json_real(v));
    }
    snprintf(name, sizeof name, "avg_%s_startup_time", key);
    json_object_set_new(j, name, json_real(bench_spread(s).mean));
    snprintf(name, sizeof name, "%s_startup_times", key);
    json_object_set_new(j, name, times);
    snprintf(name, sizeof name, "%s_startup_percentiles", key);
    json_object_set_new(j, name, percentiles);
}

static enum status report(const struct startup_options *o, struct bench_series *cold,
                          struct bench_series *warm, struct error *err)
{
    const char line[] = "============================================================";
    json_t *j = json_object();
    enum status s = STATUS_OK;
    bench_series_sort(cold);
    bench_series_sort(warm);
    printf("%s\nSTARTUP TIME BENCHMARK RESULTS\n%s\n", line, line);
    tell("COLD STARTUP", "cold", cold, j);
    tell("WARM STARTUP", "warm", warm, j);
    printf("%s\n", line);
    fflush(stdout);
    if (o->output_json)
        s = bench_report_write(j, o->output_json, false, err);
    json_decref(j);
    return s;
}

static enum status run(void *options, const struct option_list *words, struct error *err)
{
    const struct startup_options *o = options;
    struct bench_series cold = {0}, before = {0}, warm = {0};
    char *path = NULL;
    if (!o->engine.access.model)
        return error_set(err, STATUS_INVALID,
                         "--model MODEL is required: the benchmark starts a cluster for it");
    enum status s = model_fetch_for_up("bench startup", o->engine.access.model,
                                       (const char *const *)words->items, words->n_items, err);
    TRY(bench_fetch_status(s, err));
    TRY(find_model(o->engine.access.model, &path, err));
    bench_catch_signals();
    if (!path && o->n_cold > 0)
        command_warn("bench startup", "this model has no files: its cold starts are warm ones");
    s = start_often(o, words, o->n_cold, path, &cold, err);
    if (s == STATUS_OK)
        s = start_often(o, words, o->n_warmups, NULL, &before, err);
    if (s == STATUS_OK)
        s = start_often(o, words, o->n_warm, NULL, &warm, err);
    if (s == STATUS_OK)
        s = report(o, &cold, &warm, err);
    mem_free(cold.values);
    mem_free(before.values);
    mem_free(warm.values);
    mem_free(path);
    return s;
}

int cmd_bench_startup(int argc, char **argv)
{
    struct startup_options o = {0};
    const struct command_line line = {
        .usage = "cox bench startup --model MODEL [OPTION...] [-- OPTION-OF-COX-UP...]",
        .specs = bench_startup_specs,
        .n_specs = bench_startup_n_specs,
        .groups = bench_option_groups};
    return bench_offline_command(argc, argv, line, &o, run);
}
