/* Writes the files of a batch's answers. It measures the sizes, makes files of zeros, and then
 * writes the files line by line. The memory needed is therefore one line, even for hundreds of
 * MiB of answers. */
#include <stdio.h>
#include <string.h>

#include "gateway/batches/store/files.h"
#include "gateway/batches/store/lines.h"
#include "gateway/batches/store/sql.h"

enum { OUTPUT_MAX_BYTES = 900 << 20 }; /* must be below SQLite's largest value, 10^9 bytes */
enum { OUTPUT_ANSWERS, OUTPUT_ERRORS, N_OUTPUTS };

struct output {
    uint64_t bytes, at;
    sqlite3_blob *blob;
};

struct outputs {
    const struct stored_batch *batch;
    int64_t no;
    enum batch_state why; /* new state of the batch */
    bool writes;          /* true = write the lines; false = only measure their sizes */
    struct output files[N_OUTPUTS];
    struct strbuf line;
};

static void make_line(struct strbuf *b, const char *batch_id, sqlite3_stmt *q, enum batch_state why)
{
    const char *prefix = strchr(batch_id, '_'); /* a damaged id may have no prefix */
    const char *hex = prefix ? prefix + 1 : batch_id;
    int n = sqlite3_column_int(q, 0);
    struct str custom = {(const char *)sqlite3_column_text(q, 1),
                         (size_t)sqlite3_column_bytes(q, 1)};
    strbuf_printf(b, "{\"id\":\"batch_req_%s_%d\",\"custom_id\":", hex, n);
    strbuf_append_json(b, custom);
    if (sqlite3_column_int(q, 2) == LINE_ANSWERED) {
        const char *answer = (const char *)sqlite3_column_text(q, 4);
        strbuf_printf(b, ",\"response\":{\"status_code\":%d,\"request_id\":\"req_%s_%d\",\"body\":",
                      sqlite3_column_int(q, 3), hex, n);
        if (answer)
            strbuf_append(b, answer, (size_t)sqlite3_column_bytes(q, 4));
        else
            strbuf_append_c(b, "null");
        strbuf_append_c(b, "},\"error\":null}\n");
    } else {
        bool late = why == BATCH_EXPIRED;
        strbuf_printf(
            b, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n",
            late ? "batch_expired" : "batch_cancelled",
            late ? "This request could not be executed before the completion window expired."
                 : "This request could not be executed before the batch was cancelled.");
    }
}

static enum status too_large(const struct outputs *o, struct error *err)
{
    return error_set(err, STATUS_LIMIT,
                     "the answers of %s have more than %d MiB, the limit. Use smaller batches",
                     o->batch->id, OUTPUT_MAX_BYTES >> 20);
}

static enum status add_line(struct state_store *s, struct outputs *o, sqlite3_stmt *q,
                            struct error *err)
{
    const bool is_answer =
        sqlite3_column_int(q, 2) == LINE_ANSWERED && sqlite3_column_int(q, 3) == 200;
    struct output *f = &o->files[is_answer ? OUTPUT_ANSWERS : OUTPUT_ERRORS];
    strbuf_reset(&o->line);
    make_line(&o->line, o->batch->id, q, o->why);
    const size_t n = o->line.len;
    if (o->line.failed || (!o->writes && n > OUTPUT_MAX_BYTES - f->bytes))
        return too_large(o, err);
    if (!o->writes) {
        f->bytes += n;
        return STATUS_OK;
    }
    if (!f->blob || n > f->bytes - f->at) /* in a damaged file two reads of a row may differ */
        return error_set(err, STATUS_IO,
                         "the database state.sqlite is damaged: a line of %s cannot be read. "
                         "Restore a backup of --state-dir",
                         o->batch->id);
    if (sqlite3_blob_write(f->blob, o->line.ptr, (int)n, (int)f->at) != SQLITE_OK)
        return state_error(s, err, "write answers");
    f->at += n;
    return STATUS_OK;
}

static enum status walk(struct state_store *s, struct outputs *o, struct error *err)
{
    sqlite3_stmt *q = state_prepare(
        s, "SELECT n, custom_id, state, status, answer FROM line WHERE batch = ? ORDER BY n", err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, o->no);
    int rc = SQLITE_ROW;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (rc = sqlite3_step(q)) == SQLITE_ROW)
        status = add_line(s, o, q, err);
    if (status == STATUS_OK && rc != SQLITE_DONE)
        status = state_error(s, err, "collect answers");
    sqlite3_finalize(q);
    return status;
}

/* Makes a file of zeros of the measured size and opens it for writing. */
static enum status open_output(struct state_store *s, struct output *o, struct stored_file *f,
                               struct error *err)
{
    TRY(state_insert_file(s, f, (struct str){NULL, o->bytes}, err));
    const int64_t no = sqlite3_last_insert_rowid(s->db);
    return sqlite3_blob_open(s->db, "main", "file", "content", no, 1, &o->blob) == SQLITE_OK
               ? STATUS_OK
               : state_error(s, err, "write answers");
}

static enum status open_outputs(struct state_store *s, struct outputs *o, struct stored_batch *b,
                                uint64_t now_s, struct error *err)
{
    static const char *const words[N_OUTPUTS] = {"output", "error"};
    char *const ids[N_OUTPUTS] = {b->output_file, b->error_file};
    for (int i = 0; i < N_OUTPUTS; i++) {
        struct stored_file f = {.tenant = b->tenant, .purpose = "batch_output", .created_s = now_s};
        if (o->files[i].bytes == 0)
            continue;
        snprintf(f.filename, sizeof f.filename, "%s_%s.jsonl", b->id, words[i]);
        TRY(open_output(s, &o->files[i], &f, err));
        memcpy(ids[i], f.id, STATE_ID_BYTES);
    }
    return STATUS_OK;
}

/* Closes the output and error files of a batch. Returns the first error. */
static enum status close_outputs(struct state_store *s, struct outputs *o, enum status so_far,
                                 struct error *err)
{
    for (int i = 0; i < N_OUTPUTS; i++) {
        const struct output *f = &o->files[i];
        /* SQLite accepts NULL here */
        if (sqlite3_blob_close(f->blob) != SQLITE_OK && so_far == STATUS_OK)
            so_far = state_error(s, err, "write answers");
        if (so_far == STATUS_OK && f->at != f->bytes)
            so_far = error_set(err, STATUS_IO,
                               "the database state.sqlite is damaged: lines of %s cannot be read. "
                               "Restore a backup of --state-dir",
                               o->batch->id);
    }
    return so_far;
}

enum status state_write_outputs(struct state_store *s, struct stored_batch *b, int64_t no,
                                enum batch_state why, uint64_t now_s, struct error *err)
{
    struct outputs o = {.batch = b, .no = no, .why = why};
    strbuf_init(&o.line, OUTPUT_MAX_BYTES);
    enum status status = walk(s, &o, err);
    if (status == STATUS_OK)
        status = open_outputs(s, &o, b, now_s, err);
    o.writes = true;
    if (status == STATUS_OK)
        status = walk(s, &o, err);
    status = close_outputs(s, &o, status, err);
    strbuf_fini(&o.line);
    return status;
}
