#pragma once
/* SQLite's calls, with its errors as statuses. */
#include "gateway/batches/store/state.h"

/* The database's own error as a status, with what was being done. A full disk is
 * STATUS_NO_MEMORY, --max-state-bytes is STATUS_LIMIT. */
enum status state_error(struct state_store *s, struct error *err, const char *what);
/* Does errno say that the disk has no room? */
bool state_errno_is_no_room(int e);
enum status state_exec(struct state_store *s, const char *sql, struct error *err);
/* NULL: err says why. The caller finalizes. */
sqlite3_stmt *state_prepare(struct state_store *s, const char *sql, struct error *err);
void state_bind(sqlite3_stmt *q, int i, struct str text); /* borrowed until the statement's end */
/* Runs a statement that gives no rows, and finalizes it. q NULL: err is filled already. */
enum status state_run(struct state_store *s, sqlite3_stmt *q, const char *what, struct error *err);
void state_column(sqlite3_stmt *q, int i, char *out, size_t size);
uint64_t state_pragma(struct state_store *s, const char *sql); /* its number; 0 where it fails */
void state_make_id(const char *prefix, char out[STATE_ID_BYTES]);
/* The largest number of a row: a list that begins at its end, or behind an entry, is a range of an
 * index in both cases, so that no page of it walks through those before. */
#define STATE_LAST_NO "9223372036854775807"
