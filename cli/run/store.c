/* Finds, reads, writes and lists the folders of runs on the disk (store.h has their layout).
 * Commands list and read records. A run's keeper writes its state with `run_store_write_state`.
 * Invariants: a file is written under a temporary name and renamed, so readers read complete
 * files. Disk space for the next state is reserved, so a full disk does not lose a run's end. A
 * keeper counts as running only when process number, start time and boot id all match. Records
 * own their JSON until run_record_fini. */
#include "cli/run/store.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/random.h"

enum { RUNS_MAX = 100000, NEW_TRIES = 100, RESERVE_BYTES = 8192, ID_PREFIX_MIN = 4 };

static const char *const status_names[] = {"pending",    "importing", "running",
                                           "terminated", "completed", "failed"};

const char *run_status_name(enum run_status s)
{
    return status_names[s];
}

/* ---- processes ---- */

static bool read_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(out, (int)size, f);
    if (f)
        fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

bool run_process_read(pid_t pid, struct run_process *out)
{
    char path[64], line[1024];
    *out = (struct run_process){.pid = pid};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!read_line(path, line, sizeof line))
        return false;
    char *at = strrchr(line, ')'); /* the process's name may contain any byte, even ')' */
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return false;
    at += 2;
    for (int field = 3; field < 22 && at; field++) { /* proc(5): field 22 is starttime */
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    out->began = strtoull(at, NULL, 10);
    if (!read_line("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot))
        out->boot[0] = '\0';
    return true;
}

bool run_process_lives(const struct run_process *p)
{
    struct run_process now;
    return p->pid > 0 && run_process_read(p->pid, &now) && now.began == p->began &&
           strcmp(now.boot, p->boot) == 0;
}

/* ---- folders ---- */

/* Makes the folder `path` and the folders above it. */
static enum status make_folders(char *path, struct error *err)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        int rc = mkdir(path, 0700);
        int e = errno;
        if (slash)
            *slash = '/';
        if (rc != 0 && e != EEXIST && (e != EROFS || access(path, F_OK) != 0))
            return error_set(
                err, STATUS_IO,
                "cannot use the folder of runs %s: %s. Give another folder with --runs-dir DIR",
                path, strerror(e));
        if (!slash)
            return STATUS_OK;
    }
}

static enum status choose_dir(struct run_store *s, const char *dir, struct error *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char cwd[RUN_PATH_BYTES] = "";
    int n;
    if (dir && dir[0] == '/')
        n = snprintf(s->dir, sizeof s->dir, "%s", dir);
    else if (dir && dir[0] && getcwd(cwd, sizeof cwd))
        n = snprintf(s->dir, sizeof s->dir, "%s/%s", cwd, dir);
    else if (state && state[0] == '/')
        n = snprintf(s->dir, sizeof s->dir, "%s/coxswain/runs", state);
    else if (home && home[0] == '/')
        n = snprintf(s->dir, sizeof s->dir, "%s/.local/state/coxswain/runs", home);
    else
        return error_set(err, STATUS_INVALID,
                         "no folder for runs: HOME is not set. Give a folder with --runs-dir DIR "
                         "or COX_RUNS_DIR");
    if (n < 0 || (size_t)n >= sizeof s->dir)
        return error_set(err, STATUS_INVALID,
                         "the path of --runs-dir is too long. Choose a shorter path");
    while (n > 1 && s->dir[n - 1] == '/')
        s->dir[--n] = '\0';
    return STATUS_OK;
}

enum status run_store_open(struct run_store *s, const char *dir, struct error *err)
{
    struct stat st;
    TRY(choose_dir(s, dir, err));
    TRY(make_folders(s->dir, err));
    if (stat(s->dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return error_set(
            err, STATUS_IO,
            "the folder of runs %s is not a folder. Give another one with --runs-dir DIR", s->dir);
    if (st.st_uid != geteuid())
        return error_set(err, STATUS_DENIED,
                         "the folder of runs %s belongs to user %u, but you are user %u. Give a "
                         "folder of your own with --runs-dir DIR",
                         s->dir, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(
            err, STATUS_DENIED,
            "the folder of runs %s is writable by other users, who could change the commands of a "
            "run. Run chmod 700 on it, or give another folder with --runs-dir DIR",
            s->dir);
    return STATUS_OK;
}

void run_store_path(const struct run_store *s, const char *id, const char *name,
                    char path[RUN_PATH_BYTES])
{
    snprintf(path, RUN_PATH_BYTES, "%s/%s%s%s", s->dir, id, name ? "/" : "", name ? name : "");
}

enum status run_store_new(const struct run_store *s, char id[RUN_ID_DIGITS + 1],
                          char path[RUN_PATH_BYTES], struct error *err)
{
    for (int i = 0; i < NEW_TRIES; i++) {
        uint64_t n = random_secure_u64() % 900000000000u + 100000000000u;
        snprintf(id, RUN_ID_DIGITS + 1, "%012" PRIu64, n);
        run_store_path(s, id, NULL, path);
        if (mkdir(path, 0700) == 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    return error_set(err, STATUS_IO, "cannot create the folder %s: %s", path, strerror(errno));
}

/* ---- files ---- */

static int write_whole(int fd, struct str text)
{
    for (size_t at = 0; at < text.len;) {
        ssize_t w = pwrite(fd, text.ptr + at, text.len - at, (off_t)at);
        if (w <= 0 && errno != EINTR)
            return w < 0 ? errno : ENOSPC;
        at += w > 0 ? (size_t)w : 0;
    }
    return ftruncate(fd, (off_t)text.len) == 0 ? 0 : errno;
}

static int write_file(const char *path, int more_flags, struct str text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | more_flags, 0600);
    int e = fd < 0 ? errno : write_whole(fd, text);
    if (fd >= 0 && close(fd) != 0 && e == 0)
        e = errno;
    return e;
}

static enum status two_names(const char *folder, const char *name, char path[RUN_PATH_BYTES],
                             char fresh[RUN_PATH_BYTES], struct error *err)
{
    int n = snprintf(path, RUN_PATH_BYTES, "%s/%s", folder, name);
    int m = snprintf(fresh, RUN_PATH_BYTES, "%s/.%s.new", folder, name);
    if (n < 0 || m < 0 || m >= RUN_PATH_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the path of a file in %s is too long. Give a shorter --runs-dir", folder);
    return STATUS_OK;
}

enum status run_store_write(const char *folder, const char *name, struct str text,
                            struct error *err)
{
    char path[RUN_PATH_BYTES], fresh[RUN_PATH_BYTES];
    TRY(two_names(folder, name, path, fresh, err));
    int e = write_file(fresh, O_CREAT, text);
    if (e == 0 && rename(fresh, path) != 0)
        e = errno;
    if (e == 0)
        return STATUS_OK;
    (void)unlink(fresh);
    return error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(e));
}

/* Reserves disk space for the next state by making its file now. */
static void reserve(const char *fresh, size_t n)
{
    int fd = open(fresh, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int e = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)n);
    if (fd >= 0)
        close(fd);
    if (e != 0)
        (void)unlink(fresh);
}

enum status run_store_write_state(const char *folder, const json_t *state, bool is_last,
                                  struct error *err)
{
    char path[RUN_PATH_BYTES], fresh[RUN_PATH_BYTES];
    char *text = json_dumps(state, JSON_INDENT(1));
    if (!text)
        return error_set(
            err, STATUS_INTERNAL,
            "cannot write the run's state.json: its values cannot be JSON. Report this bug");
    enum status s = two_names(folder, "state.json", path, fresh, err);
    int e = 0;
    if (s == STATUS_OK) {
        /* write_file uses the reserved file, if there is one */
        e = write_file(fresh, O_CREAT, str_from(text));
        if (e == 0 && rename(fresh, path) != 0)
            e = errno;
        if (e != 0)
            (void)unlink(fresh);
        /* The old file's blocks are still reserved on the disk, so the last state fits. A reader
         * during this write may see no state. */
        if (e != 0 && is_last)
            e = write_file(path, 0, str_from(text));
        if (e == 0 && !is_last)
            reserve(fresh, strlen(text) + RESERVE_BYTES);
        if (e != 0)
            s = error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(e));
    }
    free(text);
    return s;
}

enum status run_store_write_json(const char *folder, const char *name, const json_t *j,
                                 struct error *err)
{
    char *text = json_dumps(j, JSON_INDENT(1));
    enum status s =
        text ? run_store_write(folder, name, str_from(text), err)
             : error_set(err, STATUS_INTERNAL,
                         "cannot write %s: its values cannot be JSON. Report this bug", name);
    free(text);
    return s;
}

json_t *run_store_read_json(const char *folder, const char *name)
{
    char path[RUN_PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *j = n > 0 && (size_t)n < sizeof path ? json_load_file(path, 0, NULL) : NULL;
    if (j && !json_is_object(j)) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

/* ---- records ---- */

static bool is_id(const char *s)
{
    return strlen(s) == RUN_ID_DIGITS && strspn(s, "0123456789") == RUN_ID_DIGITS;
}

const char *run_record_text(const struct run_record *r, const char *key)
{
    const char *s = json_string_value(json_object_get(r->state, key));
    return s ? s : "";
}

bool run_store_read(const struct run_store *s, const char *id, struct run_record *out)
{
    char path[RUN_PATH_BYTES];
    *out = (struct run_record){0};
    if (!is_id(id))
        return false;
    run_store_path(s, id, NULL, path);
    out->state = run_store_read_json(path, "state.json");
    if (!out->state)
        return false;
    snprintf(out->id, sizeof out->id, "%s", id);
    const json_t *k = json_object_get(out->state, "keeper");
    const char *boot = json_string_value(json_object_get(k, "boot"));
    out->keeper.pid = (pid_t)json_integer_value(json_object_get(k, "pid"));
    out->keeper.began = (uint64_t)json_integer_value(json_object_get(k, "began"));
    snprintf(out->keeper.boot, sizeof out->keeper.boot, "%s", boot ? boot : "");
    out->status = RUN_FAILED;
    for (int i = 0; i < RUN_STATUS_COUNT; i++)
        if (strcmp(run_record_text(out, "status"), status_names[i]) == 0)
            out->status = (enum run_status)i;
    if (out->status <= RUN_RUNNING) {
        out->is_live = run_process_lives(&out->keeper);
        out->was_killed = !out->is_live;
    }
    if (out->was_killed)
        out->status = RUN_FAILED;
    return true;
}

void run_record_fini(struct run_record *r)
{
    json_decref(r->state);
    *r = (struct run_record){0};
}

static int by_age(const void *a, const void *b)
{
    const struct run_record *x = a, *y = b;
    double p = json_number_value(json_object_get(x->state, "created"));
    double q = json_number_value(json_object_get(y->state, "created"));
    if (p < q || p > q)
        return p < q ? -1 : 1;
    return strcmp(x->id, y->id);
}

enum status run_store_list(const struct run_store *s, struct run_record **owned_records, size_t *n,
                           struct error *err)
{
    size_t cap = 0;
    *owned_records = NULL;
    *n = 0;
    DIR *d = opendir(s->dir);
    if (!d)
        return error_set(err, STATUS_IO, "cannot read the folder of runs %s: %s", s->dir,
                         strerror(errno));
    for (const struct dirent *e; (e = readdir(d)) && *n < RUNS_MAX;) {
        struct run_record r;
        if (!run_store_read(s, e->d_name, &r))
            continue; /* the folder contains no run, or the run is still being made */
        if (*n == cap) {
            cap = cap ? cap * 2 : 16;
            *owned_records = mem_realloc(*owned_records, cap * sizeof **owned_records);
        }
        (*owned_records)[(*n)++] = r;
    }
    closedir(d);
    if (*n)
        qsort(*owned_records, *n, sizeof **owned_records, by_age);
    return STATUS_OK;
}

void run_records_free(struct run_record *owned_records, size_t n)
{
    for (size_t i = 0; i < n; i++)
        run_record_fini(&owned_records[i]);
    mem_free(owned_records);
}

/* ---- search by ID or name ---- */

static enum status too_many(const struct run_record *all, const bool *fits, size_t n,
                            const char *who, struct error *err)
{
    struct strbuf b;
    strbuf_init(&b, 300);
    for (size_t i = 0; i < n; i++)
        if (fits[i])
            strbuf_printf(&b, "%s%s", b.len ? ", " : "", all[i].id);
    enum status s = error_set(err, STATUS_INVALID,
                              "\"%.60s\" matches several runs. Give one of these IDs: %.300s", who,
                              strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return s;
}

/* Refuses an ID with too few digits, so that a typing error does not choose a run. */
static enum status check_prefix(const char *who, struct error *err)
{
    size_t n = strlen(who);
    if (n < ID_PREFIX_MIN && strspn(who, "0123456789") == n)
        return error_set(err, STATUS_INVALID,
                         "\"%s\" is too short. Give at least %d digits of a run's ID, or its name; "
                         "`cox run list` shows both",
                         who, ID_PREFIX_MIN);
    return STATUS_OK;
}

static enum status choose(struct run_record *all, size_t n, const char *who, size_t *out,
                          struct error *err)
{
    bool *fits = mem_array(n + 1, sizeof *fits);
    size_t n_fit = 0, n_live = 0, live = 0;
    bool is_number = who[0] && who[strspn(who, "0123456789")] == '\0';
    for (size_t i = 0; i < n; i++) {
        fits[i] = is_number ? strncmp(all[i].id, who, strlen(who)) == 0
                            : strcmp(run_record_text(&all[i], "name"), who) == 0;
        if (!fits[i])
            continue;
        n_fit++;
        *out = i;
        if (all[i].is_live) {
            n_live++;
            live = i;
        }
    }
    enum status s = STATUS_OK;
    if (n_fit == 0)
        s = error_set(err, STATUS_NOT_FOUND,
                      "there is no run \"%.60s\"; `cox run list` lists the runs", who);
    else if (n_fit > 1 && !is_number && n_live == 1)
        *out = live;
    else if (n_fit > 1)
        s = too_many(all, fits, n, who, err);
    mem_free(fits);
    return s;
}

enum status run_store_find(const struct run_store *s, const char *who, struct run_record *out,
                           struct error *err)
{
    struct run_record *all;
    size_t n, i = 0;
    *out = (struct run_record){0};
    if (run_store_read(s, who, out))
        return STATUS_OK;
    TRY(check_prefix(who, err));
    TRY(run_store_list(s, &all, &n, err));
    enum status st = choose(all, n, who, &i, err);
    if (st == STATUS_OK) {
        *out = all[i];
        all[i].state = NULL;
    }
    run_records_free(all, n);
    return st;
}

json_t *run_process_json(const struct run_process *p)
{
    return json_pack("{s:i, s:I, s:s}", "pid", (int)p->pid, "began", (json_int_t)p->began, "boot",
                     p->boot);
}
