#include "cli/base/throw_away.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* name of the locked file; a process that writes keys locks the folder instead */
#define OWNER "owner"

enum { YOUNG_S = 60, MAX_DEPTH = 4 };

/* lists of models, with their locks and temporary names (common/json/yaml_file.c) */
#define MODELS "models.yaml"
#define SET    "set.yaml"

static const char *const files[] = {"head.key",   "head.pub",   "gateway.key",  "gateway.pub",
                                    "worker.key", "worker.pub", "operator.key", "operator.pub",
                                    "authorized", "gateway",    "control",      MODELS,
                                    SET,          OWNER};

/* Returns true for "set.yaml.XXXXXX" with a random end, which mkstemp makes. */
static bool is_half_set(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const size_t n = sizeof SET; /* with the dot */
    return strncmp(name, SET ".", n) == 0 && strlen(name + n) == 6 &&
           strspn(name + n, letters) == 6;
}

/* Removes the halves of the list of models that killed processes left. */
static void remove_half_sets(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0)
        close(fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (is_half_set(e->d_name))
            (void)unlinkat(fd, e->d_name, 0);
    if (d)
        closedir(d);
}

/* Removes the folders that `cli/pull/stream.c` makes for a model in memory. Such a folder
 * contains links, lists of ranges, and folders of the same kind. */
static void remove_links(int dir_fd, int depth)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0)
        close(fd);
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        const char *end = strstr(e->d_name, ".part.ranges");
        if (e->d_name[0] == '.' || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISLNK(st.st_mode) || (S_ISREG(st.st_mode) && end && end[12] == '\0'))
            (void)unlinkat(fd, e->d_name, 0);
        if (!S_ISDIR(st.st_mode) || depth == 0)
            continue;
        int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            remove_links(below, depth - 1);
            close(below);
        }
        (void)unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    if (d)
        closedir(d);
}

static bool remove_files(int dir_fd, int parent_fd, const char *name)
{
    static const char *const ends[] = {
        ".new", /* half of a file, left by a process that was killed while it wrote the file */
        ".lock", ""};
    remove_links(dir_fd, MAX_DEPTH);
    remove_half_sets(dir_fd);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
            char path[64];
            snprintf(path, sizeof path, "%s%s", files[i], ends[k]);
            (void)unlinkat(dir_fd, path, 0);
        }
    return unlinkat(parent_fd, name, AT_REMOVEDIR) == 0;
}

/* Returns true when no process holds the folder's lock. A folder without a lock file counts too:
 * its owner was killed before it made the lock file. */
static bool is_dead(int dir_fd)
{
    int fd = openat(dir_fd, OWNER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool dead = fd < 0 ? errno == ENOENT : flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return dead;
}

/* Removes one folder when it belongs to this user, is private, is not a link and is not locked.
 * A folder younger than YOUNG_S stays: its owner may be about to lock it. */
static void sweep_one(int parent_fd, const char *name)
{
    struct stat st;
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    bool ours = fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0077) == 0;
    if (ours && time(NULL) - st.st_mtime >= YOUNG_S && is_dead(fd))
        (void)remove_files(fd, parent_fd, name);
    close(fd);
}

/* Matches "cox-keys-PID-XXXXXX". The process number is only informative. The lock shows whether
 * the owner runs. */
static bool is_throw_away(const char *name)
{
    int pid = 0;
    char rest = '\0';
    return (sscanf(name, "cox-keys-%d-%c", &pid, &rest) == 2 ||
            sscanf(name, "cox-batch-%d-%c", &pid, &rest) == 2 ||
            sscanf(name, "cox-stream-%d-%c", &pid, &rest) == 2 ||
            sscanf(name, "cox-up-%d-%c", &pid, &rest) == 2) &&
           pid > 0;
}

void throw_away_sweep(const char *parent)
{
    DIR *d = opendir(parent);
    if (!d)
        return;
    for (const struct dirent *e; (e = readdir(d));)
        if (is_throw_away(e->d_name))
            sweep_one(dirfd(d), e->d_name);
    closedir(d);
}

enum status throw_away_make(struct throw_away *t, const char *parent, const char *what,
                            struct error *err)
{
    *t = (struct throw_away){.dir_fd = -1, .lock_fd = -1};
    throw_away_sweep(parent);
    int n = snprintf(t->path, sizeof t->path, "%s/cox-%s-%d-XXXXXX", parent, what, (int)getpid());
    errno = ENAMETOOLONG;
    if (n < 0 || (size_t)n >= sizeof t->path || !mkdtemp(t->path)) {
        enum status s = error_set(err, STATUS_IO,
                                  "cannot make a folder for %s in %s: %s; set TMPDIR to a folder "
                                  "that this user may write to",
                                  what, parent, strerror(errno));
        t->path[0] = '\0';
        return s;
    }
    t->dir_fd = open(t->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    t->lock_fd = t->dir_fd < 0
                     ? -1
                     : openat(t->dir_fd, OWNER, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (t->lock_fd < 0 || flock(t->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, STATUS_IO, "cannot lock %s/" OWNER ": %s", t->path, strerror(errno));
    return STATUS_OK;
}

void throw_away_remove(struct throw_away *t)
{
    if (!t->path[0])
        return;
    if (!remove_files(t->dir_fd, AT_FDCWD, t->path))
        fprintf(stderr, "cox: cannot remove the temporary folder %s: %s\n", t->path,
                strerror(errno));
    if (t->lock_fd >= 0)
        close(t->lock_fd);
    if (t->dir_fd >= 0)
        close(t->dir_fd);
    *t = (struct throw_away){.dir_fd = -1, .lock_fd = -1};
}
