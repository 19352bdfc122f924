/* Stores uploaded files and files of answers.
 * file_calls.c and download.c call this file on the store's thread. batches.c and output.c use
 * the functions of files.h within their own transactions.
 * A tenant finds only its own files. Each change is one transaction. A deleted file disappears
 * at once, but the content of a large file is removed piece by piece (gone.c). Every query
 * therefore has STATE_NOT_GONE. */
#include "gateway/batches/store/store.h"

#include <stdio.h>
#include <string.h>

#include "gateway/batches/store/blobs.h"
#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/files.h"
#include "gateway/batches/store/gone.h"
#include "gateway/batches/store/log.h"
#include "gateway/batches/store/open.h"
#include "gateway/batches/store/room.h"
#include "gateway/batches/store/share.h"
#include "gateway/batches/store/sql.h"

enum status state_insert_file(struct state_store *s, struct stored_file *f, struct str content,
                              struct error *err)
{
    TRY(state_wants(s, content.len, err));
    sqlite3_stmt *q = state_prepare(s,
                                    "INSERT INTO file (id, tenant, filename, purpose, created, "
                                    "bytes, content) VALUES (?,?,?,?,?,?,?)",
                                    err);
    if (!q)
        return STATUS_IO;
    state_make_id("file-", f->id);
    f->bytes = content.len;
    state_bind(q, 1, str_from(f->id));
    sqlite3_bind_int64(q, 2, (sqlite3_int64)f->tenant);
    state_bind(q, 3, str_from(f->filename));
    state_bind(q, 4, str_from(f->purpose));
    sqlite3_bind_int64(q, 5, (sqlite3_int64)f->created_s);
    sqlite3_bind_int64(q, 6, (sqlite3_int64)f->bytes);
    if (content.ptr)
        sqlite3_bind_blob64(q, 7, content.ptr, content.len, SQLITE_STATIC);
    else
        sqlite3_bind_zeroblob64(q, 7, content.len);
    return state_run(s, q, "add a file", err);
}

static enum status add_file(struct state_store *s, struct stored_file *f, struct str content,
                            struct error *err)
{
    TRY(state_begin(s, err));
    enum status status = state_share(s, f->tenant, content.len, STATE_SHARE_NEW, err);
    if (status == STATUS_OK)
        status = state_insert_file(s, f, content, err);
    return state_end(s, status, err);
}

enum status state_add_file(struct state_store *s, struct stored_file *f, struct str content,
                           struct error *err)
{
    enum status status = add_file(s, f, content, err);
    return state_free_some(s, status) ? STATUS_AGAIN : status;
}

#define FILE_COLUMNS "id, tenant, filename, purpose, created, bytes"

static void read_file(sqlite3_stmt *q, struct stored_file *f)
{
    *f = (struct stored_file){.tenant = (uint64_t)sqlite3_column_int64(q, 1),
                              .created_s = (uint64_t)sqlite3_column_int64(q, 4),
                              .bytes = (uint64_t)sqlite3_column_int64(q, 5)};
    state_column(q, 0, f->id, sizeof f->id);
    state_column(q, 2, f->filename, sizeof f->filename);
    state_column(q, 3, f->purpose, sizeof f->purpose);
}

enum status state_get_file(struct state_store *s, uint64_t tenant, struct str id,
                           struct stored_file *out, struct strbuf *content, struct error *err)
{
    TRY(state_ready(s, err));
    sqlite3_stmt *q = state_prepare(
        s,
        content ? "SELECT " FILE_COLUMNS
                  ", content FROM file WHERE id = ? AND tenant = ?" STATE_NOT_GONE
                : "SELECT " FILE_COLUMNS " FROM file WHERE id = ? AND tenant = ?" STATE_NOT_GONE,
        err);
    if (!q)
        return STATUS_IO;
    state_bind(q, 1, id);
    sqlite3_bind_int64(q, 2, (sqlite3_int64)tenant);
    int rc = sqlite3_step(q);
    enum status status = STATUS_OK;
    if (rc == SQLITE_ROW) {
        read_file(q, out);
        if (content &&
            !strbuf_append(content, sqlite3_column_blob(q, 6), (size_t)sqlite3_column_bytes(q, 6)))
            status = error_set(err, STATUS_LIMIT,
                               "the file is too large for one answer. Read it in parts");
    } else {
        status = rc == SQLITE_DONE ? error_set(err, STATUS_NOT_FOUND,
                                               "there is no file with this id. Check the id")
                                   : state_error(s, err, "get a file");
    }
    sqlite3_finalize(q);
    return status;
}

enum status state_find_file(struct state_store *s, uint64_t tenant, struct str id, int64_t *no,
                            uint64_t *bytes, struct error *err)
{
    sqlite3_stmt *q = state_prepare(
        s, "SELECT no, bytes FROM file WHERE id = ? AND tenant = ?" STATE_NOT_GONE, err);
    if (!q)
        return STATUS_IO;
    state_bind(q, 1, id);
    sqlite3_bind_int64(q, 2, (sqlite3_int64)tenant);
    int rc = sqlite3_step(q);
    enum status status =
        rc == SQLITE_ROW ? STATUS_OK
        : rc == SQLITE_DONE
            ? error_set(err, STATUS_NOT_FOUND, "there is no file with this id. Check the id")
            : state_error(s, err, "find a file");
    *no = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
    *bytes = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(q, 1) : 0;
    sqlite3_finalize(q);
    return status;
}

static enum status delete_now(struct state_store *s, int64_t no, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, "DELETE FROM file WHERE no = ?", err);
    if (q)
        sqlite3_bind_int64(q, 1, no);
    return state_run(s, q, "delete a file", err);
}

/* Deletes a file. A large file is removed piece by piece. On a full disk or in a full store any
 * file is removed at once, without zeros over its content, because writing zeros would need
 * space. */
static enum status delete_file(struct state_store *s, uint64_t tenant, struct str id,
                               struct error *err)
{
    int64_t no;
    uint64_t bytes;
    TRY(state_ready(s, err));
    state_close_blobs(s);
    TRY(state_find_file(s, tenant, id, &no, &bytes, err));
    if (bytes <= STATE_PIECE_BYTES)
        return delete_now(s, no, err);
    enum status status = state_hide_file(s, no, err);
    if (status != STATUS_NO_MEMORY && status != STATUS_LIMIT)
        return status;
    state_overwrite(s, false);
    status = delete_now(s, no, err);
    state_overwrite(s, true);
    return status;
}

enum status state_delete_file(struct state_store *s, uint64_t tenant, struct str id,
                              struct error *err)
{
    enum status status = delete_file(s, tenant, id, err);
    if (status == STATUS_NO_MEMORY && state_make_room(s))
        status = delete_file(s, tenant, id, err);
    if (status == STATUS_OK)
        (void)state_settle(s);
    return status;
}

enum status state_list_files(struct state_store *s, const struct state_query *query,
                             bool (*each)(void *ctx, const struct stored_file *f), void *ctx,
                             bool *more, struct error *err)
{
    const char *sql =
        query->oldest_first
            ? "SELECT " FILE_COLUMNS " FROM file WHERE tenant = ?1" STATE_NOT_GONE
              " AND (?2 = '' OR purpose = ?2) AND no >= CASE ?3 WHEN '' THEN 0 ELSE "
              "(SELECT no + 1 FROM file WHERE id = ?3 AND tenant = ?1) END ORDER BY no LIMIT ?4"
            : "SELECT " FILE_COLUMNS " FROM file WHERE tenant = ?1" STATE_NOT_GONE
              " AND (?2 = '' OR purpose = ?2) AND no <= CASE ?3 WHEN '' THEN " STATE_LAST_NO
              " ELSE (SELECT no - 1 FROM file WHERE id = ?3 AND tenant = ?1) END "
              "ORDER BY no DESC LIMIT ?4";
    TRY(state_ready(s, err));
    sqlite3_stmt *q = state_prepare(s, sql, err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, (sqlite3_int64)query->tenant);
    state_bind(q, 2, query->purpose);
    state_bind(q, 3, query->after);
    sqlite3_bind_int64(q, 4, (sqlite3_int64)query->limit + 1);
    int rc;
    uint32_t n = 0;
    bool wanted = true;
    *more = false;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && !(*more = !wanted || n++ == query->limit)) {
        struct stored_file f;
        read_file(q, &f);
        wanted = each(ctx, &f);
    }
    enum status status =
        rc == SQLITE_ROW || rc == SQLITE_DONE ? STATUS_OK : state_error(s, err, "list files");
    sqlite3_finalize(q);
    return status;
}

/* ---- contents ---- */

enum status state_read_file(struct state_store *s, uint64_t tenant, struct str id, uint64_t offset,
                            char *out, size_t n, struct error *err)
{
    int64_t no;
    uint64_t bytes;
    TRY(state_ready(s, err));
    /* the file may have been deleted since the previous slice */
    TRY(state_find_file(s, tenant, id, &no, &bytes, err));
    struct open_blob *b = state_blob(s, no, err);
    if (!b)
        return STATUS_IO;
    const uint64_t size = (uint64_t)sqlite3_blob_bytes(b->blob);
    if (offset > size || n > size - offset)
        return error_set(err, STATUS_INVALID,
                         "cannot read the file: the requested bytes are beyond its end");
    if (n > 0 && sqlite3_blob_read(b->blob, out, (int)n, (int)offset) != SQLITE_OK) {
        enum status status = state_error(s, err, "read a file");
        state_close_blob(b);
        return status;
    }
    return STATUS_OK;
}
