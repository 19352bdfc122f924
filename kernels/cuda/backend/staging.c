/* Sends the uploads of a pass (ids, positions, rows, block tables) to the device. The runner
 * uploads, then calls operators. The first operator sends all uploads, in one transfer for each
 * zone.
 * The host writes into pinned memory. There are several copies of this memory, so that the host
 * never waits for a pass that the device has not begun. The device has one copy, which transfers
 * overwrite in the stream's order.
 * There are two zones. Numbers have sizes that follow from the pass's shape, so that a recorded
 * pass finds them at the same addresses each time. Block tables grow with the sequences and are
 * found through the rows. */
#include "kernels/cuda/backend/staging.h"

#include <string.h>

#include "common/base/mem.h"

/* NUMBERS_PART: the first quarter of the memory is for numbers */
enum { SLOTS = 4, ALIGN = 256, NUMBERS_PART = 4 };
#define DEFAULT_BYTES (32ull << 20)
/* MOST_TABLES is the largest number of block tables of a pass, each at a multiple of ALIGN. It
 * allows a large pass in which each row is a sequence. */
enum { MOST_TABLES = 8192 * GPU_MAX_ROW_GROUPS };
_Static_assert(PASS_TABLE_ENTRIES * sizeof(uint32_t) + MOST_TABLES * ALIGN <=
                   DEFAULT_BYTES / NUMBERS_PART * (NUMBERS_PART - 1),
               "the tables of every pass fit into their zone");

struct zone {
    uint64_t begin, end, used, sent;
};

struct slot {
    uint8_t *host;
    struct gpu_event *sent; /* event behind the transfer, after which `host` may be reused */
};

struct gpu_staging {
    uint8_t *device;
    uint64_t n_bytes;
    struct slot slots[SLOTS];
    uint32_t i_slot;
    struct zone numbers, tables;
};

enum status cuda_staging_open(struct cuda_device *x, uint64_t n_bytes, struct error *err)
{
    struct gpu_staging *s = x->staging = mem_zalloc(sizeof *s);
    s->n_bytes = (n_bytes > 0 ? n_bytes : DEFAULT_BYTES) / ALIGN * ALIGN;
    uint64_t middle = s->n_bytes / NUMBERS_PART / ALIGN * ALIGN;
    s->numbers = (struct zone){.begin = 0, .end = middle};
    s->tables = (struct zone){.begin = middle, .end = s->n_bytes};
    void *ptr;
    TRY(gpu_alloc(x->gpu, s->n_bytes, &ptr, err));
    s->device = ptr;
    for (uint32_t i = 0; i < SLOTS; i++) {
        TRY(gpu_host_alloc(x->gpu, s->n_bytes, &ptr, err));
        s->slots[i].host = ptr;
        TRY(gpu_event_new(x->gpu, &s->slots[i].sent, err));
    }
    return STATUS_OK;
}

void cuda_staging_close(struct cuda_device *x)
{
    struct gpu_staging *s = x->staging;
    if (!s)
        return;
    for (uint32_t i = 0; i < SLOTS; i++) {
        gpu_event_free(s->slots[i].sent);
        gpu_host_release(x->gpu, s->slots[i].host);
    }
    gpu_release(x->gpu, s->device);
    mem_free(s);
    x->staging = NULL;
}

static void zone_begin(struct zone *z)
{
    z->used = z->sent = z->begin;
}

void cuda_staging_begin(struct cuda_device *x)
{
    struct gpu_staging *s = x->staging;
    struct error err;
    s->i_slot = (s->i_slot + 1) % SLOTS;
    zone_begin(&s->numbers);
    zone_begin(&s->tables);
    if (x->failed == STATUS_OK)
        cuda_note(x, gpu_event_wait(s->slots[s->i_slot].sent, &err), &err);
}

/* Reserves memory in a zone; *at is its offset in host and device memory. When the zone is full,
 * the function returns false and records the failure in x. */
static bool take(struct cuda_device *x, struct zone *z, uint64_t n_bytes, uint64_t *at)
{
    struct error err;
    if (n_bytes > z->end - z->used) {
        cuda_note(
            x,
            error_set(&err, STATUS_LIMIT,
                      "a pass uploads more than the %llu KiB that its staging area has: use fewer "
                      "or shorter sequences in a step (--max-num-seqs, --max-model-len)",
                      (unsigned long long)(z->end - z->begin) >> 10),
            &err);
        return false;
    }
    if (cuda_is_recording(x)) { /* a replay would not repeat the upload */
        cuda_note(
            x,
            error_set(&err, STATUS_INTERNAL,
                      "a recorded pass called an upload, which is not allowed. Report this bug"),
            &err);
        return false;
    }
    *at = z->used;
    z->used += (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
    z->used = z->used < z->end ? z->used : z->end;
    return true;
}

static uint8_t *host_at(const struct gpu_staging *s, uint64_t at)
{
    return s->slots[s->i_slot].host + at;
}

const void *cuda_backend_upload(struct device *d, const void *host, uint64_t n_bytes)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_staging *s = x->staging;
    uint64_t at;
    if (x->failed != STATUS_OK || !take(x, &s->numbers, n_bytes, &at))
        return s->device;
    if (n_bytes > 0)
        memcpy(host_at(s, at), host, n_bytes);
    return s->device + at;
}

/* ---- rows with their tables ---- */

static bool shares_table(const struct kv_row *a, const struct kv_row *b)
{
    return a->blocks == b->blocks && a->n_dropped == b->n_dropped;
}

/* Returns the number of blocks that a row's table must have. */
static uint32_t n_blocks(const struct kv_row *row, uint32_t block_tokens)
{
    return row->position == KV_ROW_NONE ? 0 : row->position / block_tokens - row->n_dropped + 1;
}

/* Copies the table that rows first .. *end - 1 share; sets *end and *out. */
static bool put_table(struct cuda_device *x, const struct kv_row *rows, uint32_t n_rows,
                      uint32_t block_tokens, uint32_t first, uint32_t *end, const uint32_t **out)
{
    struct gpu_staging *s = x->staging;
    uint64_t at;
    uint32_t most = 0;
    for (*end = first; *end < n_rows && shares_table(&rows[first], &rows[*end]); ++*end) {
        uint32_t n = n_blocks(&rows[*end], block_tokens);
        most = n > most ? n : most;
    }
    if (!take(x, &s->tables, most * sizeof **out, &at))
        return false;
    if (most > 0)
        memcpy(host_at(s, at), rows[first].blocks, most * sizeof **out);
    *out = (const uint32_t *)(const void *)(s->device + at);
    return true;
}

const struct kv_row *cuda_backend_upload_rows(struct device *d, const struct kv_row *rows,
                                              uint32_t n_rows, uint32_t block_tokens)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_staging *s = x->staging;
    struct error err;
    uint64_t rows_at, tiles_at;
    const struct kv_row *nothing = (const struct kv_row *)(const void *)s->device;
    if (x->failed == STATUS_OK && x->n_row_groups == GPU_MAX_ROW_GROUPS)
        cuda_note(x,
                  error_set(&err, STATUS_INTERNAL,
                            "a pass has a third group of rows, but the staging area has space for "
                            "two. Report this bug"),
                  &err);
    if (x->failed != STATUS_OK || !take(x, &s->numbers, n_rows * sizeof *rows, &rows_at) ||
        !take(x, &s->numbers, n_rows * sizeof(struct gpu_tile), &tiles_at))
        return nothing;
    struct kv_row *to = (struct kv_row *)(void *)host_at(s, rows_at);
    struct gpu_tile *tiles = (struct gpu_tile *)(void *)host_at(s, tiles_at);
    for (uint32_t i = 0, end; i < n_rows;) {
        const uint32_t *table;
        if (!put_table(x, rows, n_rows, block_tokens, i, &end, &table))
            return nothing;
        for (; i < end; i++)
            to[i] = (struct kv_row){table, rows[i].n_dropped, rows[i].position};
    }
    struct gpu_rows *g = &x->rows[x->n_row_groups++];
    g->rows = (const struct kv_row *)(const void *)(s->device + rows_at);
    g->tiles = (const struct gpu_tile *)(const void *)(s->device + tiles_at);
    g->on_host = to;
    g->n_rows = n_rows;
    g->counts = gpu_tiles_find(rows, n_rows, tiles);
    return g->rows;
}

/* Returns whether the rows that this pass has uploaded may be recorded. */
static bool has_few_tiles(const struct cuda_device *x, uint32_t n_rows)
{
    bool few = n_rows <= GPU_RECORD_ROWS;
    for (uint32_t i = 0; i < x->n_row_groups; i++)
        few = few && x->rows[i].counts.n_many_tiles == 0;
    return few;
}

const uint32_t *cuda_backend_upload_adapters(struct device *d, const struct adapter_rows *rows)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_staging *s = x->staging;
    uint64_t at;
    if (x->failed != STATUS_OK ||
        !take(x, &s->numbers, cuda_adapter_rows_bytes(rows->n_rows, rows->n_adapters), &at))
        return NULL;
    cuda_adapter_rows_fill(rows, has_few_tiles(x, rows->n_rows), host_at(s, at), s->device + at,
                           &x->adapters);
    return x->adapters.list;
}

const struct gpu_rows *cuda_rows(const struct cuda_device *x, const struct kv_row *rows)
{
    for (uint32_t i = 0; i < x->n_row_groups; i++)
        if (x->rows[i].rows == rows)
            return &x->rows[i];
    return NULL;
}

/* ---- to the device ---- */

bool cuda_staging_is_dirty(const struct cuda_device *x)
{
    const struct gpu_staging *s = x->staging;
    return s->numbers.sent < s->numbers.used || s->tables.sent < s->tables.used;
}

static enum status send_zone(struct cuda_device *x, struct zone *z, struct error *err)
{
    const struct gpu_staging *s = x->staging;
    uint64_t n = z->used - z->sent;
    if (n == 0)
        return STATUS_OK;
    TRY(gpu_copy_to_device(x->stream, s->device + z->sent, host_at(s, z->sent), n, err));
    z->sent = z->used;
    return STATUS_OK;
}

enum status cuda_staging_send(struct cuda_device *x, struct error *err)
{
    struct gpu_staging *s = x->staging;
    TRY(send_zone(x, &s->numbers, err));
    TRY(send_zone(x, &s->tables, err));
    return gpu_event_record(s->slots[s->i_slot].sent, x->stream, err);
}
