#pragma once
/* The inside of the store, shared by state_store.c (files), state_batches.c (batches and lines),
 * state_turns.c (whose lines are next), state_output.c (a batch's files of answers), state_open.c
 * (the database's life: opened, lost, opened again), state_room.c (room on the disk), state_share.c
 * (what a tenant may have of the store) and state_gone.c (what is deleted piece by piece). */
#include <sqlite3.h>

#include "gateway/batches/store/store.h"

enum {
    STATE_PAGE_BYTES = 4096,
    STATE_PATH_BYTES = 4096,
    STATE_OPEN_BLOBS = 8,
    STATE_PIECE_BYTES = 4 << 20 /* of a deleted file's content, that go at once */
};

struct state_store {
    sqlite3 *db; /* NULL: it is not open, and `why` says so */
    char dir[STATE_PATH_BYTES - 32];
    uint64_t max_bytes;
    bool broken;       /* an error of the file or the disk: it is opened anew by the next call */
    bool spilled;      /* a write found no room: what it left in the log is to be given back */
    bool was_open;     /* in this life */
    bool has_taken;    /* lines of an earlier life are still to wait again */
    bool disk_full;    /* the last write found no room on the disk */
    uint32_t n_frames; /* of the log, as of the last commit */
    uint32_t n_lost;   /* times that it was found broken, or could not be opened */
    uint64_t retry_at_ns, backoff_ns;
    enum status why_status;
    char why[320];
    struct open_blob { /* a file's content, by its row */
        sqlite3_blob *blob;
        int64_t no;
        uint64_t used; /* by the count of reads: which is the oldest */
    } blobs[STATE_OPEN_BLOBS];
    uint64_t n_reads;
    int64_t last_tenant; /* whose line was taken last */
};

enum line_state { LINE_WAITING, LINE_TAKEN, LINE_ANSWERED };

void state_close_blobs(struct state_store *s); /* before whatever writes, or cuts the log */

/* The database's own error as a status, with what was being done. A full disk is
 * STATUS_NO_MEMORY, --max-state-bytes is STATUS_LIMIT. */
enum status state_error(struct state_store *s, struct error *err, const char *what);
/* Opens the database where it is not open and a retry is due; STATUS_CLOSED or STATUS_NO_MEMORY
 * with the reason where it stays closed. Every call begins with it, or with state_begin. */
enum status state_ready(struct state_store *s, struct error *err);
/* state_ready, then a transaction. */
enum status state_begin(struct state_store *s, struct error *err);
enum status state_exec(struct state_store *s, const char *sql, struct error *err);
/* NULL: err says why. The caller finalizes. */
sqlite3_stmt *state_prepare(struct state_store *s, const char *sql, struct error *err);
void state_bind(sqlite3_stmt *q, int i, struct str text); /* borrowed until the statement's end */
/* Runs a statement that gives no rows, and finalizes it. q NULL: err is filled already. */
enum status state_run(struct state_store *s, sqlite3_stmt *q, const char *what, struct error *err);
/* Commits, or rolls back when so_far is an error; returns the first error. */
enum status state_end(struct state_store *s, enum status so_far, struct error *err);
void state_column(sqlite3_stmt *q, int i, char *out, size_t size);
/* The largest number of a row: a list that begins at its end, or behind an entry, is a range of an
 * index in both cases, so that no page of it walks through those before. */
#define STATE_LAST_NO "9223372036854775807"
void state_make_id(const char *prefix, char out[STATE_ID_BYTES]);
/* A tenant's file by its id: its row and size; STATUS_NOT_FOUND. */
enum status state_find_file(struct state_store *s, uint64_t tenant, struct str id, int64_t *no,
                            uint64_t *bytes, struct error *err);
/* Inside a transaction. content.ptr NULL: that many zeros, to be written over. */
enum status state_insert_file(struct state_store *s, struct stored_file *f, struct str content,
                              struct error *err);

/* ---- lines of batches (state_turns.c, state_output.c); inside a transaction ---- */

/* A row in another state stays: then sqlite3_changes is 0. */
enum status state_move_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                            enum line_state from, enum line_state to, struct error *err);
/* Up to max waiting lines, which are taken then: *n of them were added to out, also when it fails.
 */
enum status state_take_in_turn(struct state_store *s, uint32_t max, struct taken_line *out,
                               uint32_t *n, struct error *err);
/* Every line of batch `no` goes to b's output file or its error file, in order; why: what becomes
 * of the batch. STATUS_LIMIT: they are too large. */
enum status state_write_outputs(struct state_store *s, struct stored_batch *b, int64_t no,
                                enum batch_state why, uint64_t now_s, struct error *err);

/* ---- what a tenant may have of the store (state_share.c) ---- */

/* Bytes of batches in progress: of their bodies and answers. */
#define STATE_SHARE_SCHEMA                                                                         \
    "CREATE TABLE IF NOT EXISTS batch_bytes (no INTEGER PRIMARY KEY, tenant INTEGER NOT NULL,"     \
    " bytes INTEGER NOT NULL);"                                                                    \
    "CREATE INDEX IF NOT EXISTS batch_bytes_of_tenant ON batch_bytes (tenant, bytes);"
/* How many times as much as it leaves free a tenant may have: n leaves 1/(n + 1) of the store to
 * others. Answers may go further than what asks for them. */
enum { STATE_SHARE_NEW = 7, STATE_SHARE_ANSWERS = 15 };
/* May the tenant have so many bytes more? STATUS_DENIED: no; the store itself may have room. */
enum status state_share(struct state_store *s, uint64_t tenant, uint64_t bytes, uint32_t share,
                        struct error *err);
/* The tenant of an open batch; 0 where there is none. */
uint64_t state_tenant_of_batch(struct state_store *s, int64_t batch_no);
/* Inside a transaction: a batch's bytes from its start, with each answer (before its line's body
 * goes), until its lines go. */
enum status state_share_batch(struct state_store *s, int64_t no, uint64_t tenant, uint64_t bytes,
                              struct error *err);
enum status state_share_answer(struct state_store *s, int64_t no, uint32_t i_line, uint64_t bytes,
                               struct error *err);
enum status state_share_end(struct state_store *s, int64_t no, struct error *err);

/* ---- room on the disk (state_room.c) ---- */

/* Has the disk of the store no room left? */
bool state_disk_is_full(const struct state_store *s);
/* For what frees room, on a full disk: gives up the reserve, and moves the log into the database.
 * False: there was nothing to give. */
bool state_make_room(struct state_store *s);
/* For what takes room, on a full disk: gives some of the database's unused pages back to it. False:
 * there were none. */
bool state_shrink(struct state_store *s);
/* Where the disk is short of room, some unused pages go back to it; the reserve is made again where
 * it is missing and fits. True: there are more such pages. */
bool state_settle(struct state_store *s);
bool state_disk_is_low(const struct state_store *s);
/* Zeros over what is deleted from here on, or none where that would take room. */
void state_overwrite(struct state_store *s, bool always);
/* Is there room on the disk for so many bytes, twice: they are in the log and in the database until
 * the log is cut? STATUS_NO_MEMORY: no. */
enum status state_wants(struct state_store *s, uint64_t bytes, struct error *err);
/* After a commit: a long log goes into the database. */
void state_committed(struct state_store *s);
uint64_t state_pragma(struct state_store *s, const char *sql); /* its number; 0 where it fails */
/* Moves the log into the database and cuts it to nothing. */
enum status state_checkpoint(struct state_store *s);

/* ---- what is deleted piece by piece (state_gone.c) ---- */

#define STATE_GONE_SCHEMA                                                                          \
    "CREATE TABLE IF NOT EXISTS gone (no INTEGER PRIMARY KEY, zeroed INTEGER NOT NULL);"
/* The end of a statement's WHERE on `file`: the statement then sees no file that is on its way out.
 */
#define STATE_NOT_GONE " AND file.no NOT IN (SELECT no FROM gone)"

/* The file by its number is not seen any more, and goes piece by piece. */
enum status state_hide_file(struct state_store *s, int64_t no, struct error *err);
/* One piece. False: there is none, or it does not go now. */
bool state_sweep(struct state_store *s);
/* So: something is full. True: a little room was made, without zeros over it. STATUS_DENIED, a
 * tenant's share: with zeros, for what goes may be another's, who is not to pay for it. */
bool state_free_some(struct state_store *s, enum status so);
