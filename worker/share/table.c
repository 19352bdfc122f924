/* The file has a head of 64 bytes, written by the process that packs, and then one entry for each
 * slot. Byte i of the file stands for slot i in the locks, and byte SHARE_MAX_HOLDERS for the
 * table. Bytes are read and written, never mapped, so a truncated file is only an empty table.
 * Invariants: entries are changed and files are removed only under the table's lock. After the
 * lock was taken, a file without a name is left alone. */
#include "worker/share/table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 64, SWEEP_MAX_FILES = 1024 };

struct head {
    uint64_t beat, done_bytes;
};

/* ---- locks ---- */

static struct flock range(short type, int64_t first, int64_t n)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
}

static bool set_lock(int fd, short type, int64_t at)
{
    struct flock l = range(type, at, 1);
    return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

/* Returns true if another open file has locked one of the slots. A call that fails counts as a
 * lock, so that a file in use is never removed. */
static bool is_held(int fd, int64_t first, int64_t n)
{
    struct flock l = range(F_WRLCK, first, n);
    return fcntl(fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

enum status share_table_lock(struct share_table *t, struct error *err)
{
    struct stat st;
    if (!set_lock(t->fd, F_WRLCK, SHARE_MAX_HOLDERS)) {
        if (errno == EAGAIN || errno == EACCES)
            return STATUS_AGAIN;
        return error_set(err, STATUS_UNSUPPORTED,
                         "the file system of --weights-share has no locks of open files (%s). Give "
                         "--weights-share a folder of a tmpfs",
                         strerror(errno));
    }
    t->is_locked = true;
    if (fstat(t->fd, &st) == 0 && st.st_nlink > 0)
        return STATUS_OK;
    share_table_unlock(t);
    return STATUS_CLOSED;
}

void share_table_unlock(struct share_table *t)
{
    if (t->is_locked)
        (void)set_lock(t->fd, F_UNLCK, SHARE_MAX_HOLDERS);
    t->is_locked = false;
}

/* ---- the file ---- */

/* Returns true for a regular file that only this user may use, under one name or none. */
static bool is_ours(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 0077) == 0 && st.st_nlink <= 1;
}

enum status share_table_open(struct share_table *t, int dir_fd, const uint8_t key[16],
                             struct error *err)
{
    *t = (struct share_table){.dir_fd = dir_fd, .slot = -1};
    for (size_t i = 0; i < 16; i++)
        snprintf(t->name + 2 * i, 3, "%02x", key[i]);
    /* O_NONBLOCK is set, because otherwise a FIFO would block the open */
    t->fd = openat(dir_fd, t->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (t->fd < 0)
        return error_set(err, STATUS_IO,
                         "cannot open the file %s in the folder of --weights-share: %s. Remove the "
                         "file, or free room there",
                         t->name, strerror(errno));
    if (is_ours(t->fd))
        return STATUS_OK;
    share_table_close(t);
    return error_set(err, STATUS_DENIED,
                     "the file %s in the folder of --weights-share is not a regular file that only "
                     "this user may use. Remove it",
                     t->name);
}

void share_table_close(struct share_table *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = t->slot = -1;
    t->is_locked = false;
}

/* ---- entries ---- */

static int64_t entry_at(uint32_t slot)
{
    return HEAD_BYTES + (int64_t)slot * (int64_t)sizeof(struct share_holder);
}

uint32_t share_table_holders(const struct share_table *t,
                             struct share_holder out[SHARE_MAX_HOLDERS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SHARE_MAX_HOLDERS; i++) {
        struct share_holder h;
        if (is_held(t->fd, i, 1) && pread(t->fd, &h, sizeof h, entry_at(i)) == sizeof h &&
            h.pid > 0 && h.fd >= 0)
            out[n++] = h;
    }
    return n;
}

static enum status write_all(const struct share_table *t, const void *from, size_t n, int64_t at,
                             struct error *err)
{
    ssize_t written = pwrite(t->fd, from, n, at);
    if (written == (ssize_t)n)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "cannot write the file %s in the folder of --weights-share: %s. Free room "
                     "there, or give --weights-share another folder",
                     t->name, written < 0 ? strerror(errno) : "the file system is full");
}

enum status share_table_enter(struct share_table *t, int32_t fd, struct error *err)
{
    const struct share_holder own = {(int32_t)getpid(), fd};
    for (uint32_t i = 0; i < SHARE_MAX_HOLDERS; i++) {
        if (!set_lock(t->fd, F_WRLCK, i))
            continue;
        enum status s = write_all(t, &own, sizeof own, entry_at(i), err);
        if (s == STATUS_OK)
            t->slot = (int32_t)i;
        else
            (void)set_lock(t->fd, F_UNLCK, i);
        return s;
    }
    return error_set(err, STATUS_LIMIT,
                     "%d processes share these weights already, which is the limit",
                     SHARE_MAX_HOLDERS);
}

void share_table_leave(struct share_table *t)
{
    if (t->slot >= 0)
        (void)set_lock(t->fd, F_UNLCK, t->slot);
    t->slot = -1;
    if (!is_held(t->fd, 0, SHARE_MAX_HOLDERS))
        (void)unlinkat(t->dir_fd, t->name, 0);
}

/* ---- progress ---- */

enum status share_table_beat(struct share_table *t, uint64_t beat, uint64_t done_bytes,
                             struct error *err)
{
    const struct head h = {beat, done_bytes};
    return write_all(t, &h, sizeof h, 0, err);
}

void share_table_read_beat(const struct share_table *t, uint64_t *beat, uint64_t *done_bytes)
{
    struct head h = {0};
    if (pread(t->fd, &h, sizeof h, 0) != sizeof h)
        h = (struct head){0};
    *beat = h.beat;
    *done_bytes = h.done_bytes;
}

/* ---- orphans ---- */

/* Removes one file if no process has a lock on it. */
static void sweep_one(int dir_fd, const char *name)
{
    struct share_table t = {.dir_fd = dir_fd, .slot = -1};
    struct error err;
    t.fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    snprintf(t.name, sizeof t.name, "%s", name);
    if (t.fd >= 0 && is_ours(t.fd) && share_table_lock(&t, &err) == STATUS_OK)
        share_table_leave(&t);
    share_table_close(&t);
}

void share_table_sweep(int dir_fd)
{
    uint32_t n = 0;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    for (const struct dirent *e; d && n < SWEEP_MAX_FILES && (e = readdir(d)); n++)
        if (strspn(e->d_name, "0123456789abcdef") == SHARE_NAME_BYTES - 1 &&
            strlen(e->d_name) == SHARE_NAME_BYTES - 1)
            sweep_one(dir_fd, e->d_name);
    if (d)
        closedir(d);
}
