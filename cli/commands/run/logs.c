/* Implements `cox run logs`, which prints the last lines of a run's log. With -f it also prints
 * new lines until the run has ended. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/run/options.h"
#include "cli/commands/tables.h"
#include "cli/run/source.h"
#include "cli/run/store.h"
#include "common/base/mem.h"

enum { FOLLOW_MS = 100, BLOCK = 65536 };

struct run_logs_options {
    const char *runs_dir;
    int64_t lines;
    bool follow;
};
#define S run_logs_options
const struct option_spec run_logs_specs[] = {
    {.name = "lines",
     .aliases = "n",
     .type = OPTION_INT,
     .offset = offsetof(struct S, lines),
     .max = 1e9,
     .def = "100",
     .help = "Number of lines to print from the end of the log."},
    {.name = "follow",
     .aliases = "f",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, follow),
     .help = "Print new lines until the run ends."},
    RUN_ROW_DIR(S),
};
#undef S
const size_t run_logs_n_specs = sizeof run_logs_specs / sizeof run_logs_specs[0];

/* Returns the offset at which the last *n lines of the file begin. *n becomes the number of
 * lines still missing, which are in the older file. */
static off_t begin_of_last(int fd, int64_t *n)
{
    char *buf = mem_alloc(BLOCK);
    off_t at = lseek(fd, 0, SEEK_END), end = at;
    while (at > 0) {
        size_t want = at < BLOCK ? (size_t)at : BLOCK;
        ssize_t got = pread(fd, buf, want, at - (off_t)want);
        if (got != (ssize_t)want)
            break;
        for (size_t i = want; i > 0; i--) {
            off_t place = at - (off_t)want + (off_t)i;
            if (buf[i - 1] == '\n' && place < end && (*n)-- <= 1) {
                mem_free(buf);
                return place;
            }
        }
        at -= (off_t)want;
    }
    *n -= end > 0;
    mem_free(buf);
    return 0;
}

/* Copies everything from *at on to stdout. */
static void copy_out(int fd, off_t *at)
{
    char buf[16384];
    ssize_t n;
    while ((n = pread(fd, buf, sizeof buf, *at)) > 0) {
        fwrite(buf, 1, (size_t)n, stdout);
        *at += n;
    }
    fflush(stdout);
}

static int open_log(const struct run_store *s, const char *id, const char *name)
{
    char path[RUN_PATH_BYTES];
    run_store_path(s, id, name, path);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool lives(const struct run_store *s, const char *id)
{
    struct run_record r;
    bool live = run_store_read(s, id, &r) && r.is_live;
    run_record_fini(&r);
    return live;
}

/* Copies new text to stdout. When the log has been rotated, the rest of the old file is copied
 * first. */
static void go_on(const struct run_store *s, const char *id, int *fd, off_t *at)
{
    struct stat mine, now;
    int fresh = open_log(s, id, "log");
    copy_out(*fd, at);
    if (fresh >= 0 && fstat(*fd, &mine) == 0 && fstat(fresh, &now) == 0 &&
        (mine.st_ino != now.st_ino || mine.st_dev != now.st_dev)) {
        copy_out(*fd, at);
        close(*fd);
        *fd = fresh;
        *at = 0;
        copy_out(*fd, at);
    } else if (fresh >= 0) {
        close(fresh);
    }
}

static enum status print_log(const struct run_store *s, const char *id,
                             const struct run_logs_options *o, struct error *err)
{
    int fd = open_log(s, id, "log"), before = open_log(s, id, "log.1");
    int64_t n = o->lines;
    if (fd < 0) {
        if (before >= 0)
            close(before);
        return error_set(err, STATUS_IO, "cannot open the log of run %s: %s", id, strerror(errno));
    }
    off_t at = n > 0 ? begin_of_last(fd, &n) : lseek(fd, 0, SEEK_END);
    if (at == 0 && n > 0 && before >= 0) {
        off_t from = begin_of_last(before, &n);
        copy_out(before, &from);
    }
    if (before >= 0)
        close(before);
    copy_out(fd, &at);
    while (o->follow && !ferror(stdout) && lives(s, id)) {
        (void)usleep(FOLLOW_MS * 1000);
        go_on(s, id, &fd, &at);
    }
    copy_out(fd, &at);
    close(fd);
    return STATUS_OK;
}

int cmd_run_logs(int argc, char **argv)
{
    struct run_logs_options o = {0};
    struct config_result res;
    struct run_store store;
    struct run_record record = {0};
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox run logs ID [OPTION...]",
                                      .specs = run_logs_specs,
                                      .n_specs = run_logs_n_specs,
                                      .max_positional = 1};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        enum status s;
        if (res.positional.n_items == 0)
            s = error_set(&err, STATUS_INVALID,
                          "the run is missing; usage: %s; `cox run list` lists the runs",
                          line.usage);
        else
            s = run_store_open(&store, o.runs_dir, &err);
        if (s == STATUS_OK) {
            s = run_store_find(&store, res.positional.items[0], &record, &err);
            if (s == STATUS_OK)
                s = print_log(&store, record.id, &o, &err);
            s = s == STATUS_NOT_FOUND ? STATUS_IO : s;
        }
        if (s != STATUS_OK)
            code = run_fail(argv[0], s, &err);
        run_record_fini(&record);
    }
    config_fini(&res);
    return code;
}
