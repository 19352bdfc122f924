#include "gateway/batches/store/sql.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/random.h"
#include "gateway/batches/store/disk.h"

bool state_errno_is_no_room(int e)
{
    return e == ENOSPC || e == EDQUOT || e == EFBIG;
}

/* Returns the status of the last error. `e` is errno after the failed call: sqlite3_system_errno
 * is not set in all cases, and state_ready clears errno at the start of each call. */
static enum status status_of(struct state_store *s, int e)
{
    switch (sqlite3_errcode(s->db) & 0xff) {
    case SQLITE_TOOBIG:
        return STATUS_LIMIT;
    case SQLITE_FULL:
        return state_disk_is_full(s) ? STATUS_NO_MEMORY : STATUS_LIMIT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return STATUS_EXISTS;
    case SQLITE_IOERR:
        if (state_errno_is_no_room(e))
            return STATUS_NO_MEMORY;
        s->broken = true;
        return STATUS_IO;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        s->broken = true;
        return STATUS_IO;
    default:
        return STATUS_IO;
    }
}

enum status state_error(struct state_store *s, struct error *err, const char *what)
{
    int e = errno;
    enum status status = status_of(s, e);
    bool says_why = s->broken && e != 0 && (sqlite3_errcode(s->db) & 0xff) != SQLITE_NOTADB;
    s->spilled = s->spilled || status == STATUS_NO_MEMORY;
    s->disk_full = s->disk_full || status == STATUS_NO_MEMORY;
    return error_set(err, status, "the database state.sqlite failed (%.80s): %s%s%s", what,
                     sqlite3_errmsg(s->db), says_why ? ": " : "", says_why ? strerror(e) : "");
}

enum status state_exec(struct state_store *s, const char *sql, struct error *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? STATUS_OK
                                                                   : state_error(s, err, sql);
}

sqlite3_stmt *state_prepare(struct state_store *s, const char *sql, struct error *err)
{
    sqlite3_stmt *q = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, &q, NULL) != SQLITE_OK)
        (void)state_error(s, err, sql);
    return q;
}

void state_bind(sqlite3_stmt *q, int i, struct str text)
{
    sqlite3_bind_text64(q, i, text.ptr ? text.ptr : "", text.len, SQLITE_STATIC, SQLITE_UTF8);
}

enum status state_run(struct state_store *s, sqlite3_stmt *q, const char *what, struct error *err)
{
    if (!q)
        return STATUS_IO;
    enum status status = sqlite3_step(q) == SQLITE_DONE ? STATUS_OK : state_error(s, err, what);
    sqlite3_finalize(q);
    return status;
}

void state_column(sqlite3_stmt *q, int i, char *out, size_t size)
{
    const unsigned char *text = sqlite3_column_text(q, i);
    snprintf(out, size, "%s", text ? (const char *)text : "");
}

void state_make_id(const char *prefix, char out[STATE_ID_BYTES])
{
    snprintf(out, STATE_ID_BYTES, "%s%016llx%016llx", prefix,
             (unsigned long long)random_secure_u64(), (unsigned long long)random_secure_u64());
}

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
