/* Stores batches and their lines, from an input file to the files of answers.
 * batch_calls.c and runner.c call this file on the store's thread. Lines are read from an input
 * file, are taken and answered one by one, and are written to the output and error files when
 * the batch ends.
 * Each public function is one transaction: it commits all of its changes or none. The end of a
 * batch writes the files and deletes the lines together, so each line is in the files exactly
 * once. Values from the database are checked, because the file may be damaged. */
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/batch/input.h"
#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/files.h"
#include "gateway/batches/store/gone.h"
#include "gateway/batches/store/lines.h"
#include "gateway/batches/store/log.h"
#include "gateway/batches/store/open.h"
#include "gateway/batches/store/room.h"
#include "gateway/batches/store/share.h"
#include "gateway/batches/store/sql.h"
#include "gateway/batches/store/store.h"

enum { OUTPUT_MAX_BYTES = 900 << 20 }; /* must be below SQLite's largest value, 10^9 bytes */

#define BATCH_COLUMNS                                                                              \
    "id, tenant, endpoint, input, output, error, state, created, expires, ended, lines, "          \
    "completed, failed, metadata, failure, failure_line, no"
enum { COLUMN_NO = 16 };

void stored_batch_fini(struct stored_batch *b)
{
    mem_free(b->owned_metadata);
    b->owned_metadata = NULL;
}

/* Reads the state of a batch. A damaged file may have any value in a column. An invalid state
 * counts as failed, so that no line of the batch runs. */
static enum batch_state column_state(sqlite3_stmt *q, int i)
{
    const int64_t state = sqlite3_column_int64(q, i);
    return state >= 0 && state < BATCH_STATE_COUNT ? (enum batch_state)state : BATCH_FAILED;
}

static int64_t read_batch(sqlite3_stmt *q, struct stored_batch *b)
{
    const char *metadata = (const char *)sqlite3_column_text(q, 13);
    *b = (struct stored_batch){
        .tenant = (uint64_t)sqlite3_column_int64(q, 1),
        .state = column_state(q, 6),
        .created_s = (uint64_t)sqlite3_column_int64(q, 7),
        .expires_s = (uint64_t)sqlite3_column_int64(q, 8),
        .ended_s = (uint64_t)sqlite3_column_int64(q, 9),
        .n_lines = (uint32_t)sqlite3_column_int64(q, 10),
        .n_completed = (uint32_t)sqlite3_column_int64(q, 11),
        .n_failed = (uint32_t)sqlite3_column_int64(q, 12),
        .owned_metadata = metadata ? mem_strdup(metadata) : NULL,
        .i_line_of_failure = (uint32_t)sqlite3_column_int64(q, 15),
    };
    state_column(q, 0, b->id, sizeof b->id);
    state_column(q, 2, b->endpoint, sizeof b->endpoint);
    state_column(q, 3, b->input_file, sizeof b->input_file);
    state_column(q, 4, b->output_file, sizeof b->output_file);
    state_column(q, 5, b->error_file, sizeof b->error_file);
    state_column(q, 14, b->failure, sizeof b->failure);
    return sqlite3_column_int64(q, COLUMN_NO);
}

/* ---- creating ---- */

static enum status insert_batch(struct state_store *s, const struct stored_batch *b, int64_t *no,
                                struct error *err)
{
    sqlite3_stmt *q =
        state_prepare(s,
                      "INSERT INTO batch (id, tenant, endpoint, input, state, created, expires, "
                      "metadata, lines, failure_line) VALUES (?,?,?,?,?,?,?,?,0,0)",
                      err);
    if (!q)
        return STATUS_IO;
    state_bind(q, 1, str_from(b->id));
    sqlite3_bind_int64(q, 2, (sqlite3_int64)b->tenant);
    state_bind(q, 3, str_from(b->endpoint));
    state_bind(q, 4, str_from(b->input_file));
    sqlite3_bind_int(q, 5, BATCH_IN_PROGRESS);
    sqlite3_bind_int64(q, 6, (sqlite3_int64)b->created_s);
    sqlite3_bind_int64(q, 7, (sqlite3_int64)b->expires_s);
    if (b->owned_metadata)
        state_bind(q, 8, str_from(b->owned_metadata));
    TRY(state_run(s, q, "add a batch", err));
    *no = sqlite3_last_insert_rowid(s->db);
    return STATUS_OK;
}

/* Inserts one line of the input file. Returns STATUS_INVALID with the reason in `b->failure`
 * when the file is not a valid batch. */
static enum status insert_line(struct state_store *s, sqlite3_stmt *q, struct stored_batch *b,
                               struct str text, struct error *err)
{
    struct batch_input_line l;
    if (!batch_input_read(text, b->endpoint, &l, b->failure))
        return STATUS_INVALID;
    sqlite3_reset(q);
    sqlite3_bind_int64(q, 2, b->n_lines);
    state_bind(q, 3, (struct str){l.owned_custom_id, l.custom_id_len});
    state_bind(q, 4, (struct str){l.owned_body, l.body_len});
    enum status status = STATUS_OK;
    if (sqlite3_step(q) == SQLITE_DONE) {
        b->n_lines++;
    } else if ((sqlite3_errcode(s->db) & 0xff) == SQLITE_CONSTRAINT) {
        snprintf(b->failure, sizeof b->failure, "custom_id: another line has the same custom_id");
        status = STATUS_INVALID;
    } else {
        status = state_error(s, err, "add a line");
    }
    sqlite3_reset(q); /* until this reset the statement borrows the texts that are freed next */
    batch_input_line_fini(&l);
    return status;
}

static enum status insert_lines(struct state_store *s, int64_t no, struct stored_batch *b,
                                struct str input, struct error *err)
{
    struct str line;
    uint32_t i_line = 0;
    sqlite3_stmt *q = state_prepare(
        s, "INSERT INTO line (batch, n, custom_id, body, state) VALUES (?,?,?,?,0)", err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, no);
    enum status status = STATUS_OK;
    while (status == STATUS_OK && batch_input_next(&input, &line, &i_line)) {
        if (b->n_lines < STATE_MAX_LINES) {
            status = insert_line(s, q, b, line, err);
        } else {
            snprintf(b->failure, sizeof b->failure,
                     "the file has more than %d lines, and a batch can have no more",
                     STATE_MAX_LINES);
            status = STATUS_INVALID;
        }
    }
    sqlite3_finalize(q);
    if (status == STATUS_INVALID)
        b->i_line_of_failure = i_line;
    if (status == STATUS_OK && b->n_lines == 0) {
        snprintf(b->failure, sizeof b->failure, "the file has no lines");
        status = STATUS_INVALID;
    }
    return status;
}

static enum status drop_lines(struct state_store *s, int64_t no, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, "DELETE FROM line WHERE batch = ?", err);
    if (q)
        sqlite3_bind_int64(q, 1, no);
    TRY(state_run(s, q, "drop a batch's lines", err));
    return state_share_end(s, no, err);
}

/* Stores the result of reading the input: the number of lines, or the reason for a failure. */
static enum status set_read(struct state_store *s, int64_t no, const struct stored_batch *b,
                            struct error *err)
{
    sqlite3_stmt *q = state_prepare(s,
                                    "UPDATE batch SET state = ?2, lines = ?3, failure = ?4, "
                                    "failure_line = ?5, ended = ?6 WHERE no = ?1",
                                    err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, no);
    sqlite3_bind_int(q, 2, (int)b->state);
    sqlite3_bind_int64(q, 3, b->n_lines);
    state_bind(q, 4, str_from(b->failure));
    sqlite3_bind_int64(q, 5, b->i_line_of_failure);
    sqlite3_bind_int64(q, 6, (sqlite3_int64)b->ended_s);
    return state_run(s, q, "read a batch", err);
}

/* Checks the free space and the tenant's share before the input file is read, because the caller
 * may repeat the call many times. */
static enum status may_add(struct state_store *s, const struct stored_batch *b, struct error *err)
{
    int64_t no;
    uint64_t bytes;
    TRY(state_find_file(s, b->tenant, str_from(b->input_file), &no, &bytes, err));
    TRY(state_wants(s, bytes, err));
    return state_share(s, b->tenant, bytes + (b->owned_metadata ? strlen(b->owned_metadata) : 0),
                       STATE_SHARE_NEW, err);
}

static enum status add_batch(struct state_store *s, struct stored_batch *b, struct error *err)
{
    struct stored_file f;
    struct strbuf input;
    int64_t no = 0;
    strbuf_init(&input, OUTPUT_MAX_BYTES);
    enum status status = may_add(s, b, err);
    if (status == STATUS_OK)
        status = state_get_file(s, b->tenant, str_from(b->input_file), &f, &input, err);
    if (status == STATUS_OK)
        status = insert_batch(s, b, &no, err);
    if (status == STATUS_OK)
        status = state_share_batch(s, no, b->tenant, input.len, err);
    if (status == STATUS_OK)
        status = insert_lines(s, no, b, strbuf_str(&input), err);
    strbuf_fini(&input);
    if (status == STATUS_INVALID) {
        b->state = BATCH_FAILED;
        b->ended_s = b->created_s;
        b->n_lines = 0;
        status = drop_lines(s, no, err);
    }
    return status == STATUS_OK ? set_read(s, no, b, err) : status;
}

enum status state_add_batch(struct state_store *s, struct stored_batch *b, struct error *err)
{
    state_make_id("batch_", b->id);
    b->state = BATCH_IN_PROGRESS;
    b->n_lines = 0;
    TRY(state_begin(s, err));
    enum status status = state_end(s, add_batch(s, b, err), err);
    return state_free_some(s, status) ? STATUS_AGAIN : status;
}

/* ---- reading ---- */

static enum status get_batch(struct state_store *s, uint64_t tenant, struct str id,
                             struct stored_batch *out, int64_t *no, struct error *err)
{
    sqlite3_stmt *q =
        state_prepare(s, "SELECT " BATCH_COLUMNS " FROM batch WHERE id = ? AND tenant = ?", err);
    if (!q)
        return STATUS_IO;
    state_bind(q, 1, id);
    sqlite3_bind_int64(q, 2, (sqlite3_int64)tenant);
    int rc = sqlite3_step(q);
    enum status status = STATUS_OK;
    if (rc == SQLITE_ROW)
        *no = read_batch(q, out);
    else
        status = rc == SQLITE_DONE ? error_set(err, STATUS_NOT_FOUND,
                                               "there is no batch with this id. Check the id")
                                   : state_error(s, err, "get a batch");
    sqlite3_finalize(q);
    return status;
}

enum status state_get_batch(struct state_store *s, uint64_t tenant, struct str id,
                            struct stored_batch *out, struct error *err)
{
    int64_t no;
    TRY(state_ready(s, err));
    return get_batch(s, tenant, id, out, &no, err);
}

enum status state_list_batches(struct state_store *s, const struct state_query *query,
                               bool (*each)(void *ctx, const struct stored_batch *b), void *ctx,
                               bool *more, struct error *err)
{
    TRY(state_ready(s, err));
    sqlite3_stmt *q =
        state_prepare(s,
                      "SELECT " BATCH_COLUMNS
                      " FROM batch WHERE tenant = ?1 AND no <= CASE ?2 WHEN '' THEN " STATE_LAST_NO
                      " ELSE (SELECT no - 1 FROM batch WHERE id = ?2 AND tenant = ?1) END "
                      "ORDER BY no DESC LIMIT ?3",
                      err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, (sqlite3_int64)query->tenant);
    state_bind(q, 2, query->after);
    sqlite3_bind_int64(q, 3, (sqlite3_int64)query->limit + 1);
    int rc;
    uint32_t n = 0;
    bool wanted = true;
    *more = false;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && !(*more = !wanted || n++ == query->limit)) {
        struct stored_batch b;
        (void)read_batch(q, &b);
        wanted = each(ctx, &b);
        stored_batch_fini(&b);
    }
    enum status status =
        rc == SQLITE_ROW || rc == SQLITE_DONE ? STATUS_OK : state_error(s, err, "list batches");
    sqlite3_finalize(q);
    return status;
}

/* ---- ending ---- */

static enum status set_ended(struct state_store *s, int64_t no, const struct stored_batch *b,
                             struct error *err)
{
    sqlite3_stmt *q = state_prepare(s,
                                    "UPDATE batch SET state = ?2, ended = ?3, output = ?4, error = "
                                    "?5, failure = ?6, failure_line = ?7 "
                                    "WHERE no = ?1",
                                    err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, no);
    sqlite3_bind_int(q, 2, (int)b->state);
    sqlite3_bind_int64(q, 3, (sqlite3_int64)b->ended_s);
    state_bind(q, 4, str_from(b->output_file));
    state_bind(q, 5, str_from(b->error_file));
    state_bind(q, 6, str_from(b->failure));
    sqlite3_bind_int64(q, 7, b->i_line_of_failure);
    TRY(state_run(s, q, "end a batch", err));
    /* In a damaged file a row may be found but not changed. Without an error that row would be
     * found again and again. */
    return sqlite3_changes(s->db) > 0
               ? STATUS_OK
               : error_set(err, STATUS_IO,
                           "the database state.sqlite is damaged: the row "
                           "of an ended batch cannot be changed. Restore a backup of --state-dir");
}

/* Fails a batch, within a transaction. Its answers are deleted with the lines, because the
 * answers do not fit into the store. */
static enum status fail_batch(struct state_store *s, struct stored_batch *b, int64_t no,
                              uint64_t now_s, const struct error *why, struct error *err)
{
    b->state = BATCH_FAILED;
    b->ended_s = now_s;
    b->output_file[0] = b->error_file[0] = '\0';
    snprintf(b->failure, sizeof b->failure, "there is no room to store its answers: %.150s",
             why->text);
    TRY(drop_lines(s, no, err));
    return set_ended(s, no, b, err);
}

/* Writes the files after a savepoint, because possibly only a part of a file fits. The savepoint
 * ends before any line is deleted, because SQLite keeps a copy of each page that changes after a
 * savepoint. */
static enum status write_files(struct state_store *s, struct stored_batch *b, int64_t no,
                               enum batch_state why, uint64_t now_s, struct error *err)
{
    struct error ignored;
    TRY(state_exec(s, "SAVEPOINT files", err));
    enum status status = state_write_outputs(s, b, no, why, now_s, err);
    if (status == STATUS_OK)
        return state_exec(s, "RELEASE files", err);
    if (!sqlite3_get_autocommit(s->db) && status == STATUS_LIMIT &&
        state_exec(s, "ROLLBACK TO files; RELEASE files", &ignored) != STATUS_OK)
        return STATUS_IO;
    return status;
}

/* Ends a batch, within a transaction: writes the files, deletes the lines and sets the state to
 * `why`. When the files do not fit, the batch fails. Otherwise it would block all later batches. */
static enum status end_batch(struct state_store *s, struct stored_batch *b, int64_t no,
                             enum batch_state why, uint64_t now_s, struct error *err)
{
    enum status status = write_files(s, b, no, why, now_s, err);
    if (status == STATUS_LIMIT && !sqlite3_get_autocommit(s->db)) {
        struct error full = *err;
        return fail_batch(s, b, no, now_s, &full, err);
    }
    if (status != STATUS_OK)
        return status;
    b->state = why;
    b->ended_s = now_s;
    TRY(drop_lines(s, no, err));
    return set_ended(s, no, b, err);
}

static enum status cancel(struct state_store *s, uint64_t tenant, struct str id, uint64_t now_s,
                          struct stored_batch *out, int64_t *no, struct error *err)
{
    TRY(get_batch(s, tenant, id, out, no, err));
    if (out->state == BATCH_IN_PROGRESS)
        return end_batch(s, out, *no, BATCH_CANCELLED, now_s, err);
    return error_set(err, STATUS_INVALID,
                     "the batch cannot be changed, because it has already ended");
}

static enum status cancel_batch(struct state_store *s, uint64_t tenant, struct str id,
                                uint64_t now_s, struct stored_batch *out, int64_t *batch_no,
                                struct error *err)
{
    *out = (struct stored_batch){0};
    TRY(state_begin(s, err));
    enum status status = state_end(s, cancel(s, tenant, id, now_s, out, batch_no, err), err);
    if (status != STATUS_OK)
        stored_batch_fini(out);
    return status;
}

enum status state_cancel_batch(struct state_store *s, uint64_t tenant, struct str id,
                               uint64_t now_s, struct stored_batch *out, int64_t *batch_no,
                               struct error *err)
{
    enum status status = cancel_batch(s, tenant, id, now_s, out, batch_no, err);
    if (status == STATUS_NO_MEMORY && state_make_room(s))
        status = cancel_batch(s, tenant, id, now_s, out, batch_no, err);
    if (status == STATUS_OK)
        (void)state_settle(s);
    return status;
}

/* Finds the oldest batch for a condition with one number. Returns STATUS_NOT_FOUND when no batch
 * meets the condition. */
static enum status find_batch(struct state_store *s, const char *sql, int64_t number,
                              struct stored_batch *b, int64_t *no, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, sql, err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, number);
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        *no = read_batch(q, b);
    enum status status = rc == SQLITE_ROW    ? STATUS_OK
                         : rc == SQLITE_DONE ? STATUS_NOT_FOUND
                                             : state_error(s, err, "find a batch");
    sqlite3_finalize(q);
    return status;
}

/* ---- lines ---- */

static enum status expire(struct state_store *s, uint64_t now_s, struct error *err)
{
    struct stored_batch b;
    int64_t no;
    enum status status;
    while ((status = find_batch(
                s, "SELECT " BATCH_COLUMNS " FROM batch WHERE state = 0 AND expires <= ? LIMIT 1",
                (int64_t)now_s, &b, &no, err)) == STATUS_OK) {
        status = end_batch(s, &b, no, BATCH_EXPIRED, now_s, err);
        stored_batch_fini(&b);
        TRY(status);
    }
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status count_open(struct state_store *s, uint32_t *n_open, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, "SELECT count(*) FROM batch WHERE state = 0", err);
    if (!q)
        return STATUS_IO;
    enum status status =
        sqlite3_step(q) == SQLITE_ROW ? STATUS_OK : state_error(s, err, "count batches");
    *n_open = (uint32_t)sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return status;
}

static enum status take(struct state_store *s, uint32_t max, uint64_t now_s, struct taken_line *out,
                        uint32_t *n, uint32_t *n_open, struct error *err)
{
    TRY(expire(s, now_s, err));
    TRY(state_take_in_turn(s, max, out, n, err));
    return count_open(s, n_open, err);
}

enum status state_take_lines(struct state_store *s, uint32_t max, uint64_t now_s,
                             struct taken_line *out, uint32_t *n, uint32_t *n_open,
                             struct error *err)
{
    *n = *n_open = 0;
    TRY(state_begin(s, err));
    enum status status = state_end(s, take(s, max, now_s, out, n, n_open, err), err);
    while (status != STATUS_OK && *n > 0)
        mem_free(out[--*n].owned_body);
    return status;
}

enum status state_release_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                               struct error *err)
{
    TRY(state_begin(s, err));
    return state_end(s, state_move_line(s, batch_no, i_line, LINE_TAKEN, LINE_WAITING, err), err);
}

static enum status count_answer(struct state_store *s, int64_t batch_no, bool ok, uint64_t now_s,
                                struct error *err)
{
    struct stored_batch b;
    int64_t no;
    sqlite3_stmt *q = state_prepare(s,
                                    ok ? "UPDATE batch SET completed = completed + 1 WHERE no = ?"
                                       : "UPDATE batch SET failed = failed + 1 WHERE no = ?",
                                    err);
    if (q)
        sqlite3_bind_int64(q, 1, batch_no);
    TRY(state_run(s, q, "count an answer", err));
    enum status status =
        find_batch(s,
                   "SELECT " BATCH_COLUMNS
                   " FROM batch WHERE no = ? AND state = 0 AND completed + failed = lines",
                   batch_no, &b, &no, err);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    status = end_batch(s, &b, no, BATCH_COMPLETED, now_s, err);
    stored_batch_fini(&b);
    return status;
}

static enum status answer(struct state_store *s, int64_t batch_no, uint32_t i_line, int http_status,
                          struct str text, uint64_t now_s, struct error *err)
{
    TRY(state_share(s, state_tenant_of_batch(s, batch_no), text.len, STATE_SHARE_ANSWERS, err));
    TRY(state_share_answer(s, batch_no, i_line, text.len, err));
    sqlite3_stmt *q = state_prepare(s,
                                    "UPDATE line SET state = 2, status = ?3, answer = ?4, "
                                    "body = '' WHERE batch = ?1 AND n = ?2 AND state = 1",
                                    err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, batch_no);
    sqlite3_bind_int64(q, 2, i_line);
    sqlite3_bind_int(q, 3, http_status);
    state_bind(q, 4, text);
    TRY(state_run(s, q, "answer a line", err));
    return sqlite3_changes(s->db) == 0 ? STATUS_OK
                                       : count_answer(s, batch_no, http_status == 200, now_s, err);
}

/* Fails an open batch because an answer itself did not fit. */
static enum status fail_open(struct state_store *s, int64_t batch_no, uint64_t now_s,
                             const struct error *why, struct error *err)
{
    struct stored_batch b;
    int64_t no;
    enum status status =
        find_batch(s, "SELECT " BATCH_COLUMNS " FROM batch WHERE no = ? AND state = 0", batch_no,
                   &b, &no, err);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    status = fail_batch(s, &b, no, now_s, why, err);
    stored_batch_fini(&b);
    return status;
}

enum status state_answer_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                              int http_status, struct str text, uint64_t now_s, struct error *err)
{
    TRY(state_begin(s, err));
    enum status status =
        state_end(s, answer(s, batch_no, i_line, http_status, text, now_s, err), err);
    if (status != STATUS_LIMIT && status != STATUS_DENIED)
        return status;
    if (state_free_some(s, status))
        return STATUS_AGAIN;
    struct error full = *err;
    TRY(state_begin(s, err));
    return state_end(s, fail_open(s, batch_no, now_s, &full, err), err);
}
