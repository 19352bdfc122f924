#pragma once
/* Defines the CUDA backend's device, shared by the files of this folder, with its first error.
 * Operators return nothing: the first failure is kept with its text and reported by sync, and
 * nothing is enqueued after it. The struct has pointers to the state of the other files. */
#include "kernels/cuda/attention/expansion.h"
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/abi.h"
#include "kernels/cuda/moe/abi.h"
#include "kernels/host/threads.h"

/* `gpu_scratch` is device memory for one operator's intermediate results; the next operator may
 * overwrite it. */
struct gpu_scratch {
    uint8_t *ptr;
    uint64_t n_bytes;
};

#define GPU_MAX_ROW_GROUPS 2u /* most KV groups of a program */

/* `gpu_rows` is the result of upload_rows. Operators carry its pointer `rows`, by which the
 * result is found again. */
struct gpu_rows {
    const struct kv_row *rows;    /* rows on the device, like the tiles */
    const struct gpu_tile *tiles; /* tiles of the rows (attention/tiles.h) */
    /* `on_host` holds the rows as uploaded. Their block-table pointers point to device memory. */
    const struct kv_row *on_host;
    uint32_t n_rows;
    struct gpu_tile_counts counts;
};

/* `gpu_expanded` names the rows of a pass whose keys and values are expanded from latents
 * (latent.c). */
struct gpu_expanded {
    bool is_found; /* set to true once in a pass, when the runs have been found */
    uint32_t n_runs;
    struct gpu_run *runs; /* shape [n_runs]: host memory owned by this struct, like `at` */
    struct cuda_latent_run *at;
    const struct cuda_latent_run *d_at; /* copy of `at` on the device, like the pointers below */
    const struct gpu_tile *tiles;  /* tiles of all runs in order; slots begin at 0 in each batch */
    const uint32_t *first_keys;    /* `first_keys` has the shape [tile] */
    const struct gpu_tile *beside; /* tiles of the rows that are in no run */
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
    char isa[16];      /* name of the architecture, for example "sm_90" */
    struct pool *pool; /* host threads, for packing */
    /* `limit_bytes` is the limit of alloc on device memory, and `used_bytes` is allocated so
     * far. */
    uint64_t limit_bytes, used_bytes;
    struct gpu_linear *linear; /* state of products (linear/abi.h) */
    struct gpu_packer *packer; /* packer of weights (pack.c); NULL until the first weight */
    struct gpu_scratch scratch;
    struct gpu_staging *staging;
    struct gpu_records *records;
    struct gpu_record *recording; /* recording in progress; NULL: none */
    uint64_t n_nodes;             /* number of nodes run so far, as cuda_device_nodes returns it */
    struct gpu_rows rows[GPU_MAX_ROW_GROUPS];
    uint32_t n_row_groups;
    /* its `list` is NULL when no row of the pass has an adapter */
    struct cuda_adapter_rows adapters;
    uint32_t expand_rows; /* the option `expand_rows` of cuda_device_options */
    bool may_be_recorded; /* launches of the pass may be replayed for other rows */
    struct gpu_expanded expanded;
    enum status failed; /* status of the first failure; STATUS_OK: none */
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

/* Keeps the first failure. Ignores STATUS_OK and later failures. */
void cuda_note(struct cuda_device *x, enum status s, const struct error *err);
