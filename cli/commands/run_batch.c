/* Implements `cox run-batch`, like vLLM's run-batch. It sends a file of requests to a running
 * cluster, or to its own cluster for MODEL, and writes a file of answers.
 * `run` starts the cluster if needed (cli/batch/cluster.h) and opens input and output
 * (cli/batch/file.h, url.h). It sends the lines (cli/batch/run.h), and uploads the output when
 * the output is a URL.
 * Invariants: with --resume, the complete lines of an earlier run are kept, and only the missing
 * requests are sent. An output whose upload failed stays on the disk. The cluster is ended in
 * every case. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/batch/cluster.h"
#include "cli/batch/engine_words.h"
#include "cli/batch/run.h"
#include "cli/batch/url.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/pull/options.h"
#include "common/base/mem.h"

enum { UP_WORDS_MAX = 256 };

#define S run_batch_options
#define FILE_ROW(field, nm, short_name, h)                                                         \
    {                                                                                              \
        .name = nm, .aliases = short_name, .type = OPTION_STRING,                                  \
        .offset = offsetof(struct S, field), .help = h                                             \
    }
const struct option_spec run_batch_specs[] = {
    FILE_ROW(input, "input-file", "i",
             "File of requests, or an http(s) URL to download it from. Each line is "
             "{\"custom_id\", \"method\": \"POST\", \"url\", \"body\"}, as in OpenAI's batches."),
    FILE_ROW(output, "output-file", "o",
             "File of answers, or an http(s) URL to send it to with PUT. It has one line of JSON "
             "per input line, in the same order."),
    OPT_STRING(
        S, output_tmp_dir, "output-tmp-dir", NULL,
        "Folder that keeps the answers until they are sent to a URL. Default: TMPDIR, or /tmp."),
    {.name = "model",
     .type = OPTION_ARGUMENT,
     .help =
         "Model to start a cluster for, as with `cox up`, the same as a bare MODEL. The cluster "
         "ends when the last line is answered. The options of `cox up` are accepted too."},
    OPT_INT(S, concurrency, "concurrency", 1, 1024, "32",
            "Number of lines in progress at the same time."),
    OPT_INT(S, timeout_s, "timeout", 1, 86400, "3600", "Seconds to wait for one answer."),
    OPT_INT(S, retry_s, "retry-timeout", 0, 86400, "300",
            "Seconds to keep trying while the gateway does not answer or answers 429, 502 or 503. "
            "After that the command ends."),
    OPT_BOOL(
        S, resume, "resume", NULL,
        "Continue an existing output file. Lines whose answers it contains are not sent again."),
    OPT_BOOL(S, fail_on_error, "fail-on-error", NULL,
             "End with exit code 1 if any line got an error."),
    GATEWAY_ACCESS_ROWS(S),
    OPT_IGNORED("enable-metrics", TAKES_NOTHING,
                "The cluster's own /metrics has them while it runs."),
    OPT_IGNORED("max-log-len", TAKES_ONE, "Prompts are not logged."),
};
#undef S
const size_t run_batch_n_specs = sizeof run_batch_specs / sizeof run_batch_specs[0];

static enum status check_paths(const struct run_batch_options *o, struct error *err)
{
    const char *const paths[] = {o->input, o->output}, *const names[] = {"-i", "-o"};
    for (size_t i = 0; i < 2; i++) {
        if (!paths[i] || !paths[i][0])
            return error_set(err, STATUS_INVALID,
                             "%s FILE is missing; usage: cox run-batch -i IN.jsonl -o OUT.jsonl",
                             names[i]);
        if (strstr(paths[i], "://") && !batch_url_is(paths[i]))
            return error_set(err, STATUS_INVALID,
                             "%s %s: only a local file or an http:// or https:// URL is supported. "
                             "Copy the file to this machine first",
                             names[i], paths[i]);
    }
    if (o->resume && batch_url_is(o->output))
        return error_set(err, STATUS_INVALID,
                         "--resume needs a local output file, but -o is a URL. Give the file that "
                         "the earlier run has kept as -o");
    return STATUS_OK;
}

/* Reads the answers of an earlier run. An incomplete last line, from a run that was killed, is
 * cut off, and its request is sent again. */
static enum status take_over(struct batch_file *f, int fd, size_t len, const char *path,
                             struct error *err)
{
    if (len == 0)
        return STATUS_OK;
    char *at = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return error_set(err, STATUS_IO, "cannot read the output file %s: %s", path,
                         strerror(errno));
    const char *end = memrchr(at, '\n', len);
    size_t whole = end ? (size_t)(end - at) + 1 : 0;
    enum status s = batch_file_resume(f, (struct str){at, whole}, path, err);
    (void)munmap(at, len);
    if (s == STATUS_OK && whole < len && ftruncate(fd, (off_t)whole) != 0)
        s = error_set(err, STATUS_IO, "cannot cut off the incomplete last line of %s: %s", path,
                      strerror(errno));
    return s;
}

static enum status open_output(const struct run_batch_options *o, struct batch_file *f, int *fd,
                               struct error *err)
{
    struct stat in, out;
    *fd = open(o->output, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0 || fstat(*fd, &out) != 0)
        return error_set(
            err, STATUS_IO,
            "cannot open the output file %s: %s. Give a file that can be written as -o", o->output,
            strerror(errno));
    if (stat(o->input, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return error_set(err, STATUS_INVALID,
                         "%s is both the input and the output. Give another file as -o", o->output);
    if (!S_ISREG(out.st_mode)) /* the output is no regular file, such as /dev/stdout or a pipe */
        return o->resume ? error_set(err, STATUS_INVALID,
                                     "--resume: %s is not a regular file. Give the output file of "
                                     "the earlier run as -o",
                                     o->output)
                         : STATUS_OK;
    if (o->resume)
        return take_over(f, *fd, (size_t)out.st_size, o->output, err);
    if (out.st_size > 0)
        return error_set(err, STATUS_EXISTS,
                         "the output file %s exists already. Continue it with --resume, or give "
                         "another file as -o",
                         o->output);
    return STATUS_OK;
}

/* Reads the gateway's URL. A slash or /v1 at its end is removed, since a pasted base URL may end
 * with one. */
static enum status read_base(const char *url, char *out, size_t size, struct error *err)
{
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(url + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (n >= size)
        return error_set(err, STATUS_INVALID, "--url is too long. Give a shorter URL");
    snprintf(out, size, "%.*s", (int)n, url);
    return STATUS_OK;
}

/* Starts the cluster for MODEL, which replaces the gateway at --url. */
static enum status start_cluster(struct run_batch_options *o, const struct option_list *words,
                                 struct batch_cluster *c, char *base, size_t size,
                                 struct error *err)
{
    if (words->n_items == 0)
        return STATUS_OK;
    if (words->items[0][0] == '-')
        return error_set(err, STATUS_INVALID,
                         "%s is an option of `cox up`, but no MODEL is given to start a cluster "
                         "for. Give MODEL, or remove this option",
                         words->items[0]);
    if (o->gateway.uds)
        return error_set(
            err, STATUS_INVALID,
            "--uds names a running cluster, but MODEL starts a new one. Give only one of the two");
    if (o->gateway.api_key && setenv("COX_API_KEY", o->gateway.api_key, 1) != 0)
        return error_set(err, STATUS_LIMIT,
                         "cannot pass --api-key to the cluster: there is no memory for one more "
                         "environment variable");
    TRY(batch_cluster_start(c, "run-batch", words->items[0], words->items + 1, words->n_items - 1,
                            err));
    o->gateway.uds = c->uds;
    snprintf(base, size, "http://localhost");
    return STATUS_OK;
}

/* `batch` holds one run: its options, its cluster, its files and its totals. */
struct batch {
    struct run_batch_options *o;
    struct batch_cluster cluster;
    struct batch_file f;
    struct batch_totals totals;
    char base[900], input[32]; /* base: URL of the gateway; input: path of a fetched input file */
    /* descriptors of the fetched input file and of the output file; -1 = not open */
    int fetched_fd, out_fd;
    /* URL that receives the output. `kept` is then the path of the local copy. NULL = the output
     * is a file */
    const char *output_url;
    char kept[PATH_MAX];
};

static enum status open_files(struct batch *b, struct error *err)
{
    struct run_batch_options *o = b->o;
    const char *folder = getenv("TMPDIR");
    folder = o->output_tmp_dir ? o->output_tmp_dir : folder && folder[0] ? folder : "/tmp";
    TRY(check_paths(o, err));
    TRY(read_base(o->gateway.url, b->base, sizeof b->base, err));
    if (batch_url_is(o->input)) {
        TRY(batch_url_fetch(o->input, folder, &b->fetched_fd, b->input, err));
        o->input = b->input;
    }
    TRY(batch_file_open(&b->f, o->input, err));
    if (batch_url_is(o->output)) {
        TRY(batch_url_make_file(folder, b->kept, err));
        b->output_url = o->output;
        o->output = b->kept;
    }
    return open_output(o, &b->f, &b->out_fd, err);
}

static enum status ask_all(struct batch *b, const struct option_list *words, struct error *err)
{
    if (b->f.n_twice > 0)
        fprintf(stderr,
                "cox run-batch: warning: %u lines repeat the custom_id of an earlier line. All are "
                "answered; only the order tells their answers apart\n",
                b->f.n_twice);
    if (b->f.n_lines > b->f.n_refused)
        TRY(start_cluster(b->o, words, &b->cluster, b->base, sizeof b->base, err));
    enum status s = batch_run(b->o, b->base, &b->f, b->out_fd, &b->totals, err);
    fprintf(stderr, "cox run-batch: %u of %u answered, %u with an error%s\n",
            b->f.n_answered + b->totals.n_answered, b->f.n_lines, b->totals.n_errors,
            s == STATUS_OK ? "" : "; continue with --resume");
    return s;
}

/* Uploads the output. When the upload fails, the local file is kept, so that the answers are not
 * lost. */
static enum status send_output(struct batch *b, enum status s, struct error *err)
{
    if (!b->kept[0])
        return s;
    if (s == STATUS_OK)
        s = batch_url_send(b->kept, b->output_url, err);
    if (s == STATUS_OK || b->totals.n_answered == 0)
        (void)unlink(b->kept);
    else
        fprintf(stderr, "cox run-batch: the answers are kept in %s\n", b->kept);
    return s;
}

static int run(struct run_batch_options *o, const struct option_list *words)
{
    struct batch b = {.o = o, .fetched_fd = -1, .out_fd = -1};
    struct error err = {0};
    int code = EXIT_USAGE;
    enum status s = open_files(&b, &err);
    if (s == STATUS_OK) {
        code = EXIT_FAILED;
        s = ask_all(&b, words, &err);
        code = b.cluster.has_not_come ? pull_exit_code(s) : code;
    }
    batch_cluster_end(&b.cluster);
    if (b.out_fd >= 0 && close(b.out_fd) != 0 && s == STATUS_OK)
        s = error_set(&err, STATUS_IO, "cannot write the output file %s: %s", o->output,
                      strerror(errno));
    s = send_output(&b, s, &err);
    if (s != STATUS_OK)
        fprintf(stderr, "cox run-batch: %s\n", err.text);
    batch_file_close(&b.f);
    if (b.fetched_fd >= 0)
        (void)close(b.fetched_fd);
    return s == STATUS_OK && (!o->fail_on_error || b.totals.n_errors == 0) ? EXIT_FINE : code;
}

int cmd_run_batch(int argc, char **argv)
{
    struct run_batch_options o = {0};
    struct config_result res;
    int code;
    const struct command_line line = {.usage = "cox run-batch [MODEL] -i IN.jsonl -o OUT.jsonl "
                                               "[OPTION...] [OPTION-OF-COX-UP...]",
                                      .max_positional = UP_WORDS_MAX,
                                      .specs = run_batch_specs,
                                      .n_specs = run_batch_n_specs};
    /* COX_MODEL names a running cluster's model, which this command must not start */
    (void)unsetenv("COX_MODEL");
    char **words = engine_words_move(run_batch_specs, run_batch_n_specs, argc, argv, &argc);
    if (command_parse(&line, argc, words, &o, &res, &code))
        code = run(&o, &res.positional);
    config_fini(&res);
    mem_free(words);
    return code;
}
