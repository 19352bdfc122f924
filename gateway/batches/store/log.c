#include "gateway/batches/store/log.h"

#include "gateway/batches/store/blobs.h"
#include "gateway/batches/store/disk.h"
#include "gateway/batches/store/sql.h"

enum {
    LOG_FRAMES = 1000,   /* most frames of the log; a longer log is moved into the database */
    LOG_FRAMES_LOW = 64, /* most frames when the disk is short of space */
};

enum status state_checkpoint(struct state_store *s)
{
    s->n_frames = 0;
    state_close_blobs(s);
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return rc == SQLITE_OK ? STATUS_OK : STATUS_IO;
}

/* Moves a long log into the database after a commit. */
static void committed(struct state_store *s)
{
    if (s->n_frames > LOG_FRAMES ||
        (s->n_frames > LOG_FRAMES_LOW && disk_room_is_low(state_disk_room(s))))
        (void)state_checkpoint(s);
}

enum status state_end(struct state_store *s, enum status so_far, struct error *err)
{
    if (so_far == STATUS_OK)
        so_far = state_exec(s, "COMMIT", err);
    if (so_far != STATUS_OK && !sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    if (so_far == STATUS_OK)
        committed(s);
    return so_far;
}
