/* Reads files in slices. SQLite finds a position in a large value by following all pages before
 * that position, and an open handle remembers these pages. The last few handles are kept open,
 * by row, so a file is walked only once, even when many clients read it. An open handle holds
 * back the write-ahead log, so every write closes all handles first (state_close_blobs). */
#include "gateway/batches/store/blobs.h"

#include "gateway/batches/store/sql.h"

static struct open_blob *oldest(struct state_store *s)
{
    struct open_blob *found = &s->blobs[0];
    for (int i = 1; i < STATE_OPEN_BLOBS; i++)
        if (s->blobs[i].used < found->used)
            found = &s->blobs[i];
    return found;
}

void state_close_blob(struct open_blob *b)
{
    sqlite3_blob_close(b->blob); /* SQLite accepts NULL here */
    *b = (struct open_blob){0};
}

void state_close_blobs(struct state_store *s)
{
    for (int i = 0; i < STATE_OPEN_BLOBS; i++)
        state_close_blob(&s->blobs[i]);
}

struct open_blob *state_blob(struct state_store *s, int64_t no, struct error *err)
{
    struct open_blob *b = NULL;
    for (int i = 0; i < STATE_OPEN_BLOBS && !b; i++)
        if (s->blobs[i].blob && s->blobs[i].no == no)
            b = &s->blobs[i];
    if (!b) {
        b = oldest(s);
        state_close_blob(b);
        if (sqlite3_blob_open(s->db, "main", "file", "content", no, 0, &b->blob) != SQLITE_OK) {
            (void)state_error(s, err, "open a file");
            state_close_blob(b);
            return NULL;
        }
        b->no = no;
    }
    b->used = ++s->n_reads;
    return b;
}
