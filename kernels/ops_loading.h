#pragma once
/* Declares the tables of struct ops (kernels/ops.h) for data that is sent to a device once, when
 * a model or an adapter is loaded. */
#include "kernels/adapter_params.h"
#include "kernels/op_params.h"

struct device;

struct loading_ops {
    /* Returns the bytes of a packed n x k matrix; `group` is the group of struct weight. Returns
     * 0 when this backend has no kernel for the dtype, or k is not a whole number of its blocks. */
    uint64_t (*weight_bytes)(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                             uint32_t group);
    /* Packs w->n rows into w->data, which has weight_bytes. A matrix may be packed in pieces of
     * a multiple of 16 rows. The bytes of one piece then follow the bytes of the piece before,
     * and weight_bytes of 0 rows is 0. */
    void (*weight_pack)(struct device *d, struct weight *w, const struct weight_rows *rows);
    /* Runs fn(ctx, i) for i < n on the device's host threads. */
    void (*parallel_for)(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i),
                         void *ctx);
    /* The functions below make tables of experts, or of the matrices of heads, in the device's
     * own form. The tables are made once at load, in table_bytes of device memory. On a CPU all
     * three functions are NULL. */
    uint64_t (*table_bytes)(const struct device *d, uint32_t n);
    void (*expert_table)(struct device *d, const struct moe_expert *experts, uint32_t n, void *out);
    void (*head_table)(struct device *d, const struct weight *const *w, uint32_t n, void *out);
};

/* `adapter_ops` holds the operators for adapters. On a CPU only `lora` is set, which takes a
 * pass's rows from host memory. On other devices all other fields are set. */
struct adapter_ops {
    void (*lora)(struct device *d, const struct lora_params *p);
    /* Uploads a pass's rows by adapter, for the `add` calls of this pass. */
    const uint32_t *(*upload)(struct device *d, const struct adapter_rows *rows);
    /* The functions below write an adapter's pairs in the device's own form: n of them in n *
     * `bytes` of device memory. They are written when the adapter is loaded, after all work that
     * reads the old adapter in the same place. */
    uint64_t (*bytes)(const struct device *d);
    void (*table)(struct device *d, const struct lora_pair *pairs, uint32_t n, void *out);
    void (*add)(struct device *d, const struct adapters_params *p);
};
