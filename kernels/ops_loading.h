#pragma once
/* Tables of struct ops (kernels/ops.h): what a device is given once, when a model or an adapter is
 * loaded. */
#include "kernels/adapter_params.h"
#include "kernels/op_params.h"

struct device;

struct loading_ops {
    /* Bytes of a packed n x k matrix (group: of struct weight); 0: this backend has no kernel for
     * the dtype, or k is no whole number of its blocks. */
    uint64_t (*weight_bytes)(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                             uint32_t group);
    /* w->data has weight_bytes; rows holds w->n rows. A matrix is packed in pieces of a multiple of
     * 16 rows alike: the bytes of one follow those of the one before, and weight_bytes of 0 rows is
     * 0. */
    void (*weight_pack)(struct device *d, struct weight *w, const struct weight_rows *rows);
    /* fn(ctx, i) for i < n on the host's threads that the device has. */
    void (*parallel_for)(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i),
                         void *ctx);
    /* Experts, or matrices of heads, as the device wants them told: made once when they are loaded,
     * n_bytes of `table_bytes` in device memory. CPU: NULL, 0. */
    uint64_t (*table_bytes)(const struct device *d, uint32_t n);
    void (*expert_table)(struct device *d, const struct moe_expert *experts, uint32_t n, void *out);
    void (*head_table)(struct device *d, const struct weight *const *w, uint32_t n, void *out);
};

/* Adapters: on a CPU `lora`, which takes a pass's rows from the host's memory, and the others are
 * NULL; elsewhere the others. */
struct adapter_ops {
    void (*lora)(struct device *d, const struct lora_params *p);
    /* A pass's rows by their adapters, for the `add` of this pass. */
    const uint32_t *(*upload)(struct device *d, const struct adapter_rows *rows);
    /* An adapter's pairs as the device wants them told: n of them, in n * `bytes` of device memory,
     * written when it is loaded, behind whatever still reads the one that was there. */
    uint64_t (*bytes)(const struct device *d);
    void (*table)(struct device *d, const struct lora_pair *pairs, uint32_t n, void *out);
    void (*add)(struct device *d, const struct adapters_params *p);
};
