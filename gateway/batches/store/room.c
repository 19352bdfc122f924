/* Keeps free space on the store's disk.
 * A deletion frees pages in the database, but must first write some pages into SQLite's log. On
 * a full disk it would fail for lack of the space that it is about to free. The store therefore
 * keeps a reserve, a file of zeros next to the database.
 * A deletion that finds no space removes the reserve and tries again. Then unused pages at the
 * end of the database are returned to the disk. Only a few pages are returned at a time, because
 * moving them needs space too. Finally the reserve is created again.
 * The reserve does not weaken transactions, because the log and its commits are unchanged. A
 * crash between two steps leaves a database without a reserve, and the next tick creates it
 * again. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/log.h"
#include "gateway/batches/store/room.h"
#include "gateway/batches/store/sql.h"

enum {
    RESERVE_BYTES = 2 << 20, /* size of the reserve; deleting 512 MiB writes 1.2 MB of page lists */
    STEP_MIN_PAGES = 16,
    /* one call returns at most 4 MiB of pages, so that other calls can run in between */
    SHRINK_MAX_PAGES = 1024,
    /* `FRAMES_PER_PAGE` counts the log frames per moved page: the page, its parent and its
     * entry. The number is doubled because other programs write to the disk too. */
    FRAMES_PER_PAGE = 6,
};
/* ---- the reserve ---- */

static void reserve_path(const struct state_store *s, char out[STATE_PATH_BYTES])
{
    snprintf(out, STATE_PATH_BYTES, "%s/state.reserve", s->dir);
}

/* Returns the size of the reserve: at most an eighth of the disk. */
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

/* SQLite may be built to write zeros over deleted data (secure_delete). The zeros take as much
 * of the log as the file is long. On a full disk, the pages of a deletion are returned to the
 * disk without zeros. */
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
    (void)state_checkpoint(s); /* the log itself may occupy the missing space */
    while (done < SHRINK_MAX_PAGES) {
        uint64_t unused = state_pragma(s, "PRAGMA freelist_count");
        snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%llu)",
                 (unsigned long long)pages_that_fit(s));
        if (unused == 0 || state_exec(s, sql, &ignored) != STATUS_OK)
            break;
        (void)state_checkpoint(s);
        uint64_t left = state_pragma(s, "PRAGMA freelist_count");
        if (left >= unused) /* a database created without incremental_vacuum frees nothing */
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
