#pragma once
/* Tables of struct ops (kernels/ops.h): a device's memory, and what a pass brings to it. */
#include "common/base/status.h"
#include "kernels/op_params.h"

struct device;

/* The largest of everything a program does in a pass of n_rows. */
struct scratch_shape {
    uint32_t n_rows, n_logits_rows;
    uint32_t n_heads, n_kv_heads, head_dim, v_dim; /* of attention, on this rank */
    uint32_t n_experts, n_chosen, expert_width;    /* 0: no mixture */
    uint32_t hidden;
    bool is_latent;                /* v_dim: of the latent, whose first elements are the values */
    uint64_t most_weight_elements; /* n * k of the largest matrix */
    uint32_t head_nope, head_v;    /* of a latent: what the model's own heads have of it */
    uint32_t max_len;              /* positions of a sequence at most */
};

struct memory_ops {
    /* Zeroed memory of the device in large pages; NULL when there is none. */
    void *(*alloc)(struct device *d, uint64_t n_bytes);
    void (*release)(struct device *d, void *ptr, uint64_t n_bytes);
    uint64_t (*available_bytes)(const struct device *d); /* that alloc may still give */
    /* Copies of weights and constants, outside of passes: host memory to device memory and back.
     * When they return the host's memory is the caller's again. */
    void (*write)(struct device *d, void *to, const void *host, uint64_t n_bytes);
    MUST_USE enum status (*read)(struct device *d, void *host, const void *from, uint64_t n_bytes,
                                 struct error *err);
    /* From device memory to device memory, in the order of the operators. */
    void (*copy)(struct device *d, void *to, const void *from, uint64_t n_bytes);
    /* Memory that operators need beside their arguments, for the largest shapes of a program; one
     * piece, given once. CPU: 0. */
    uint64_t (*scratch_bytes)(const struct device *d, const struct scratch_shape *s);
    void (*use_scratch)(struct device *d, void *ptr, uint64_t n_bytes);
};

/* Entries of block tables that a pass has in all. The same on all ranks, or they would cut a step
 * differently. */
#define PASS_TABLE_ENTRIES (4u << 20)

struct pass_ops {
    /* A pass begins: what was uploaded for the one before is not valid any more. */
    void (*begin)(struct device *d);
    /* Numbers of the host as the device reads them in this pass: the pointer itself on a CPU, where
     * they must stay as they are until sync; a copy elsewhere. The n-th upload of a pass lies where
     * it lay in the pass before when all before it have the same sizes. */
    const void *(*upload)(struct device *d, const void *host, uint64_t n_bytes);
    /* The rows' sequences in one KV group, with their block tables: in all groups of a pass at most
     * PASS_TABLE_ENTRIES, which every device has room for. What it gives goes into the `rows` of
     * kv_write and attention of this pass. */
    const struct kv_row *(*upload_rows)(struct device *d, const struct kv_row *rows,
                                        uint32_t n_rows, uint32_t block_tokens);
    MUST_USE enum status (*sync)(struct device *d, struct error *err);
};
