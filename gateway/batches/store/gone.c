/* Removes deleted large files, which are hidden at once and lose their content piece by piece.
 *   a file ──hidden: its number is in `gone`──▶ zeros over its content, one piece in each step
 *      ──▶ its row and its pages go, without zeros of SQLite's own
 * Deleting a file of 256 MiB at once, with zeros over it, would block the store's only thread
 * for seconds. A piece takes as long as a small upload. When the disk is short of space, or an
 * upload does not fit, the row is deleted without zeros, like SQLite's secure_delete = FAST.
 * Zeros would first be written to the log and use the space that the deletion must free.
 * Each step is a transaction. After a crash the next process continues. The next `state_look`
 * repeats a step that cannot write. */
#include "gateway/batches/store/gone.h"
#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/log.h"
#include "gateway/batches/store/open.h"
#include "gateway/batches/store/room.h"
#include "gateway/batches/store/sql.h"

#include "common/base/mem.h"

enum status state_hide_file(struct state_store *s, int64_t no, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, "INSERT INTO gone (no, zeroed) VALUES (?, 0)", err);
    if (q)
        sqlite3_bind_int64(q, 1, no);
    return state_run(s, q, "hide a file", err);
}

/* Finds the next deleted file: its row, and how many of its bytes are zeros already. Returns
 * false when there is none. */
static bool find(struct state_store *s, int64_t *no, int64_t *zeroed)
{
    struct error ignored;
    sqlite3_stmt *q = state_prepare(s, "SELECT no, zeroed FROM gone LIMIT 1", &ignored);
    bool found = q && sqlite3_step(q) == SQLITE_ROW;
    *no = found ? sqlite3_column_int64(q, 0) : 0;
    *zeroed = found ? sqlite3_column_int64(q, 1) : 0;
    if (*zeroed < 0) /* a damaged row may have a negative position */
        *zeroed = 0;
    sqlite3_finalize(q);
    return found;
}

static enum status run(struct state_store *s, const char *sql, int64_t no, int64_t zeroed,
                       struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, sql, err);
    if (q) {
        sqlite3_bind_int64(q, 1, no);
        if (sqlite3_bind_parameter_count(q) > 1)
            sqlite3_bind_int64(q, 2, zeroed);
    }
    return state_run(s, q, "delete a piece", err);
}

static enum status drop(struct state_store *s, int64_t no, struct error *err)
{
    TRY(state_begin(s, err));
    state_overwrite(s, false);
    enum status status = run(s, "DELETE FROM file WHERE no = ?", no, 0, err);
    if (status == STATUS_OK)
        status = run(s, "DELETE FROM gone WHERE no = ?", no, 0, err);
    status = state_end(s, status, err);
    state_overwrite(s, true);
    return status;
}

static enum status write_zeros(struct state_store *s, sqlite3_blob *blob, int64_t at, size_t n,
                               struct error *err)
{
    char *zeros = mem_zalloc(n);
    int rc = sqlite3_blob_write(blob, zeros, (int)n, (int)at);
    mem_free(zeros);
    return rc == SQLITE_OK ? STATUS_OK : state_error(s, err, "delete a piece");
}

/* Writes zeros over one piece, within a transaction. *done is set after the last piece. */
static enum status zero(struct state_store *s, int64_t no, int64_t from, bool *done,
                        struct error *err)
{
    sqlite3_blob *blob = NULL;
    if (sqlite3_blob_open(s->db, "main", "file", "content", no, 1, &blob) != SQLITE_OK) {
        sqlite3_blob_close(blob);
        *done = true; /* the row is missing or unreadable, so it is deleted without zeros */
        return STATUS_OK;
    }
    const int64_t left = sqlite3_blob_bytes(blob) - from;
    const size_t n = left > STATE_PIECE_BYTES ? STATE_PIECE_BYTES : left > 0 ? (size_t)left : 0;
    enum status status = n > 0 ? write_zeros(s, blob, from, n, err) : STATUS_OK;
    sqlite3_blob_close(blob);
    *done = left <= STATE_PIECE_BYTES;
    return status != STATUS_OK || *done ? status
                                        : run(s, "UPDATE gone SET zeroed = ?2 WHERE no = ?1", no,
                                              from + STATE_PIECE_BYTES, err);
}

bool state_sweep(struct state_store *s)
{
    struct error ignored;
    int64_t no, zeroed;
    bool done = state_disk_is_low(s);
    if (!s->db || !find(s, &no, &zeroed))
        return false;
    if (!done) {
        if (state_begin(s, &ignored) != STATUS_OK ||
            state_end(s, zero(s, no, zeroed, &done, &ignored), &ignored) != STATUS_OK)
            return false;
    }
    return !done || drop(s, no, &ignored) == STATUS_OK;
}

bool state_free_some(struct state_store *s, enum status so)
{
    struct error ignored;
    int64_t no, zeroed;
    if (so == STATUS_DENIED)
        return state_sweep(s);
    if (!s->db || (so != STATUS_NO_MEMORY && so != STATUS_LIMIT))
        return false;
    if (find(s, &no, &zeroed) && (drop(s, no, &ignored) == STATUS_OK ||
                                  (state_make_room(s) && drop(s, no, &ignored) == STATUS_OK)))
        return true;
    return so == STATUS_NO_MEMORY && state_shrink(s);
}
