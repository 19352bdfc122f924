/* Implements `cox run create`, and the start of `cox run -f FILE`. It starts a run from a file,
 * or again from the copy that an earlier run keeps.
 * The file is read (cli/run/source.h), the values for `env` are collected, and the run is
 * prepared. The run's keeper then works in the background (`run_start_keeper`) or in this
 * terminal (`run_keep`). Invariants: an invalid file gives exit code 2, and every later failure
 * gives exit code 1. A run that is started inside another run inherits neither that run's `env`
 * nor its COX_ variables. The command runs in one thread. */
#include "cli/commands/run/create.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/run/options.h"
#include "cli/commands/tables.h"
#include "cli/run/keeper.h"
#include "cli/run/prepare.h"
#include "cli/run/source.h"
#include "common/base/mem.h"

extern char **environ;

struct create_options {
    const char *file, *from, *runs_dir;
};
#define S create_options
const struct option_spec run_create_specs[] = {
    RUN_ROW_FILE(S),
    OPT_STRING(S, from, "from", NULL,
               "ID of a run to repeat from its own copy, instead of a file."),
    RUN_ROW_DIR(S),
};
#undef S
const size_t run_create_n_specs = sizeof run_create_specs / sizeof run_create_specs[0];

/* Collects the values of `env` that this command's environment sets. When a run is started
 * again, missing values are those of the earlier run. */
static json_t *take_env(const struct run_source *source, const char *from_folder, const char *path)
{
    json_t *before = from_folder ? run_store_read_json(from_folder, "env.json") : NULL;
    json_t *taken = json_object();
    for (size_t i = 0; i < source->file.env.n; i++) {
        const struct run_env *e = &source->file.env.items[i];
        if (!e->is_taken)
            continue;
        const char *value = getenv(e->name);
        if (!value)
            value = json_string_value(json_object_get(before, e->name));
        if (value)
            (void)json_object_set_new(taken, e->name, json_string(value));
        else
            fprintf(
                stderr,
                "%s:%u:%u: note: %s is not set in your environment, so the run does not get it\n",
                path, e->at.line, e->at.column, e->name);
    }
    json_decref(before);
    return taken;
}

static void print_started(const struct run_start *r)
{
    json_t *state = run_store_read_json(r->folder, "state.json");
    const json_t *port;
    size_t i;
    printf("%s\n", r->id);
    json_array_foreach(json_object_get(state, "ports"), i, port)
        printf("%-12s %s\n", json_string_value(json_object_get(port, "name")),
               json_string_value(json_object_get(port, "url")));
    json_decref(state);
    fprintf(stderr,
            "cox run create: \"%s\" has been started: `cox run logs -f %s`, `cox run "
            "terminate %s`\n",
            r->source->file.name.s, r->id, r->id);
}

static enum status start_here(struct run_start *r, struct error *err)
{
    enum run_status ended;
    fprintf(stderr, "cox run: \"%s\" has started as run %s; Ctrl-C ends it\n",
            r->source->file.name.s, r->id);
    enum status s = run_keep(r, &ended, err);
    struct pollfd last = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (s == STATUS_OK &&
        /* a zero timeout: poll does not block when Ctrl-S has stopped the terminal's output */
        poll(&last, 1, 0) == 1)
        fprintf(stderr, "cox run: %s\n", run_status_name(ended));
    return s;
}

/* Starts the run of a valid file. Every failure is STATUS_IO, so the exit code is EXIT_FAILED. */
static enum status start(struct run_start *r, const char *from_folder, struct error *err)
{
    enum status s;
    r->taken = take_env(r->source, from_folder, r->path);
    s = run_prepare(r, err);
    if (s == STATUS_OK && r->in_foreground)
        s = start_here(r, err);
    else if (s == STATUS_OK)
        s = run_start_keeper(r, err);
    if (s == STATUS_OK && !r->in_foreground)
        print_started(r);
    json_decref(r->taken);
    r->taken = NULL;
    if (s != STATUS_OK)
        err->status = STATUS_IO;
    return s == STATUS_OK ? STATUS_OK : STATUS_IO;
}

static enum status start_file(const char *path, const char *runs_dir, bool in_foreground,
                              struct error *err)
{
    struct run_source source = {0};
    struct run_store store;
    enum status s = run_source_open(&source, path, true, err);
    if (s == STATUS_OK)
        s = run_store_open(&store, runs_dir, err);
    if (s == STATUS_OK) {
        struct run_start r = {
            .source = &source, .path = path, .store = &store, .in_foreground = in_foreground};
        s = start(&r, NULL, err);
    }
    run_source_close(&source);
    return s;
}

enum status run_here(const char *path, const char *runs_dir, struct error *err)
{
    return start_file(path, runs_dir, true, err);
}

/* When this process is inside a run, removes that run's variables from the environment
 * (docs/reference/runs.md). The new run then inherits neither that run's `env` nor the COX_
 * variables that `cox up` sets for its children. */
static void leave_environment(const char *runs_dir)
{
    char dir[RUN_PATH_BYTES], name[64];
    const char *names = getenv("COX_RUN_ENV");
    if (!getenv("COX_RUN_ID"))
        return;
    snprintf(dir, sizeof dir, "%s", runs_dir);
    for (char *copy = mem_strdup(names ? names : ""), *at = copy, *one; copy;) {
        one = strsep(&at, ",");
        if (!one) {
            mem_free(copy);
            break;
        }
        if (strcmp(one, "PATH") != 0 && strcmp(one, "HOME") != 0)
            (void)unsetenv(one);
    }
    for (char **e = environ; *e;) {
        size_t n = strcspn(*e, "=");
        bool is_ours = strncmp(*e, "COX_", 4) == 0 && n < sizeof name;
        snprintf(name, sizeof name, "%.*s", (int)n, *e);
        if (is_ours && unsetenv(name) == 0)
            e = environ; /* unsetenv has moved the entries, so the loop starts again */
        else
            e++;
    }
    (void)setenv("COX_RUNS_DIR", dir, 1);
}

static enum status start_again(const char *who, const char *runs_dir, struct error *err)
{
    char folder[RUN_PATH_BYTES], path[RUN_PATH_BYTES];
    struct run_source source = {0};
    struct run_store store;
    struct run_record record;
    TRY(run_store_open(&store, runs_dir, err));
    TRY(run_store_find(&store, who, &record, err));
    leave_environment(store.dir);
    run_store_path(&store, record.id, NULL, folder);
    run_store_path(&store, record.id, "run.yaml", path);
    const char *cwd = run_record_text(&record, "cwd");
    enum status s = run_source_open(&source, path, false, err);
    /* relative paths of the run are resolved from this folder */
    if (s == STATUS_OK && cwd[0] && chdir(cwd) != 0)
        s = error_set(err, STATUS_IO,
                      "cannot start run %s again: its folder %s cannot be entered: %s", record.id,
                      cwd, strerror(errno));
    if (s == STATUS_OK) {
        struct run_start r = {.source = &source, .path = path, .store = &store};
        s = start(&r, folder, err);
    }
    run_source_close(&source);
    run_record_fini(&record);
    return s;
}

int cmd_run_create(int argc, char **argv)
{
    struct create_options o = {0};
    struct config_result res;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox run create -f FILE | --from ID [OPTION...]",
                                      .specs = run_create_specs,
                                      .n_specs = run_create_n_specs};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        bool has_file = o.file && o.file[0], has_from = o.from && o.from[0];
        enum status s;
        if (has_file == has_from)
            s = error_set(&err, STATUS_INVALID, "the run file is missing; usage: %s", line.usage);
        else
            s = has_file ? start_file(o.file, o.runs_dir, false, &err)
                         : start_again(o.from, o.runs_dir, &err);
        if (s != STATUS_OK)
            code = run_fail(argv[0], s == STATUS_NOT_FOUND && has_from ? STATUS_IO : s, &err);
    }
    config_fini(&res);
    return code;
}
