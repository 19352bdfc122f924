#pragma once
/* The CUDA backend's device, shared by the files of this folder, with its first error. Operators
 * return nothing: the first failure is kept with its text and reported by sync, and nothing is
 * enqueued after it. The parts of the other files are behind pointers here. */
#include "kernels/cuda/attention/expansion.h"
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/abi.h"
#include "kernels/cuda/moe/abi.h"
#include "kernels/host/threads.h"

/* Device memory for one operator's intermediate results; the next operator may overwrite it. */
struct gpu_scratch {
    uint8_t *ptr;
    uint64_t n_bytes;
};

#define GPU_MAX_ROW_GROUPS 2u /* KV groups of a program */

/* The result of upload_rows. Operators carry its pointer `rows`, by which it is found again. */
struct gpu_rows {
    const struct kv_row *rows;    /* on the device, like the tiles */
    const struct gpu_tile *tiles; /* see tiles.h */
    const struct kv_row *on_host; /* as uploaded; the block tables in it are on the device */
    uint32_t n_rows;
    struct gpu_tile_counts counts;
};

/* The rows of a pass whose keys and values are expanded from latents (latent.c). */
struct gpu_expanded {
    bool is_found; /* set once in a pass */
    uint32_t n_runs;
    struct gpu_run *runs; /* [n_runs]; owned, like `at` */
    struct cuda_latent_run *at;
    const struct cuda_latent_run *d_at; /* on the device, like the pointers below */
    const struct gpu_tile *tiles;  /* tiles of all runs in order; slots begin at 0 in each batch */
    const uint32_t *first_keys;    /* [tile] */
    const struct gpu_tile *beside; /* tiles of the other rows */
    struct gpu_tile_counts beside_counts;
};

struct gpu_linear;
struct gpu_packer;
struct gpu_staging;
struct gpu_records;
struct gpu_record;
struct cuda_device {
    struct device base;
    struct gpu_device *gpu;
    struct gpu_stream *stream;
    struct gpu_info info;
    char isa[16];                     /* for example "sm_90" */
    struct pool *pool;                /* host threads, for packing */
    uint64_t limit_bytes, used_bytes; /* device memory: limit of alloc; allocated so far */
    struct gpu_linear *linear;        /* see linear/abi.h */
    struct gpu_packer *packer;        /* see pack.c; NULL until the first weight */
    struct gpu_scratch scratch;
    struct gpu_staging *staging;
    struct gpu_records *records;
    struct gpu_record *recording; /* recording in progress; NULL: none */
    uint64_t n_nodes;             /* result of cuda_device_nodes */
    struct gpu_rows rows[GPU_MAX_ROW_GROUPS];
    uint32_t n_row_groups;
    struct cuda_adapter_rows adapters; /* list NULL: no row of the pass has an adapter */
    uint32_t expand_rows;              /* from the options */
    bool may_be_recorded;              /* launches of the pass may be replayed for other rows */
    struct gpu_expanded expanded;
    enum status failed; /* first failure; STATUS_OK: none */
    struct error error;
};

static inline struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)d;
}
static inline bool cuda_is_recording(const struct cuda_device *x)
{
    return x->recording != NULL;
}

/* Keeps the first failure; ignores STATUS_OK and later ones. */
void cuda_note(struct cuda_device *x, enum status s, const struct error *err);
