#pragma once
/* What the files of the CUDA backend share: backend.c (device, memory, uploads), backend_*.c (glue
 * from struct ops to the kernels of cuda_*.h, one file for each kind). Operators are void: what
 * fails is kept, the first with its text, and sync tells it; after it nothing is enqueued. */
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

/* The rows of a pass whose keys and values are made out of latents (backend_latent.c). */
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
struct cuda_device {
    struct device base;
    struct gpu_device *gpu;
    struct gpu_stream *stream;
    struct gpu_info info;
    char isa[16];                     /* "sm_90" */
    struct pool *pool;                /* the host's threads, for packing */
    uint64_t limit_bytes, used_bytes; /* of device memory: what alloc may give, and has given */
    struct gpu_linear *linear;        /* cuda_linear.h */
    struct gpu_packer *packer;        /* backend_pack.c; NULL until the first weight */
    struct gpu_scratch scratch;
    struct gpu_staging *staging;
    struct gpu_records *records;
    uint64_t n_nodes; /* cuda_device_nodes */
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

/* Sends what was uploaded and not sent yet; true while nothing has failed. Use: if
 * (cuda_goes_on(x)) cuda_note(x, cuda_...(x->stream, p, &err), &err); */
bool cuda_goes_on(struct cuda_device *x);
/* Keeps the first failure. */
void cuda_note(struct cuda_device *x, enum status s, const struct error *err);
/* The weight as kernels take it. False: it has no outputs, of which there is nothing to do, or no
 * kernel takes it, which is kept (it ought to have been refused before it was loaded). */
struct gpu_matrix;
bool cuda_matrix_of(struct cuda_device *x, const struct weight *w, struct gpu_matrix *out);
/* The tiles of rows that upload_rows gave. */
const struct gpu_rows *cuda_rows(const struct cuda_device *x, const struct kv_row *rows);

/* The glue, by file. */
/* backend_staging.c: uploads */
MUST_USE enum status cuda_staging_open(struct cuda_device *x, uint64_t n_bytes, struct error *err);
void cuda_staging_close(struct cuda_device *x);
bool cuda_staging_is_dirty(const struct cuda_device *x);
MUST_USE enum status cuda_staging_send(struct cuda_device *x, struct error *err);
void cuda_backend_begin(struct device *d);
const void *cuda_backend_upload(struct device *d, const void *host, uint64_t n_bytes);
const struct kv_row *cuda_backend_upload_rows(struct device *d, const struct kv_row *rows,
                                              uint32_t n_rows, uint32_t block_tokens);
const uint32_t *cuda_backend_upload_adapters(struct device *d, const struct adapter_rows *rows);
/* backend_record.c */
enum record_state cuda_backend_record(struct device *d, uint64_t key, bool of_rows,
                                      struct error *why);
enum record_state cuda_backend_record_end(struct device *d, uint64_t key, bool is_whole,
                                          struct error *why);
bool cuda_backend_can_record(const struct device *d, const struct kv_row *rows, uint32_t n_rows);
void cuda_backend_record_drop(struct device *d);
uint64_t cuda_backend_record_bytes(const struct device *d);
bool cuda_is_recording(const struct cuda_device *x);
void cuda_records_close(struct cuda_device *x);
/* backend_draw.c, with cuda_draw.h */
void cuda_backend_take_last(struct device *d, uint32_t *ids, const uint32_t *slots,
                            const uint32_t *last, uint32_t n_rows);
/* backend_rows.c: what cuda_rows.h and the norms are for */
void cuda_backend_gather(struct device *d, struct view out, struct view x, const uint32_t *rows,
                         uint32_t n_rows, uint32_t dim);
void cuda_backend_add_norm(struct device *d, const struct add_params *add,
                           const struct norm_params *p);
void cuda_backend_norm(struct device *d, const struct norm_params *p);
void cuda_backend_sum_squares(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                              float *out);
void cuda_backend_clear(struct device *d, struct view x, uint32_t n_rows, uint32_t dim);
void cuda_backend_rope_table(struct device *d, const struct rope_table_params *p);
void cuda_backend_rope(struct device *d, const struct rope_params *p);
void cuda_backend_gated(struct device *d, const struct gated_params *p);
void cuda_backend_add(struct device *d, const struct add_params *p);
void cuda_backend_copy_heads(struct device *d, const struct copy_heads_params *p);
void cuda_backend_gate_rows(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                            struct view gate);
void cuda_backend_softcap(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                          float cap);
void cuda_backend_logits_top(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                             struct logits_top *out);
void cuda_backend_sum_exp(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                          const float *shift, double *out);
/* backend_linear.c */
uint64_t cuda_backend_weight_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                                   uint32_t group);
void cuda_backend_weight_pack(struct device *d, struct weight *w, const struct weight_rows *rows);
void cuda_packer_free(struct cuda_device *x);
void cuda_backend_embed(struct device *d, const struct embed_params *p);
void cuda_backend_linear(struct device *d, const struct linear_params *p);
void cuda_backend_linear_gated(struct device *d, const struct linear_params *p,
                               const struct gated_params *g);
uint64_t cuda_linear_scratch_bytes(const struct scratch_shape *s);
/* backend_attention.c */
void cuda_backend_kv_write(struct device *d, const struct kv_write_params *p);
void cuda_backend_rope_kv(struct device *d, const struct rope_params *q,
                          const struct rope_params *k, const struct kv_write_params *p);
void cuda_backend_attention(struct device *d, const struct attention_params *p);
uint64_t cuda_attention_scratch_bytes(const struct scratch_shape *s);
/* backend_latent.c */
void cuda_backend_latent(struct device *d, const struct latent_params *p);
uint64_t cuda_latent_scratch_bytes(const struct cuda_device *x, const struct scratch_shape *s);
void cuda_latent_begin(struct cuda_device *x); /* a pass */
void cuda_latent_free(struct cuda_device *x);
/* backend_moe.c */
void cuda_backend_route(struct device *d, const struct route_params *p);
void cuda_backend_moe(struct device *d, const struct moe_params *p);
void cuda_backend_heads(struct device *d, const struct heads_params *p);
void cuda_backend_add_adapters(struct device *d, const struct adapters_params *p);
uint64_t cuda_backend_adapter_bytes(const struct device *d);
void cuda_backend_adapter_table(struct device *d, const struct lora_pair *pairs, uint32_t n,
                                void *out);
uint64_t cuda_backend_table_bytes(const struct device *d, uint32_t n);
void cuda_backend_expert_table(struct device *d, const struct moe_expert *experts, uint32_t n,
                               void *out);
void cuda_backend_head_table(struct device *d, const struct weight *const *w, uint32_t n,
                             void *out);
uint64_t cuda_moe_scratch_bytes(const struct scratch_shape *s);
