#pragma once
/* The inside of the store. store.h is what others see of it; README.md says which file does what.
 */
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

/* ---- tables beside those of open.c ---- */

/* Bytes of batches in progress: of their bodies and answers. */
#define STATE_SHARE_SCHEMA                                                                         \
    "CREATE TABLE IF NOT EXISTS batch_bytes (no INTEGER PRIMARY KEY, tenant INTEGER NOT NULL,"     \
    " bytes INTEGER NOT NULL);"                                                                    \
    "CREATE INDEX IF NOT EXISTS batch_bytes_of_tenant ON batch_bytes (tenant, bytes);"
#define STATE_GONE_SCHEMA                                                                          \
    "CREATE TABLE IF NOT EXISTS gone (no INTEGER PRIMARY KEY, zeroed INTEGER NOT NULL);"
