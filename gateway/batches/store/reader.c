/* Files in slices. SQLite finds a place in a large value by following the pages in front of it, and
 * an open handle remembers them: the last few are kept open, by row, so that a file is walked
 * through once, however many clients read it at a time. An open handle holds back the write-ahead
 * log, so whatever writes closes them first (state_close_blobs). */
#include "gateway/batches/store/state.h"

static struct open_blob *oldest(struct state_store *s)
{
    struct open_blob *found = &s->blobs[0];
    for (int i = 1; i < STATE_OPEN_BLOBS; i++)
        if (s->blobs[i].used < found->used)
            found = &s->blobs[i];
    return found;
}

static void close_blob(struct open_blob *b)
{
    sqlite3_blob_close(b->blob); /* NULL is fine */
    *b = (struct open_blob){0};
}

void state_close_blobs(struct state_store *s)
{
    for (int i = 0; i < STATE_OPEN_BLOBS; i++)
        close_blob(&s->blobs[i]);
}

static struct open_blob *blob_of(struct state_store *s, int64_t no, struct error *err)
{
    struct open_blob *b = NULL;
    for (int i = 0; i < STATE_OPEN_BLOBS && !b; i++)
        if (s->blobs[i].blob && s->blobs[i].no == no)
            b = &s->blobs[i];
    if (!b) {
        b = oldest(s);
        close_blob(b);
        if (sqlite3_blob_open(s->db, "main", "file", "content", no, 0, &b->blob) != SQLITE_OK) {
            (void)state_error(s, err, "open a file");
            close_blob(b);
            return NULL;
        }
        b->no = no;
    }
    b->used = ++s->n_reads;
    return b;
}

enum status state_read_file(struct state_store *s, uint64_t tenant, struct str id, uint64_t offset,
                            char *out, size_t n, struct error *err)
{
    int64_t no;
    uint64_t bytes;
    TRY(state_ready(s, err));
    TRY(state_find_file(s, tenant, id, &no, &bytes, err)); /* it may be deleted meanwhile */
    struct open_blob *b = blob_of(s, no, err);
    if (!b)
        return STATUS_IO;
    const uint64_t size = (uint64_t)sqlite3_blob_bytes(b->blob);
    if (offset > size || n > size - offset)
        return error_set(err, STATUS_INVALID, "a slice behind the file's end");
    if (n > 0 && sqlite3_blob_read(b->blob, out, (int)n, (int)offset) != SQLITE_OK) {
        enum status status = state_error(s, err, "read a file");
        close_blob(b);
        return status;
    }
    return STATUS_OK;
}
