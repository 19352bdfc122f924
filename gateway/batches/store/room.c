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
#include <unistd.h>

#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/log.h"
#include "gateway/batches/store/room.h"
#include "gateway/batches/store/sql.h"

enum {
    RESERVE_BYTES = 2 << 20, /* deleting 512 MiB writes 1.2 MB of lists of pages */
    STEP_MIN_PAGES = 16,
    SHRINK_MAX_PAGES = 1024, /* in one call, between which others have theirs: 4 MiB */
    FRAMES_PER_PAGE = 6,     /* of the log, for a page that moves: it, who points to it, its entry;
                                twice, for who else writes to the disk */
};
/* ---- the reserve ---- */

static void reserve_path(const struct state_store *s, char out[STATE_PATH_BYTES])
{
    snprintf(out, STATE_PATH_BYTES, "%s/state.reserve", s->dir);
}

/* A small disk is not to be taken up by the reserve. */
static off_t reserve_bytes(struct disk_room r)
{
    uint64_t part = r.bytes / 8 / STATE_PAGE_BYTES * STATE_PAGE_BYTES;
    return (off_t)(part < RESERVE_BYTES ? part : RESERVE_BYTES);
}

static void make_reserve(const struct state_store *s)
{
    char path[STATE_PATH_BYTES];
    struct disk_room r = state_disk_room(s);
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

static uint64_t pages_that_fit(const struct state_store *s)
{
    uint64_t n = state_disk_room(s).free / STATE_PAGE_BYTES / FRAMES_PER_PAGE;
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
    const bool shrunk = disk_room_is_low(state_disk_room(s)) && state_shrink(s);
    make_reserve(s);
    return shrunk && state_pragma(s, "PRAGMA freelist_count") > 0;
}
