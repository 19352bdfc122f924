/* Packs weights and sends them to the device. All threads of the host pack row tiles into pinned
 * buffers ("rooms"). Asynchronous copies send a room to the device while the next room is
 * packed. A checkpoint of plain numbers is copied once on the host, by many threads, and sent at
 * the link's speed. */
#include "kernels/cuda/backend/pack.h"

#include "common/base/mem.h"
#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/backend/linear.h"
#include "kernels/cuda/weights/pack.h"

/* N_ROOMS is the number of rooms, and ROOM_BYTES is the size of a room unless one row tile is
 * larger. Each room costs one pool_run, in which the threads wake up, divide the tasks and wait
 * for each other. A link of 55 GB/s takes 0.15 ms for a room of 8 MiB, so a wake-up of some tens
 * of microseconds would be noticeable. The link takes 0.6 ms for 32 MiB. Four rooms pin at most
 * 128 MiB of host memory, or more if one row tile is larger. */
enum { N_ROOMS = 4, ROOM_BYTES = 32 << 20, LEAST_ROOM_BYTES = 1 << 20, TASK_BYTES = 128 << 10 };

struct room {
    uint8_t *ptr;
    uint64_t n_bytes;
    struct gpu_event *copied; /* event behind the last copy from this room */
};
struct gpu_packer {
    struct room rooms[N_ROOMS];
    uint32_t next;
};

void cuda_packer_free(struct cuda_device *x)
{
    struct gpu_packer *p = x->packer;
    for (uint32_t i = 0; p && i < N_ROOMS; i++) {
        gpu_event_free(p->rooms[i].copied);
        gpu_host_release(x->gpu, p->rooms[i].ptr);
    }
    mem_free(p);
    x->packer = NULL;
}

/* Rounds n_bytes up, so that a room grows only a few times. A model of small matrices pins no
 * more than it needs. */
static uint64_t room_bytes(uint64_t n_bytes)
{
    uint64_t n = LEAST_ROOM_BYTES;
    while (n < n_bytes && n < ROOM_BYTES)
        n *= 2;
    return n < n_bytes ? n_bytes : n;
}

/* Returns a room of at least n_bytes that no copy reads any more. */
static enum status room_take(struct cuda_device *x, uint64_t n_bytes, struct room **out,
                             struct error *err)
{
    if (!x->packer)
        x->packer = mem_zalloc(sizeof *x->packer);
    struct room *r = &x->packer->rooms[x->packer->next++ % N_ROOMS];
    if (r->copied)
        TRY(gpu_event_wait(r->copied, err));
    else
        TRY(gpu_event_new(x->gpu, &r->copied, err));
    if (r->n_bytes < n_bytes) {
        const uint64_t n = room_bytes(n_bytes);
        void *ptr = NULL;
        gpu_host_release(x->gpu, r->ptr);
        *r = (struct room){.copied = r->copied};
        TRY(gpu_host_alloc(x->gpu, n, &ptr, err));
        r->ptr = ptr;
        r->n_bytes = n;
    }
    *out = r;
    return STATUS_OK;
}

/* `packing` describes the row tiles of a room; a task packs some of them. */
struct packing {
    const struct gpu_matrix *m;
    enum dtype dtype;
    const struct weight_rows *rows;
    uint32_t first, end, per_task;
    uint8_t *to;
};
static void pack_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct packing *p = ctx;
    uint32_t at = p->first + i_task * p->per_task;
    uint32_t end = p->end - at < p->per_task ? p->end : at + p->per_task;
    for (; at < end; at++)
        gpu_pack_tile(p->m, p->dtype, p->rows, at,
                      p->to + (uint64_t)(at - p->first) * p->m->tile_bytes);
}

static enum status pack(struct cuda_device *x, const struct gpu_matrix *m, enum dtype dtype,
                        const struct weight_rows *rows, struct error *err)
{
    uint32_t n_tiles = gpu_n_row_tiles(m), n;
    uint32_t in_room = m->tile_bytes < ROOM_BYTES ? ROOM_BYTES / m->tile_bytes : 1;
    uint32_t per_task = m->tile_bytes < TASK_BYTES ? TASK_BYTES / m->tile_bytes : 1;
    for (uint32_t first = 0; first < n_tiles; first += n) {
        struct room *r;
        n = n_tiles - first < in_room ? n_tiles - first : in_room;
        uint64_t n_bytes = (uint64_t)n * m->tile_bytes;
        TRY(room_take(x, n_bytes, &r, err));
        pool_run(x->pool, (n + per_task - 1) / per_task, pack_task,
                 &(struct packing){m, dtype, rows, first, first + n, per_task, r->ptr});
        uint8_t *to = (uint8_t *)(uintptr_t)m->codes + (uint64_t)first * m->tile_bytes;
        TRY(gpu_copy_to_device(x->stream, to, r->ptr, n_bytes, err));
        TRY(gpu_event_record(r->copied, x->stream, err));
    }
    return STATUS_OK;
}

void cuda_backend_weight_pack(struct device *d, struct weight *w, const struct weight_rows *rows)
{
    struct cuda_device *x = cuda_of(d);
    struct gpu_matrix m;
    struct error err;
    if (cuda_goes_on(x) && cuda_matrix_of(x, w, &m))
        cuda_note(x, pack(x, &m, w->dtype, rows, &err), &err);
}
