#pragma once
/* The CUDA backend's device, which the rooms of this folder share: what it holds, and its first
 * error. Operators are void: what fails is kept, the first with its text, and sync tells it; after
 * it nothing is enqueued. Each room's own part is behind a pointer here. */
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

/* What upload_rows gave, found again by the pointer that operators carry. */
struct gpu_rows {
    const struct kv_row *rows;    /* of the device, as are the tiles */
    const struct gpu_tile *tiles; /* tiles.h */
    const struct kv_row *on_host; /* as they were uploaded: tables are the device's */
    uint32_t n_rows;
    struct gpu_tile_counts counts;
};

/* The rows of a pass whose keys and values are made out of latents (latent.c). */
struct gpu_expanded {
    bool is_found; /* of this pass */
    uint32_t n_runs;
    struct gpu_run *runs; /* [n_runs], owned, as is at */
    struct cuda_latent_run *at;
    const struct cuda_latent_run *d_at; /* of the device, as are: */
    const struct gpu_tile *tiles;       /* of all runs in order, each batch's slots from 0 */
    const uint32_t *first_keys;         /* [tile] */
    const struct gpu_tile *beside;      /* of the other rows */
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
    char isa[16];                     /* "sm_90" */
    struct pool *pool;                /* the host's threads, for packing */
    uint64_t limit_bytes, used_bytes; /* of device memory: what alloc may give, and has given */
    struct gpu_linear *linear;        /* linear/abi.h */
    struct gpu_packer *packer;        /* pack.c; NULL until the first weight */
    struct gpu_scratch scratch;
    struct gpu_staging *staging;
    struct gpu_records *records;
    struct gpu_record *recording; /* the one that was begun and has not ended; NULL: none */
    uint64_t n_nodes;             /* cuda_device_nodes */
    struct gpu_rows rows[GPU_MAX_ROW_GROUPS];
    uint32_t n_row_groups;
    struct cuda_adapter_rows adapters; /* list NULL: no row of the pass has one */
    uint32_t expand_rows;              /* of the options */
    bool may_be_recorded;              /* the pass: its launches may be replayed for others */
    struct gpu_expanded expanded;
    enum status failed; /* STATUS_OK while nothing has */
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

/* Keeps the first failure. */
void cuda_note(struct cuda_device *x, enum status s, const struct error *err);
