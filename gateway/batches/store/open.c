/* Opens the store's database, and opens it again after a loss.
 *   CLOSED ──opened──▶ OPEN ──an error of the file or the disk──▶ CLOSED
 *    └── after 1, 2, 4 … 30 s: tried again by the next call or look ──┘
 * A full disk closes nothing: reads and deletions still work, and writes get an error. A
 * database that cannot be opened (a full, read-only or missing folder, a foreign file) does not
 * stop the gateway from starting. Calls to the store get the reason, which is logged once. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/batches/store/blobs.h"
#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/log.h"
#include "gateway/batches/store/open.h"
#include "gateway/batches/store/room.h"
#include "gateway/batches/store/sql.h"

enum { MIN_PAGES = 64, OLD_MAX_PAGES = 16384 };
#define BACKOFF_MIN_NS NS_PER_S
#define BACKOFF_MAX_NS (30 * NS_PER_S)

/* `schema` creates the tables. With journal mode WAL and synchronous = NORMAL a process that
 * dies loses nothing. After a power failure the last commits may be lost, but the file stays
 * consistent, and lines with lost answers run again. */
static const char schema[] =
    "CREATE TABLE IF NOT EXISTS file (no INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT "
    "NULL,"
    " tenant INTEGER NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,"
    " created INTEGER NOT NULL, bytes INTEGER NOT NULL, content BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS batch (no INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT "
    "NULL,"
    " tenant INTEGER NOT NULL, endpoint TEXT NOT NULL, input TEXT NOT NULL, output TEXT, error "
    "TEXT,"
    " state INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,"
    " ended INTEGER NOT NULL DEFAULT 0, lines INTEGER NOT NULL, completed INTEGER NOT NULL DEFAULT "
    "0,"
    " failed INTEGER NOT NULL DEFAULT 0, metadata TEXT, failure TEXT, failure_line INTEGER NOT "
    "NULL);"
    "CREATE TABLE IF NOT EXISTS line (batch INTEGER NOT NULL, n INTEGER NOT NULL,"
    " custom_id TEXT NOT NULL, body TEXT NOT NULL, state INTEGER NOT NULL, status INTEGER,"
    " answer TEXT, PRIMARY KEY (batch, n), UNIQUE (batch, custom_id)) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS line_waiting ON line (batch, n) WHERE state = 0;"
    "CREATE INDEX IF NOT EXISTS line_taken ON line (batch, n) WHERE state = 1;"
    "CREATE INDEX IF NOT EXISTS batch_open ON batch (tenant, no) WHERE state = 0;"
    "CREATE INDEX IF NOT EXISTS batch_due ON batch (expires) WHERE state = 0;"
    /* with this index the list of a tenant does not read the files of other tenants */
    "CREATE INDEX IF NOT EXISTS file_of_tenant ON file (tenant, no);"
    "CREATE INDEX IF NOT EXISTS batch_of_tenant ON batch (tenant, no);" STATE_GONE_SCHEMA
        STATE_SHARE_SCHEMA;

/* ---- opening ---- */

/* Rewrites a database of an older version, which cannot return pages to the disk. Only a small
 * database is rewritten, and only when the disk has space for a second copy. */
static void modernise(struct state_store *s)
{
    struct error ignored;
    if (state_pragma(s, "PRAGMA auto_vacuum") == 0 &&
        state_pragma(s, "PRAGMA page_count") <= OLD_MAX_PAGES && !state_disk_is_full(s) &&
        state_exec(s, "PRAGMA auto_vacuum = INCREMENTAL", &ignored) == STATUS_OK)
        (void)state_exec(s, "VACUUM", &ignored);
}

/* Makes taken lines wait again. It runs before this process takes any line. */
static enum status wait_again(struct state_store *s, struct error *err)
{
    enum status status = state_exec(s, "UPDATE line SET state = 0 WHERE state = 1", err);
    s->has_taken = status != STATUS_OK;
    return status;
}

/* Stores the number of frames in the log after a commit. This hook replaces SQLite's own
 * checkpoints, which would never shorten the log. */
static int on_commit(void *ctx, sqlite3 *db, const char *name, int n_frames)
{
    ((struct state_store *)ctx)->n_frames = (uint32_t)n_frames;
    return SQLITE_OK;
}

static enum status bound_pages(struct state_store *s, uint64_t more, struct error *err)
{
    char sql[96];
    const uint64_t pages = s->max_bytes / STATE_PAGE_BYTES;
    snprintf(sql, sizeof sql, "PRAGMA max_page_count = %llu",
             (unsigned long long)((pages < MIN_PAGES ? MIN_PAGES : pages) + more));
    return state_exec(s, sql, err);
}

/* Creates the tables. A full file of an older version gets extra pages for tables that are new. */
static enum status make_schema(struct state_store *s, struct error *err)
{
    TRY(bound_pages(s, MIN_PAGES, err));
    /* without a transaction a half-made schema could stay in the file */
    TRY(state_exec(s, "BEGIN IMMEDIATE", err));
    TRY(state_end(s, state_exec(s, schema, err), err));
    return bound_pages(s, 0, err);
}

static enum status prepare_file(struct state_store *s, struct error *err)
{
    sqlite3_busy_timeout(s->db, 0);
    TRY(state_exec(s, "PRAGMA locking_mode = EXCLUSIVE", err));
    /* SQLite must write no files outside of the folder */
    TRY(state_exec(s, "PRAGMA temp_store = MEMORY", err));
    /* SQLite writes zeros over deleted data */
    TRY(state_exec(s, "PRAGMA secure_delete = ON", err));
    /* the pragma is set only for a new file: it writes, and the disk of an old file may be full */
    if (state_pragma(s, "PRAGMA page_count") == 0)
        TRY(state_exec(s, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA user_version = 1", err));
    TRY(state_exec(s, "PRAGMA journal_mode = WAL", err));
    TRY(state_exec(s, "PRAGMA synchronous = NORMAL", err));
    sqlite3_wal_hook(s->db, on_commit, s);
    TRY(make_schema(s, err));
    if (s->was_open) /* the lines that are taken now run in this process */
        return STATUS_OK;
    enum status status = wait_again(s, err);
    /* state_begin calls wait_again once more */
    return status == STATUS_NO_MEMORY ? STATUS_OK : status;
}

/* Creates the missing folders of the file's path, accessible only to this user. */
static enum status make_folders(const char *dir, char *path, struct error *err)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        int e = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
        *at = '/';
        if (e == ENOTDIR || e == ELOOP || e == ENAMETOOLONG)
            return error_set(err, STATUS_INVALID, "--state-dir %s: cannot create the folder: %s",
                             dir, strerror(e));
        if (e != 0)
            return error_set(err, state_errno_is_no_room(e) ? STATUS_NO_MEMORY : STATUS_IO,
                             "--state-dir %s: cannot create the folder: %s", dir, strerror(e));
    }
    return STATUS_OK;
}

/* Closes a broken database without a checkpoint, because the path may point to another file now,
 * or the disk may refuse writes. */
static void close_broken(struct state_store *s)
{
    state_close_blobs(s);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close(s->db);
    s->db = NULL;
    s->broken = s->spilled = false;
}

static enum status open_db(struct state_store *s, struct error *err)
{
    char path[STATE_PATH_BYTES];
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    snprintf(path, sizeof path, "%s/state.sqlite", s->dir);
    TRY(make_folders(s->dir, path, err));
    enum status status = sqlite3_open_v2(path, &s->db, flags, NULL) == SQLITE_OK
                             ? prepare_file(s, err)
                             : state_error(s, err, "open");
    if (status == STATUS_OK) {
        modernise(s);
        return STATUS_OK;
    }
    if (!sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    close_broken(s);
    if (status == STATUS_EXISTS)
        return error_set(err, status,
                         "--state-dir %s: another gateway already uses this folder. Give each "
                         "gateway its own folder.",
                         s->dir);
    return error_prefix(err, status, "--state-dir %s", s->dir);
}

/* ---- lost and opened again ---- */

/* Logs the loss once for each reason. */
static void note_lost(struct state_store *s, enum status status, const struct error *why)
{
    s->n_lost++;
    if (strcmp(s->why, why->text) != 0)
        log_error("state_lost",
                  "why=%s text=\"/v1/files and /v1/batches answer 503 or 507 until the gateway can "
                  "open the store again; all other requests are served\"",
                  log_quote(why->text));
    snprintf(s->why, sizeof s->why, "%.319s", why->text);
    s->why_status = status == STATUS_NO_MEMORY ? STATUS_NO_MEMORY : STATUS_CLOSED;
    s->backoff_ns = s->backoff_ns == 0 ? BACKOFF_MIN_NS : s->backoff_ns * 2;
    if (s->backoff_ns > BACKOFF_MAX_NS)
        s->backoff_ns = BACKOFF_MAX_NS;
    s->retry_at_ns = clock_mono_ns() + s->backoff_ns;
}

static enum status try_open(struct state_store *s, struct error *err)
{
    enum status status = open_db(s, err);
    if (status == STATUS_NO_MEMORY && state_make_room(s))
        status = open_db(s, err);
    bool is_refused = !s->was_open && (status == STATUS_INVALID || status == STATUS_EXISTS);
    if (status != STATUS_OK) {
        if (!is_refused) /* a refusal needs no log line, because state_open returns the error */
            note_lost(s, status, err);
        return status;
    }
    if (s->why[0])
        log_info("state_found", "dir=%s", log_quote(s->dir));
    s->why[0] = '\0';
    s->was_open = true;
    s->backoff_ns = 0;
    (void)state_settle(s);
    return STATUS_OK;
}

/* Returns true when the file was moved or removed. Writes to such a file would be lost. */
static bool has_moved(struct state_store *s)
{
    int moved = 0;
    return sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved;
}

static void look_for_loss(struct state_store *s)
{
    struct error why;
    bool moved = !s->broken && has_moved(s);
    if (!s->broken && !moved)
        return;
    (void)error_set(&why, STATUS_IO, "--state-dir %s: %s", s->dir,
                    moved
                        ? "state.sqlite was moved or deleted, or this user may not enter the folder"
                        : sqlite3_errmsg(s->db));
    close_broken(s);
    note_lost(s, STATUS_IO, &why);
}

enum status state_ready(struct state_store *s, struct error *err)
{
    if (s->db)
        look_for_loss(s);
    errno = 0;
    if (!s->db && clock_mono_ns() >= s->retry_at_ns) {
        struct error ignored;
        (void)try_open(s, &ignored);
    }
    if (!s->db)
        return error_set(err, s->why_status, "%s", s->why);
    if (s->spilled)
        s->spilled = state_checkpoint(s) != STATUS_OK;
    errno = 0;
    return STATUS_OK;
}

enum status state_begin(struct state_store *s, struct error *err)
{
    TRY(state_ready(s, err));
    state_close_blobs(s);
    if (s->has_taken)
        TRY(wait_again(s, err));
    return state_exec(s, "BEGIN IMMEDIATE", err);
}

enum status state_open(const char *dir, uint64_t max_bytes, struct state_store **out,
                       struct error *err)
{
    struct state_store *s = mem_zalloc(sizeof *s);
    if (snprintf(s->dir, sizeof s->dir, "%s", dir) >= (int)sizeof s->dir) {
        mem_free(s);
        return error_set(err, STATUS_INVALID,
                         "--state-dir %s: the path is too long. Choose a shorter one", dir);
    }
    s->max_bytes = max_bytes;
    enum status status = try_open(s, err);
    if (status == STATUS_INVALID || status == STATUS_EXISTS) {
        state_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void state_close(struct state_store *s)
{
    if (!s)
        return;
    state_close_blobs(s);
    if (s->db)
        sqlite3_close(s->db);
    mem_free(s);
}
