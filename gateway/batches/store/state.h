#pragma once
/* `state_store` is the private state of the store. store.h is its public interface, and
 * README.md describes the files. */
#include <sqlite3.h>

#include "gateway/batches/store/store.h"

enum {
    STATE_PAGE_BYTES = 4096,
    STATE_PATH_BYTES = 4096,
    STATE_OPEN_BLOBS = 8,
    STATE_PIECE_BYTES = 4 << 20 /* most bytes of deleted content overwritten in one step */
};

struct state_store {
    sqlite3 *db; /* the open database; NULL = closed, `why` has the reason */
    char dir[STATE_PATH_BYTES - 32];
    uint64_t max_bytes;
    bool broken;    /* the file or disk had an error, so the next call opens the database again */
    bool spilled;   /* a write found no space and left data in the log, which must be cut */
    bool was_open;  /* the database was already open in this process */
    bool has_taken; /* lines taken by an earlier process must wait again */
    bool disk_full; /* the last write found no space on the disk */
    uint32_t n_frames; /* frames in the log after the last commit */
    uint32_t n_lost;   /* times that the database was found broken or could not be opened */
    uint64_t retry_at_ns, backoff_ns;
    enum status why_status;
    char why[320];
    struct open_blob { /* open handle of a file's content, by row */
        sqlite3_blob *blob;
        int64_t no;
        /* value of `n_reads` at the last use; the handle with the smallest is closed first */
        uint64_t used;
    } blobs[STATE_OPEN_BLOBS];
    uint64_t n_reads;
    int64_t last_tenant; /* tenant of the last line that was taken */
};

enum line_state { LINE_WAITING, LINE_TAKEN, LINE_ANSWERED };

/* ---- tables defined outside of open.c ---- */

/* `STATE_SHARE_SCHEMA` creates the table that counts the bytes of open batches: line bodies and
 * answers. */
#define STATE_SHARE_SCHEMA                                                                         \
    "CREATE TABLE IF NOT EXISTS batch_bytes (no INTEGER PRIMARY KEY, tenant INTEGER NOT NULL,"     \
    " bytes INTEGER NOT NULL);"                                                                    \
    "CREATE INDEX IF NOT EXISTS batch_bytes_of_tenant ON batch_bytes (tenant, bytes);"
#define STATE_GONE_SCHEMA                                                                          \
    "CREATE TABLE IF NOT EXISTS gone (no INTEGER PRIMARY KEY, zeroed INTEGER NOT NULL);"
