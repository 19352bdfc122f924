/* Limits a tenant's share of the store. A tenant may use at most a fixed multiple of the space
 * that is still free. A single tenant may use 7/8 of the store. A later tenant still finds
 * space, and a tenant with little data is refused last. These are the dynamic thresholds of
 * shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
 * While an eighth of the store is free, no tenant can exceed its share, so nothing is counted. */
#include <stdio.h>

#include "gateway/batches/store/share.h"
#include "gateway/batches/store/sql.h"

/* `ROW_BYTES` is an upper bound for the bytes of a row without its content, including its index
 * entries. Measured were 415 bytes for a file with the longest name, and 530 bytes for a batch
 * with the longest failure. */
enum { ROW_BYTES = 640 };

static uint64_t share_free(struct state_store *s, uint64_t *max)
{
    const uint64_t pages = state_pragma(s, "PRAGMA page_count"),
                   unused = state_pragma(s, "PRAGMA freelist_count"),
                   used = pages > unused ? pages - unused : 0;
    *max = state_pragma(s, "PRAGMA max_page_count");
    const uint64_t left = *max > used ? *max - used : 0;
    *max *= STATE_PAGE_BYTES;
    return left * STATE_PAGE_BYTES;
}

/* Adds the bytes of a tenant's rows to *held, and stops above `enough`. */
static enum status add_rows(struct state_store *s, const char *sql, uint64_t tenant,
                            uint64_t enough, uint64_t *held, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, sql, err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, (sqlite3_int64)tenant);
    int rc = SQLITE_ROW;
    while (*held <= enough && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const int64_t bytes = sqlite3_column_int64(q, 0);
        /* a damaged row may have a negative size */
        *held += ROW_BYTES + (bytes > 0 ? (uint64_t)bytes : 0);
    }
    sqlite3_finalize(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? STATUS_OK
                                                 : state_error(s, err, "count a tenant's bytes");
}

enum status state_share(struct state_store *s, uint64_t tenant, uint64_t bytes, uint32_t share,
                        struct error *err)
{
    uint64_t max, held = bytes;
    const uint64_t unused = share_free(s, &max), left = unused > bytes ? unused - bytes : 0;
    if (left >= max / (share + 1))
        return STATUS_OK;
    const uint64_t allowed = left * share;
    TRY(add_rows(s, "SELECT bytes FROM batch_bytes WHERE tenant = ?", tenant, allowed, &held, err));
    TRY(add_rows(s, "SELECT length(CAST(metadata AS BLOB)) FROM batch WHERE tenant = ?", tenant,
                 allowed, &held, err));
    TRY(add_rows(s, "SELECT bytes FROM file WHERE tenant = ? ORDER BY no DESC", tenant, allowed,
                 &held, err));
    if (held <= allowed)
        return STATUS_OK;
    return error_set(err, STATUS_DENIED,
                     "the store has %llu of %llu bytes left, and these are reserved for other "
                     "tenants. Delete some files",
                     (unsigned long long)unused, (unsigned long long)max);
}

uint64_t state_tenant_of_batch(struct state_store *s, int64_t batch_no)
{
    char sql[80];
    snprintf(sql, sizeof sql, "SELECT tenant FROM batch WHERE no = %lld", (long long)batch_no);
    return state_pragma(s, sql);
}

enum status state_share_batch(struct state_store *s, int64_t no, uint64_t tenant, uint64_t bytes,
                              struct error *err)
{
    sqlite3_stmt *q = state_prepare(
        s, "INSERT OR REPLACE INTO batch_bytes (no, tenant, bytes) VALUES (?,?,?)", err);
    if (q) {
        sqlite3_bind_int64(q, 1, no);
        sqlite3_bind_int64(q, 2, (sqlite3_int64)tenant);
        sqlite3_bind_int64(q, 3, (sqlite3_int64)bytes);
    }
    return state_run(s, q, "count a batch's bytes", err);
}

enum status state_share_answer(struct state_store *s, int64_t no, uint32_t i_line, uint64_t bytes,
                               struct error *err)
{
    sqlite3_stmt *q = state_prepare(
        s,
        "UPDATE batch_bytes SET bytes = bytes + coalesce((SELECT ?3 - length(CAST(body AS BLOB)) "
        "FROM line WHERE batch = ?1 AND n = ?2 AND state = 1), 0) WHERE no = ?1",
        err);
    if (q) {
        sqlite3_bind_int64(q, 1, no);
        sqlite3_bind_int64(q, 2, i_line);
        sqlite3_bind_int64(q, 3, (sqlite3_int64)bytes);
    }
    return state_run(s, q, "count an answer's bytes", err);
}

enum status state_share_end(struct state_store *s, int64_t no, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, "DELETE FROM batch_bytes WHERE no = ?", err);
    if (q)
        sqlite3_bind_int64(q, 1, no);
    return state_run(s, q, "count a batch's bytes", err);
}
