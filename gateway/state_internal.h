#pragma once
/* The inside of the store, shared by state_store.c (the file itself, and files) and state_batches.c
 * (batches and lines). */
#include <sqlite3.h>

#include "gateway/state_store.h"

enum { STATE_OPEN_BLOBS = 8 };

struct state_store {
    sqlite3 *db;
    struct open_blob { /* a file's content, by its row */
        sqlite3_blob *blob;
        int64_t no;
        uint64_t used; /* by the count of reads: which is the oldest */
    } blobs[STATE_OPEN_BLOBS];
    uint64_t n_reads;
};

void state_close_blobs(struct state_store *s); /* before whatever writes */

/* The database's own error as a status, with what was being done. */
enum status state_error(struct state_store *s, struct error *err, const char *what);
enum status state_exec(struct state_store *s, const char *sql, struct error *err);
/* NULL: err says why. The caller finalizes. */
sqlite3_stmt *state_prepare(struct state_store *s, const char *sql, struct error *err);
void state_bind(sqlite3_stmt *q, int i, struct str text); /* borrowed until the statement's end */
/* Runs a statement that gives no rows, and finalizes it. q NULL: err is filled already. */
enum status state_run(struct state_store *s, sqlite3_stmt *q, const char *what, struct error *err);
/* Commits, or rolls back when so_far is an error; returns the first error. */
enum status state_end(struct state_store *s, enum status so_far, struct error *err);
void state_column(sqlite3_stmt *q, int i, char *out, size_t size);
void state_make_id(const char *prefix, char out[STATE_ID_BYTES]);
/* Inside a transaction. */
enum status state_insert_file(struct state_store *s, struct stored_file *f, struct str content,
                              struct error *err);
