/* Implements `cox run list`, `show`, `terminate` and `delete`, for the runs that are kept on
 * this machine.
 * cli/run/store.h finds and reads the runs' folders. `with_one` finds the run that the command
 * line names, and calls the subcommand's function with it. `terminate` sends SIGTERM to the
 * run's keeper and waits for the keeper's end.
 * Invariants: a signal is sent only to the process whose start time is in the record. Values of
 * `env` are never printed. Texts from a file are printed without control characters. A live run
 * is not deleted. The command runs in one thread. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/run/options.h"
#include "cli/commands/tables.h"
#include "cli/pull/place.h"
#include "cli/run/children.h"
#include "cli/run/source.h"
#include "common/host/kernel.h"

enum { END_WAIT_S = 40, LOOK_MS = 50, DESCRIPTION_WIDTH = 60 };
/* LIST_MAX_BYTES limits the bytes of `list --json --last N`. The head accepts 4 MiB. In the
 * list, each record of up to 300 lines is indented by two more spaces. */
enum { LIST_MAX_BYTES = 3 << 20, ROW_MORE_BYTES = 1000 };

struct runs_options {
    const char *runs_dir;
    int64_t last;
    bool json;
};
#define S        runs_options
#define ROW_JSON OPT_BOOL(S, json, "json", NULL, "Print JSON.")
const struct option_spec run_list_specs[] = {
    ROW_JSON,
    {.name = "last",
     .aliases = "n",
     .type = OPTION_INT,
     .offset = offsetof(struct S, last),
     .max = 1e9,
     .def = "0",
     .help = "Number of the newest runs to print. 0 = all runs, but at most 3 MiB of JSON."},
    RUN_ROW_DIR(S),
};
const struct option_spec run_show_specs[] = {ROW_JSON, RUN_ROW_DIR(S)};
const struct option_spec run_terminate_specs[] = {RUN_ROW_DIR(S)};
const struct option_spec run_delete_specs[] = {RUN_ROW_DIR(S)};
#undef S
const size_t run_list_n_specs = sizeof run_list_specs / sizeof run_list_specs[0];
const size_t run_show_n_specs = sizeof run_show_specs / sizeof run_show_specs[0];
const size_t run_terminate_n_specs = sizeof run_terminate_specs / sizeof run_terminate_specs[0];
const size_t run_delete_n_specs = sizeof run_delete_specs / sizeof run_delete_specs[0];

/* ---- output ---- */

/* Formats a time as `vessl run list` does: "2024-02-06 04:16:36+00:00". */
static const char *time_text(const json_t *state, const char *key, char out[40])
{
    time_t t = (time_t)json_number_value(json_object_get(state, key));
    struct tm tm;
    out[0] = '\0';
    if (t > 0 && gmtime_r(&t, &tm))
        (void)strftime(out, 40, "%Y-%m-%d %H:%M:%S+00:00", &tm);
    return out;
}

/* Prints a text of a run file as one line, without control characters that would move the
 * cursor. */
static void print_text(const char *s, size_t max)
{
    size_t n = strlen(s), cut = n > max ? str_utf8_valid((struct str){s, max}) : n;
    for (size_t i = 0; i < cut; i++) {
        unsigned char c = (unsigned char)s[i];
        bool is_c1 = c == 0xC2 && i + 1 < cut && (unsigned char)s[i + 1] < 0xA0;
        putchar(c < ' ' || c == 0x7F || is_c1 ? ' ' : c);
        i += is_c1;
    }
    if (cut < n)
        fputs("…", stdout);
}

static void print_cell(const char *s, size_t width)
{
    size_t n = strlen(s), shown = 0,
           cut = n > width ? str_utf8_valid((struct str){s, width - 1}) : n;
    for (size_t i = 0; i < cut; i++)
        shown += ((unsigned char)s[i] & 0xC0) != 0x80;
    print_text(s, cut < n ? cut : width);
    printf("%*s", (int)(width - shown - (cut < n)), "");
}

static const char *reason_of(const struct run_record *r)
{
    return r->was_killed ? "the keeper was killed" : run_record_text(r, "reason");
}

/* Returns the record of a run for programs: its state without the fields that identify its
 * keeper. */
static json_t *record_json(const struct run_record *r)
{
    json_t *j = json_deep_copy(r->state);
    json_t *env = json_object_get(j, "env"), *value;
    const char *name;
    (void)json_object_del(j, "keeper");
    json_object_foreach(env, name, value) /* an older version may have stored the values */
        (void) json_object_set_new(env, name, json_string("***"));
    (void)json_object_set_new(j, "status", json_string(run_status_name(r->status)));
    (void)json_object_set_new(j, "reason", json_string(reason_of(r)));
    return j;
}

static void print_json(json_t *owned)
{
    char *text = json_dumps(owned, JSON_INDENT(1));
    puts(text ? text : "null");
    free(text);
    json_decref(owned);
}

/* Returns the newest runs and the number of all runs. `env` is left out; `show` prints it. With
 * `last`, the size of the list is bounded too, because the reader keeps the whole list in
 * memory. */
static json_t *list_json(const struct run_record *all, size_t n, int64_t last)
{
    json_t *list = json_array();
    size_t left = LIST_MAX_BYTES;
    for (size_t i = n; i > 0 && (last == 0 || n - i < (size_t)last); i--) {
        json_t *row = record_json(&all[i - 1]);
        (void)json_object_del(row, "env");
        char *text = json_dumps(row, JSON_INDENT(1));
        size_t size = text ? strlen(text) + ROW_MORE_BYTES : 0;
        free(text);
        if (last > 0 && size > left) {
            json_decref(row);
            break;
        }
        left -= last > 0 ? size : 0;
        json_array_insert_new(list, 0, row);
    }
    return json_pack("{s:o, s:I}", "runs", list, "total", (json_int_t)n);
}

static void print_list(const struct run_record *all, size_t n)
{
    char when[40];
    size_t width = 4;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(run_record_text(&all[i], "name"));
        width = len > width ? len : width;
    }
    width = width > 40 ? 40 : width;
    printf("%-12s  %-*s  %-7s  %-10s  %-25s  %s\n", "ID", (int)width, "Name", "Type", "Status",
           "Created", "Description");
    for (size_t i = 0; i < n; i++) {
        const struct run_record *r = &all[i];
        printf("%-12s  ", r->id);
        print_cell(run_record_text(r, "name"), width);
        printf("  %-7.7s  %-10s  %-25s  ", run_record_text(r, "type"), run_status_name(r->status),
               time_text(r->state, "created", when));
        print_text(run_record_text(r, "description"), DESCRIPTION_WIDTH);
        putchar('\n');
    }
}

static void print_row(const char *key, const char *value)
{
    if (!value || !value[0])
        return;
    printf("%-12s  ", key);
    print_text(value, 4000);
    putchar('\n');
}

static void print_record(const struct run_record *r, const char *folder)
{
    static const char *const times[][2] = {
        {"Created", "created"}, {"Began", "began"}, {"Ended", "ended"}};
    char when[40], key[40];
    const json_t *v;
    const char *name;
    size_t i;
    print_row("ID", r->id);
    print_row("Name", run_record_text(r, "name"));
    print_row("Description", run_record_text(r, "description"));
    json_array_foreach(json_object_get(r->state, "tags"), i, v)
        print_row("Tag", json_string_value(v));
    print_row("Type", run_record_text(r, "type"));
    print_row("Model", run_record_text(r, "model"));
    print_row("Status", run_status_name(r->status));
    print_row("Reason", reason_of(r));
    for (i = 0; i < sizeof times / sizeof *times; i++)
        print_row(times[i][0], time_text(r->state, times[i][1], when));
    json_array_foreach(json_object_get(r->state, "ports"), i, v)
    {
        snprintf(key, sizeof key, "%.15s", json_string_value(json_object_get(v, "name")));
        print_row(key, json_string_value(json_object_get(v, "url")));
    }
    json_object_foreach((json_t *)json_object_get(r->state, "env"), name, v)
    {
        char entry[120];
        snprintf(entry, sizeof entry, "%.100s=***", name);
        print_row("Env", entry);
    }
    print_row("Folder", folder);
}

int cmd_run_list(int argc, char **argv)
{
    struct runs_options o = {0};
    struct config_result res;
    struct run_store store;
    struct error err = {0};
    struct run_record *all;
    size_t n;
    int code;
    const struct command_line line = {
        .usage = "cox run list [OPTION...]", .specs = run_list_specs, .n_specs = run_list_n_specs};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        enum status s = run_store_open(&store, o.runs_dir, &err);
        if (s == STATUS_OK)
            s = run_store_list(&store, &all, &n, &err);
        if (s != STATUS_OK) {
            code = run_fail(argv[0], s, &err);
        } else if (o.json) {
            print_json(list_json(all, n, o.last));
        } else {
            size_t skip = o.last > 0 && n > (size_t)o.last ? n - (size_t)o.last : 0;
            print_list(all + skip, n - skip);
        }
        if (s == STATUS_OK)
            run_records_free(all, n);
    }
    config_fini(&res);
    return code;
}

/* ---- commands for one run ---- */

struct one {
    struct runs_options o;
    struct run_store store;
    struct run_record record;
    char folder[RUN_PATH_BYTES];
};

typedef enum status one_fn(struct one *one, struct error *err);

static int with_one(int argc, char **argv, const struct command_line *line, one_fn *fn)
{
    struct one one = {0};
    struct config_result res;
    struct error err = {0};
    int code;
    if (command_parse(line, argc, argv, &one.o, &res, &code)) {
        enum status s;
        if (res.positional.n_items == 0)
            s = error_set(&err, STATUS_INVALID,
                          "the run is missing; usage: %s; `cox run list` lists the runs",
                          line->usage);
        else
            s = run_store_open(&one.store, one.o.runs_dir, &err);
        if (s == STATUS_OK)
            s = run_store_find(&one.store, res.positional.items[0], &one.record, &err);
        if (s == STATUS_OK) {
            run_store_path(&one.store, one.record.id, NULL, one.folder);
            s = fn(&one, &err);
        }
        if (s != STATUS_OK)
            code = run_fail(argv[0], s == STATUS_NOT_FOUND ? STATUS_IO : s, &err);
        run_record_fini(&one.record);
    }
    config_fini(&res);
    return code;
}

static enum status show(struct one *one, struct error *err)
{
    if (one->o.json)
        print_json(record_json(&one->record));
    else
        print_record(&one->record, one->folder);
    return STATUS_OK;
}

int cmd_run_show(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox run show ID [OPTION...]",
                                      .specs = run_show_specs,
                                      .n_specs = run_show_n_specs,
                                      .max_positional = 1};
    return with_one(argc, argv, &line, show);
}

static void sleep_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static bool keeper_lives(const void *process)
{
    return run_process_lives(process);
}

/* Sends SIGTERM to the keeper. Its start time ensures that the number does not belong to a newer
 * process. */
static enum status signal_keeper(const struct run_record *r, struct error *err)
{
    if (kernel_signal_if(r->keeper.pid, SIGTERM, keeper_lives, &r->keeper) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_DENIED,
                     "cannot stop run %s: sending a signal to its process %d failed: %s", r->id,
                     (int)r->keeper.pid, strerror(errno));
}

/* Ends the processes that a killed keeper left: it sends SIGTERM, then SIGKILL after one second. */
static void end_leftovers(struct one *one)
{
    if (run_leftovers_kill(&one->store, one->record.id, SIGTERM) == 0)
        return;
    for (int i = 0; i < 20 && run_leftovers_kill(&one->store, one->record.id, 0) > 0; i++)
        sleep_ms(LOOK_MS);
    (void)run_leftovers_kill(&one->store, one->record.id, SIGKILL);
}

static enum status terminate(struct one *one, struct error *err)
{
    const char *id = one->record.id;
    if (one->record.was_killed) {
        end_leftovers(one);
        /* the keeper was killed, so this command has ended the processes that it left */
        printf("Terminated '#%s'.\n", id);
        return STATUS_OK;
    }
    if (!one->record.is_live)
        return error_set(err, STATUS_IO,
                         "run %s has already ended (%s). `cox run delete %s` deletes its record",
                         id, run_status_name(one->record.status), id);
    TRY(signal_keeper(&one->record, err));
    for (int i = 0; i < END_WAIT_S * 1000 / LOOK_MS; i++) {
        struct run_record now;
        bool lives = run_store_read(&one->store, id, &now) && now.is_live;
        run_record_fini(&now);
        if (!lives && !run_process_lives(&one->record.keeper)) {
            printf("Terminated '#%s'.\n", id);
            return STATUS_OK;
        }
        sleep_ms(LOOK_MS);
    }
    return error_set(err, STATUS_IO,
                     "run %s has not ended within %d s. `cox run logs %s` shows why it still runs; "
                     "the same command again kills it",
                     id, END_WAIT_S, id);
}

int cmd_run_terminate(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox run terminate ID [OPTION...]",
                                      .specs = run_terminate_specs,
                                      .n_specs = run_terminate_n_specs,
                                      .max_positional = 1};
    return with_one(argc, argv, &line, terminate);
}

/* Removes the run's folder. state.json is removed last, so that a run that could not be removed
 * completely is still listed. */
static enum status remove_run(const char *folder, struct error *err)
{
    char path[RUN_PATH_BYTES];
    bool is_whole = true;
    DIR *d = opendir(folder);
    if (!d)
        return error_set(err, STATUS_IO, "cannot read the run's folder %s: %s", folder,
                         strerror(errno));
    for (const struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, "state.json") == 0)
            continue;
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (n > 0 && (size_t)n < sizeof path)
            pull_remove_tree(path);
        struct stat st;
        is_whole &= n > 0 && (size_t)n < sizeof path && lstat(path, &st) != 0;
        if (!is_whole)
            break;
    }
    closedir(d);
    if (is_whole)
        pull_remove_tree(folder);
    if (!is_whole || access(folder, F_OK) == 0)
        return error_set(err, STATUS_IO,
                         "cannot remove all of %s: it contains files of another user. Remove them, "
                         "then run the same command again",
                         is_whole ? folder : path);
    return STATUS_OK;
}

static enum status forget(struct one *one, struct error *err)
{
    const char *id = one->record.id;
    if (one->record.is_live)
        return error_set(err, STATUS_IO,
                         "cannot delete run %s: it is %s. Run `cox run terminate %s` first", id,
                         run_status_name(one->record.status), id);
    end_leftovers(one);
    TRY(remove_run(one->folder, err));
    printf("Deleted '#%s'.\n", id);
    return STATUS_OK;
}

int cmd_run_delete(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox run delete ID [OPTION...]",
                                      .specs = run_delete_specs,
                                      .n_specs = run_delete_n_specs,
                                      .max_positional = 1};
    return with_one(argc, argv, &line, forget);
}
