/* Room on the disk of the store.
 *
 * A deletion frees pages inside the database, but has to write a few of them first, into SQLite's
 * log: on a full disk it would fail for want of the room that it is about to give. So the store
 * keeps a reserve, a file of zeros beside the database. A deletion that finds no room gives the
 * reserve up and is tried again; then the unused pages at the end of the database go back to the
 * disk, a few at a time, because moving them takes room as well; then the reserve is made anew.
 *
 * Nothing here weakens a transaction: the log and its commits stay as they are, and a crash between
 * two of the steps leaves a database without a reserve, which the next tick makes again. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "gateway/batches/store/state.h"

enum {
    RESERVE_BYTES = 2 << 20, /* deleting 512 MiB writes 1.2 MB of lists of pages */
    FULL_BYTES = 1 << 20,    /* with less the disk counts as full */
    STEP_MIN_PAGES = 16,
    SHRINK_MAX_PAGES = 1024, /* in one call, between which others have theirs: 4 MiB */
    LOG_FRAMES = 1000,       /* the log goes into the database when it has more, */
    LOG_FRAMES_LOW = 64,     /* or so many where the disk is short of room */
    FRAMES_PER_PAGE = 6,     /* of the log, for a page that moves: it, who points to it, its entry;
                                twice, for who else writes to the disk */
};
#define LOW_BYTES (64ull << 20)

struct room {
    uint64_t bytes, free;
};

static struct room room_of(const struct state_store *s)
{
    struct statvfs v;
    if (statvfs(s->dir, &v) != 0)
        return (struct room){0};
    return (struct room){(uint64_t)v.f_blocks * v.f_frsize, (uint64_t)v.f_bavail * v.f_frsize};
}

bool state_disk_is_full(const struct state_store *s)
{
    return room_of(s).free < FULL_BYTES;
}

static bool is_low(struct room r)
{
    return r.free < LOW_BYTES || r.free < r.bytes / 20;
}

bool state_disk_is_low(const struct state_store *s)
{
    return is_low(room_of(s));
}

enum status state_checkpoint(struct state_store *s)
{
    s->n_frames = 0;
    state_close_blobs(s);
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return rc == SQLITE_OK ? STATUS_OK : STATUS_IO;
}

void state_committed(struct state_store *s)
{
    if (s->n_frames > LOG_FRAMES || (s->n_frames > LOG_FRAMES_LOW && is_low(room_of(s))))
        (void)state_checkpoint(s);
}

enum status state_wants(struct state_store *s, uint64_t bytes, struct error *err)
{
    struct room r = room_of(s);
    uint64_t wanted = 2 * bytes + FULL_BYTES;
    if (r.bytes == 0 || r.free >= wanted)
        return STATUS_OK;
    s->disk_full = true;
    return error_set(err, STATUS_NO_MEMORY,
                     "--state-dir %s: the disk has %llu bytes left, and %llu are wanted", s->dir,
                     (unsigned long long)r.free, (unsigned long long)wanted);
}

/* ---- the reserve ---- */

static void reserve_path(const struct state_store *s, char out[STATE_PATH_BYTES])
{
    snprintf(out, STATE_PATH_BYTES, "%s/state.reserve", s->dir);
}

/* A small disk is not to be taken up by the reserve. */
static off_t reserve_bytes(struct room r)
{
    uint64_t part = r.bytes / 8 / STATE_PAGE_BYTES * STATE_PAGE_BYTES;
    return (off_t)(part < RESERVE_BYTES ? part : RESERVE_BYTES);
}

static void make_reserve(const struct state_store *s)
{
    char path[STATE_PATH_BYTES];
    struct room r = room_of(s);
    off_t bytes = reserve_bytes(r);
    reserve_path(s, path);
    if (access(path, F_OK) == 0 || bytes == 0 || r.free < 2 * (uint64_t)bytes)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (posix_fallocate(fd, 0, bytes) != 0)
        (void)unlink(path);
    close(fd);
}

/* SQLite may be built to overwrite what is deleted with zeros (secure_delete), which takes as much
 * of the log as the file is long. Pages of a deletion on a full disk go back to the disk instead.
 */
void state_overwrite(struct state_store *s, bool always)
{
    struct error ignored;
    if (s->db)
        (void)state_exec(s, always ? "PRAGMA secure_delete = ON" : "PRAGMA secure_delete = FAST",
                         &ignored);
}

bool state_make_room(struct state_store *s)
{
    char path[STATE_PATH_BYTES];
    state_overwrite(s, false);
    reserve_path(s, path);
    bool given = unlink(path) == 0;
    bool moved = s->db && state_checkpoint(s) == STATUS_OK;
    return given || moved;
}

/* ---- unused pages ---- */

uint64_t state_pragma(struct state_store *s, const char *pragma)
{
    struct error ignored;
    sqlite3_stmt *q = state_prepare(s, pragma, &ignored);
    if (!q)
        return 0;
    uint64_t n = sqlite3_step(q) == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 0) : 0;
    sqlite3_finalize(q);
    return n;
}

static uint64_t pages_that_fit(const struct state_store *s)
{
    uint64_t n = room_of(s).free / STATE_PAGE_BYTES / FRAMES_PER_PAGE;
    return n < STEP_MIN_PAGES ? STEP_MIN_PAGES : n > SHRINK_MAX_PAGES ? SHRINK_MAX_PAGES : n;
}

bool state_shrink(struct state_store *s)
{
    char sql[64];
    state_overwrite(s, false);
    struct error ignored;
    uint64_t done = 0;
    if (!s->db)
        return false;
    (void)state_checkpoint(s); /* a log that does not fit shrinks with what is cut off */
    while (done < SHRINK_MAX_PAGES) {
        uint64_t unused = state_pragma(s, "PRAGMA freelist_count");
        snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%llu)",
                 (unsigned long long)pages_that_fit(s));
        if (unused == 0 || state_exec(s, sql, &ignored) != STATUS_OK)
            break;
        (void)state_checkpoint(s);
        uint64_t left = state_pragma(s, "PRAGMA freelist_count");
        if (left >= unused) /* of a database made before there was incremental_vacuum */
            break;
        done += unused - left;
    }
    state_overwrite(s, true);
    return done > 0;
}

bool state_settle(struct state_store *s)
{
    if (!s->db)
        return false;
    const bool shrunk = is_low(room_of(s)) && state_shrink(s);
    make_reserve(s);
    return shrunk && state_pragma(s, "PRAGMA freelist_count") > 0;
}
