/* Downloads a file: its content is read from the store slice by slice, as the client takes it. A
 * slow client therefore costs only its stream's buffer, whatever the file's size. */
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"
#include "gateway/batches/download.h"

enum { SLICE_BYTES = 64 << 10, SLICE_MIN_BYTES = 8 << 10 };

struct state_download {
    struct encode_job job; /* must be the first field: the job's address is the download's */
    struct state_calls *all;
    struct http_request *r; /* HTTP request of the download; NULL = the client has disconnected */
    struct state_download *next, **link;
    uint64_t tenant, length, offset;
    char id[STATE_ID_BYTES];
    char *slice; /* bytes that were read and are not written yet */
    size_t n_slice;
    bool begun, running;
    /* the store's thread refused the next slice because its queue is full, so the tick tries again
     */
    bool refused;
    enum status status;
    struct error error;
};

static void free_download(struct state_download *d)
{
    *d->link = d->next;
    if (d->next)
        d->next->link = d->link;
    mem_free(d->slice);
    mem_free(d);
}

/* Reads one slice, on the store's thread. */
static void read_slice(struct encode_job *j)
{
    struct state_download *d = (struct state_download *)j;
    struct state_store *store = d->all->store;
    struct stored_file f;
    if (!d->begun) {
        d->status = state_get_file(store, d->tenant, str_from(d->id), &f, NULL, &d->error);
        if (d->status != STATUS_OK)
            return;
        d->length = f.bytes;
        d->n_slice = f.bytes < SLICE_BYTES ? (size_t)f.bytes : SLICE_BYTES;
    }
    d->slice = mem_try_alloc(d->n_slice + 1);
    d->status = d->slice ? state_read_file(store, d->tenant, str_from(d->id), d->offset, d->slice,
                                           d->n_slice, &d->error)
                         : error_set(&d->error, STATUS_LIMIT,
                                     "the gateway has no memory for the next part of the file");
}

static void submit(struct state_download *d)
{
    d->job.bytes = SLICE_BYTES;
    d->running = encode_pool_submit(d->all->thread, &d->job) == STATUS_OK;
    d->refused = !d->running;
}

static void read_on(struct state_download *d)
{
    const size_t room = http_stream_room(d->r);
    const uint64_t left = d->length - d->offset;
    if (room < SLICE_MIN_BYTES && room < left)
        return; /* `on_drain` will continue the download */
    d->n_slice = room < SLICE_BYTES ? room : SLICE_BYTES;
    if (left < d->n_slice)
        d->n_slice = (size_t)left;
    submit(d);
}

static void fail(struct state_download *d)
{
    if (d->begun) {
        log_warn("download_cut_off", "file=%s at=%llu why=%s", d->id, (unsigned long long)d->offset,
                 log_quote(d->error.text));
        http_drop(d->r);
    } else if (d->status == STATUS_NOT_FOUND) {
        state_answer_error(d->r, 404, "id", "No such File object: ", d->id);
    } else if (d->status == STATUS_CLOSED || d->status == STATUS_IO) {
        state_answer_error(
            d->r, 503, NULL,
            "The file store is not available; the gateway's log gives the reason. Try again later.",
            "");
    } else {
        state_answer_error(d->r, 500, NULL, d->error.text, "");
    }
}

static void on_slice(struct encode_job *j)
{
    struct state_download *d = (struct state_download *)j;
    struct http_request *r = d->r;
    d->running = false;
    if (r && d->status != STATUS_OK)
        fail(d);
    if (!r || d->status != STATUS_OK) {
        free_download(d);
        return;
    }
    if (!d->begun)
        http_stream_begin_sized(r, 200, "application/octet-stream", d->length);
    d->begun = true;
    http_stream_write(r, (struct str){d->slice, d->n_slice});
    mem_free(d->slice);
    d->slice = NULL;
    d->offset += d->n_slice;
    if (d->offset < d->length && !str_eq_c(http_method(r), "HEAD")) {
        read_on(d);
        return;
    }
    free_download(d);
    http_stream_end(r);
}

void state_download_start(struct state_calls *all, struct http_request *r, uint64_t tenant,
                          struct str id)
{
    struct state_download *d = mem_zalloc(sizeof *d);
    *d = (struct state_download){.job = {.run = read_slice, .done = on_slice, .tenant = tenant},
                                 .all = all,
                                 .r = r,
                                 .tenant = tenant,
                                 /* STATUS_CLOSED stays until the job has run */
                                 .status = STATUS_CLOSED,
                                 .link = &all->downloads,
                                 .next = all->downloads};
    snprintf(d->id, sizeof d->id, STR_FMT, STR_ARG(id));
    (void)error_set(&d->error, STATUS_CLOSED, "the server is shutting down");
    if (d->next)
        d->next->link = &d->next;
    all->downloads = d;
    submit(d);
    if (d->running)
        return;
    free_download(d);
    state_answer_busy(all, r, tenant);
}

static struct state_download *find(struct state_calls *all, const struct http_request *r)
{
    struct state_download *d = all->downloads;
    while (d && d->r != r)
        d = d->next;
    return d;
}

void state_downloads_on_drain(struct state_calls *all, const struct http_request *r)
{
    struct state_download *d = find(all, r);
    if (d && !d->running)
        read_on(d);
}

bool state_downloads_on_abort(struct state_calls *all, const struct http_request *r)
{
    struct state_download *d = find(all, r);
    if (!d)
        return false;
    d->r = NULL;
    if (!d->running)
        free_download(d);
    return true;
}

void state_downloads_tick(struct state_calls *all)
{
    for (struct state_download *d = all->downloads; d; d = d->next)
        if (d->refused && d->r && !d->running)
            read_on(d);
}
