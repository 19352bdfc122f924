#pragma once
/* Wraps SQLite's calls and turns its errors into statuses. */
#include "gateway/batches/store/state.h"

/* Returns the database's error as a status. `what` names the failed action. STATUS_NO_MEMORY
 * means a full disk, and STATUS_LIMIT means the limit --max-state-bytes. */
enum status state_error(struct state_store *s, struct error *err, const char *what);
/* Returns true when the errno value `e` means that the disk is full. */
bool state_errno_is_no_room(int e);
enum status state_exec(struct state_store *s, const char *sql, struct error *err);
/* Prepares a statement, which the caller finalizes. Returns NULL with the reason in `err` on
 * failure. */
sqlite3_stmt *state_prepare(struct state_store *s, const char *sql, struct error *err);
/* binds `text`, which the statement borrows until its end */
void state_bind(sqlite3_stmt *q, int i, struct str text);
/* Runs a statement that returns no rows, and finalizes it. When `q` is NULL, `err` already has
 * the reason. */
enum status state_run(struct state_store *s, sqlite3_stmt *q, const char *what, struct error *err);
void state_column(sqlite3_stmt *q, int i, char *out, size_t size);
/* returns the pragma's number; 0 after a failure */
uint64_t state_pragma(struct state_store *s, const char *sql);
void state_make_id(const char *prefix, char out[STATE_ID_BYTES]);
/* `STATE_LAST_NO` is the largest row number. With it, a list that starts at the end or after an
 * entry is one range of an index. So no page of a list reads earlier rows. */
#define STATE_LAST_NO "9223372036854775807"
