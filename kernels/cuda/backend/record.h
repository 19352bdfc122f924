#pragma once
/* Declares recorded passes: the operators `record*` of struct ops. record.c explains which
 * passes are recorded. */
#include "kernels/cuda/backend/state.h"

enum record_state cuda_backend_record(struct device *d, uint64_t key, bool of_rows,
                                      struct error *why);
enum record_state cuda_backend_record_end(struct device *d, uint64_t key, bool is_whole,
                                          struct error *why);
bool cuda_backend_can_record(const struct device *d, const struct kv_row *rows, uint32_t n_rows);
void cuda_backend_record_drop(struct device *d);
uint64_t cuda_backend_record_bytes(const struct device *d);
void cuda_records_close(struct cuda_device *x);
