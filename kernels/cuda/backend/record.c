/* Records passes as CUDA graphs (docs/develop/gpu.md, "Recorded passes"). The runner names a
 * pass by a key. The first pass under a key runs eagerly, so that one-time setup (libraries,
 * attributes of kernels) happens outside of a recording. The second pass is recorded and
 * launched. Later passes launch the recording.
 * If CUDA refuses a recording, none of it has run. As long as the stream answers, that pass and
 * all later ones under its key run eagerly. Passes of more than 64 rows go through cuBLASLt,
 * which enqueues only kernels while it is recorded. The first pass has already created its
 * handle, its workspace and the algorithm for a shape.
 * Invariant: recordings contain device addresses, so they are dropped before any memory is
 * freed. */
#include "kernels/cuda/backend/record.h"

#include "common/base/mem.h"
#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/device/graph.h"

/* MAX_RECORDS is the largest number of recordings; beyond it, passes run eagerly. 18 buckets
 * times the kinds of passes and of sampling give about 110 recordings. A mixture has 175
 * recordings, and a draft model doubles the number. */
enum { MAX_RECORDS = 512 };

struct gpu_record {
    uint64_t key;
    struct gpu_graph *graph; /* recorded graph; NULL: the key was seen once */
    /* true = the key is not recorded again; an existing graph is freed with the others */
    bool is_refused;
};

struct gpu_records {
    struct gpu_record all[MAX_RECORDS];
    uint32_t n;
    uint64_t free_before, n_bytes;
};

/* Returns h combined with v by the finalizer of Splitmix64. */
static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static enum status launch(struct cuda_device *x, struct gpu_graph *g, struct error *err)
{
    TRY(gpu_graph_launch(x->stream, g, err));
    x->n_nodes += gpu_graph_nodes(g);
    return STATUS_OK;
}

uint64_t cuda_device_nodes(const struct device *d)
{
    return ((const struct cuda_device *)d)->n_nodes;
}

/* Returns the hash of the key and of everything else that launches depend on: the number of
 * tiles, and the addresses of rows and adapters. */
static uint64_t whole_key(const struct cuda_device *x, uint64_t key)
{
    for (uint32_t i = 0; i < x->n_row_groups; i++) {
        const struct gpu_rows *g = &x->rows[i];
        key = mix(key, (uintptr_t)g->rows);
        key = mix(key, (uint64_t)g->n_rows << 32 | g->counts.n_few);
        key = mix(key, (uint64_t)g->counts.n_many_tiles << 32 | g->counts.n_many_rows);
    }
    key = mix(key, (uintptr_t)x->adapters.list);
    return mix(key, (uint64_t)x->adapters.n_rows << 32 | x->adapters.most_few);
}

static struct gpu_record *find(struct gpu_records *r, uint64_t key)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->all[i].key == key)
            return &r->all[i];
    return NULL;
}

static struct gpu_records *records_of(struct cuda_device *x)
{
    if (!x->records)
        x->records = mem_zalloc(sizeof *x->records);
    return x->records;
}

static enum status begin(struct cuda_device *x, struct gpu_record *r, struct error *err)
{
    struct gpu_records *all = x->records;
    TRY(gpu_memory_free(x->gpu, &all->free_before, err));
    TRY(gpu_graph_begin(x->stream, err));
    x->recording = r;
    return STATUS_OK;
}

/* Returns whether the device still works. After a sticky error, every call fails. */
static bool answers(struct cuda_device *x)
{
    struct error err;
    enum status s = gpu_stream_query(x->stream, &err);
    return s == STATUS_OK || s == STATUS_AGAIN;
}

/* Marks a key as refused. Returns false when the device is lost. */
static bool refuse(struct cuda_device *x, struct gpu_record *r, const struct error *err,
                   struct error *why)
{
    if (!answers(x))
        return false;
    r->is_refused = true;
    *why = *err;
    return true;
}

enum record_state cuda_backend_record(struct device *d, uint64_t key, bool of_rows,
                                      struct error *why)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_records *all = records_of(x);
    struct error err;
    x->may_be_recorded = x->may_be_recorded || of_rows;
    if (!cuda_goes_on(x)) /* sends pending uploads, which must not be recorded */
        return RECORD_NONE;
    if (of_rows)
        key = whole_key(x, key);
    struct gpu_record *r = find(all, key);
    if (!r && all->n < MAX_RECORDS)
        all->all[all->n++] = (struct gpu_record){.key = key};
    if (!r || r->is_refused)
        return RECORD_NONE;
    enum status s = r->graph ? launch(x, r->graph, &err) : begin(x, r, &err);
    if (s == STATUS_OK)
        return r->graph ? RECORD_PLAYED : RECORD_BEGUN;
    if (refuse(x, r, &err, why))
        return RECORD_REFUSED;
    cuda_note(x, s, &err);
    return RECORD_NONE;
}

static enum status end(struct cuda_device *x, struct gpu_record *r, struct error *err)
{
    struct gpu_records *all = x->records;
    uint64_t free_now;
    TRY(gpu_graph_end(x->stream, &r->graph, err));
    TRY(gpu_memory_free(x->gpu, &free_now, err));
    all->n_bytes += all->free_before > free_now ? all->free_before - free_now : 0;
    return launch(x, r->graph, err);
}

/* Ends a recording without a result. No kernel of the recording has run, so the error is cleared
 * if the device still works. */
static bool cancel(struct cuda_device *x, struct error *why)
{
    struct gpu_record *r = x->recording;
    x->recording = NULL;
    gpu_graph_cancel(x->stream);
    if (x->failed == STATUS_OK || !refuse(x, r, &x->error, why))
        return false;
    x->failed = STATUS_OK;
    return true;
}

enum record_state cuda_backend_record_end(struct device *d, uint64_t key, bool is_whole,
                                          struct error *why)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (!cuda_is_recording(x))
        return RECORD_NONE;
    if (!is_whole || x->failed != STATUS_OK)
        return cancel(x, why) ? RECORD_REFUSED : is_whole ? RECORD_PLAYED : RECORD_NONE;
    enum status s = end(x, x->recording, &err);
    cuda_note(x, s, &err);
    if (s != STATUS_OK && cancel(x, why))
        return RECORD_REFUSED;
    x->recording = NULL;
    return RECORD_PLAYED;
}

bool cuda_backend_can_record(const struct device *d, const struct kv_row *rows, uint32_t n_rows)
{
    return n_rows <= GPU_RECORD_ROWS && gpu_tiles_are_few(rows, n_rows);
}

void cuda_backend_record_drop(struct device *d)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_records *all = x->records;
    struct error err;
    if (!all)
        return;
    if (cuda_is_recording(x))
        (void)cancel(x, &err);       /* the record's key is dropped below */
    else if (x->failed == STATUS_OK) /* a recorded pass may still be running */
        cuda_note(x, gpu_stream_sync(x->stream, &err), &err);
    for (uint32_t i = 0; i < all->n; i++)
        gpu_graph_free(all->all[i].graph);
    *all = (struct gpu_records){0};
}

uint64_t cuda_backend_record_bytes(const struct device *d)
{
    const struct gpu_records *all = ((const struct cuda_device *)d)->records;
    return all ? all->n_bytes : 0;
}

void cuda_records_close(struct cuda_device *x)
{
    cuda_backend_record_drop(&x->base);
    mem_free(x->records);
    x->records = NULL;
}
