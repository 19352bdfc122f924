/* Starts and ends the processes of a run for its keeper.
 * `run_spawn` forks one child in a session of its own, with its output in the keeper's pipe.
 * `run_children_kill` and `run_leftovers_kill` read /proc and send a signal.
 * Invariants: the keeper is a subreaper, so processes whose parent has ended become its children
 * and are found. Trees below the keepers of other runs are never signalled. The lists are freed
 * before a function returns. Only one thread calls these functions. */
#include "cli/run/children.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"

enum { ENVIRON_MAX = 1 << 20, ROUNDS = 64 };

/* ---- start ---- */

static _Noreturn void become(const struct run_spawn *o, int fail_fd, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP)
            (void)signal(s, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, o->death_signal);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC), out = o->out_fd;
    bool ok = getppid() == parent && null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
              dup2(o->stdout_fd >= 0 ? o->stdout_fd : out, STDOUT_FILENO) >= 0 &&
              dup2(out, STDERR_FILENO) >= 0 && (!o->cwd || chdir(o->cwd) == 0);
    if (ok)
        (void)execvpe(o->argv[0], (char *const *)o->argv, o->env);
    int e = errno;
    /* if the write fails, exit code 127 reports the failure */
    if (write(fail_fd, &e, sizeof e) < 0) {
    }
    _exit(127);
}

enum status run_spawn(const struct run_spawn *o, pid_t *out, struct error *err)
{
    int fail[2], e = 0;
    if (pipe2(fail, O_CLOEXEC) != 0)
        return error_set(err, STATUS_LIMIT, "cannot start the program %s: %s", o->argv[0],
                         strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(o, fail[1], parent);
    e = errno;
    close(fail[1]);
    int failure = 0;
    bool failed = pid > 0 && read(fail[0], &failure, sizeof failure) == (ssize_t)sizeof failure;
    close(fail[0]);
    if (failed)
        (void)waitpid(pid, NULL, 0);
    if (pid < 0 || failed)
        return error_set(err, STATUS_IO, "cannot start %s%s%s: %s", o->argv[0],
                         o->cwd ? " in " : "", o->cwd ? o->cwd : "",
                         strerror(failed ? failure : e));
    *out = pid;
    return STATUS_OK;
}

/* ---- processes below the keeper ---- */

struct relation {
    pid_t pid, parent;
    bool is_below;
};

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    const char *at = strrchr(line, ')');
    if (!at || strlen(at) < 5 || at[2] == 'Z' || at[2] == 'X')
        return -1;
    return (pid_t)strtol(at + 3, NULL, 10);
}

static struct relation *read_all(size_t *n)
{
    struct relation *all = NULL;
    size_t cap = 0;
    DIR *d = opendir("/proc");
    *n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10), parent = parent_of(pid);
        if (parent < 0)
            continue;
        if (*n == cap) {
            cap = cap ? cap * 2 : 256;
            all = mem_realloc(all, cap * sizeof *all);
        }
        all[(*n)++] = (struct relation){pid, parent, false};
    }
    if (d)
        closedir(d);
    return all;
}

/* Returns the process numbers of other runs' keepers. */
static pid_t *other_keepers(const struct run_store *s, size_t *n)
{
    struct run_record *all;
    struct error err;
    size_t n_records;
    *n = 0;
    if (run_store_list(s, &all, &n_records, &err) != STATUS_OK)
        return NULL;
    pid_t *out = mem_array(n_records + 1, sizeof *out);
    for (size_t i = 0; i < n_records; i++)
        if (all[i].is_live && all[i].keeper.pid != getpid())
            out[(*n)++] = all[i].keeper.pid;
    run_records_free(all, n_records);
    return out;
}

static bool contains(const pid_t *all, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (all[i] == pid)
            return true;
    return false;
}

/* Marks all processes below this one. The list has no order, so it is read again until no more
 * processes are found. */
static void mark_below(struct relation *all, size_t n, const pid_t *keepers, size_t n_keepers)
{
    bool more = true;
    for (int round = 0; more && round < ROUNDS; round++) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            bool below = all[i].parent == getpid();
            for (size_t k = 0; k < n && !below; k++)
                below = all[k].is_below && all[k].pid == all[i].parent;
            if (below && !all[i].is_below && !contains(keepers, n_keepers, all[i].pid)) {
                all[i].is_below = true;
                more = true;
            }
        }
    }
}

size_t run_children_kill(const struct run_store *s, int signum)
{
    size_t n, n_keepers = 0, n_killed = 0;
    struct relation *all = read_all(&n);
    pid_t *keepers = other_keepers(s, &n_keepers);
    mark_below(all, n, keepers, n_keepers);
    for (size_t i = 0; i < n; i++)
        if (all[i].is_below && kill(all[i].pid, signum) == 0)
            n_killed++;
    mem_free(all);
    mem_free(keepers);
    return n_killed;
}

/* ---- processes of a run without a keeper ---- */

static bool has_id(pid_t pid, const char *id, char *buf)
{
    char path[64], want[40];
    int w = snprintf(want, sizeof want, "COX_RUN_ID=%.12s", id);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(buf, 1, ENVIRON_MAX - 1, f);
    fclose(f);
    buf[n] = '\0';
    for (const char *at = buf; at < buf + n; at += strlen(at) + 1)
        if (strncmp(at, want, (size_t)w + 1) == 0)
            return true;
    return false;
}

size_t run_leftovers_kill(const struct run_store *s, const char *id, int signum)
{
    size_t n, n_keepers = 0, n_killed = 0;
    struct relation *all = read_all(&n);
    pid_t *keepers = other_keepers(s, &n_keepers);
    char *buf = mem_alloc(ENVIRON_MAX);
    for (size_t i = 0; i < n; i++)
        if (all[i].pid != getpid() && !contains(keepers, n_keepers, all[i].pid) &&
            has_id(all[i].pid, id, buf) && kill(all[i].pid, signum) == 0)
            n_killed++;
    mem_free(buf);
    mem_free(all);
    mem_free(keepers);
    return n_killed;
}
