#pragma once
/* Declares the uploads of a pass: the operators `begin` and `upload*` of struct ops, and
 * look-ups for other operators. staging.c explains the layout. */
#include "kernels/cuda/backend/state.h"

MUST_USE enum status cuda_staging_open(struct cuda_device *x, uint64_t n_bytes, struct error *err);
void cuda_staging_close(struct cuda_device *x);
bool cuda_staging_is_dirty(const struct cuda_device *x);
MUST_USE enum status cuda_staging_send(struct cuda_device *x, struct error *err);
/* Begins a pass. It selects the next host buffer, after the device has read that buffer. */
void cuda_staging_begin(struct cuda_device *x);
const void *cuda_backend_upload(struct device *d, const void *host, uint64_t n_bytes);
const struct kv_row *cuda_backend_upload_rows(struct device *d, const struct kv_row *rows,
                                              uint32_t n_rows, uint32_t block_tokens);
const uint32_t *cuda_backend_upload_adapters(struct device *d, const struct adapter_rows *rows);
/* Returns the tiles of rows that upload_rows returned. */
const struct gpu_rows *cuda_rows(const struct cuda_device *x, const struct kv_row *rows);
