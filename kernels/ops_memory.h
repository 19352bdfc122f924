#pragma once
/* Declares the tables of struct ops (kernels/ops.h) for a device's memory and the uploads of a
 * pass. */
#include "common/base/status.h"
#include "kernels/op_params.h"

struct device;

/* `scratch_shape` holds the largest sizes in a program's passes of n_rows. */
struct scratch_shape {
    uint32_t n_rows, n_logits_rows;
    uint32_t n_heads, n_kv_heads, head_dim, v_dim; /* sizes of attention on this rank */
    uint32_t n_experts, n_chosen, expert_width;    /* sizes of a mixture; 0 = no mixture */
    uint32_t hidden;
    bool is_latent; /* v_dim is the size of the latent's values, which are its first elements */
    uint64_t most_weight_elements; /* n * k of the largest matrix */
    uint32_t head_nope, head_v;    /* for a latent: nope and value sizes of the model's own heads */
    uint32_t max_len;              /* most positions of a sequence */
};

struct memory_ops {
    /* Returns zeroed device memory in large pages, or NULL when too little memory is free. */
    void *(*alloc)(struct device *d, uint64_t n_bytes);
    void (*release)(struct device *d, void *ptr, uint64_t n_bytes);
    /* Gives the pages back to the system and keeps the address. The memory is zeroed when it is
     * used again. NULL = the device can only release memory. */
    void (*discard)(struct device *d, void *ptr, uint64_t n_bytes);
    /* These functions allocate and free host memory that a device with memory of its own copies
     * at the speed of its link (page-locked). alloc_host returns NULL when too little is free.
     * NULL = device memory is host memory. */
    void *(*alloc_host)(struct device *d, uint64_t n_bytes);
    void (*release_host)(struct device *d, void *ptr);
    /* returns the bytes that alloc can still return */
    uint64_t (*available_bytes)(const struct device *d);
    /* The two functions below copy weights and constants, outside of passes, from host memory to
     * device memory and back. When these calls return, the caller may reuse the host memory. */
    void (*write)(struct device *d, void *to, const void *host, uint64_t n_bytes);
    MUST_USE enum status (*read)(struct device *d, void *host, const void *from, uint64_t n_bytes,
                                 struct error *err);
    /* Copies from device memory to device memory, in the order of the operators. */
    void (*copy)(struct device *d, void *to, const void *from, uint64_t n_bytes);
    /* Returns the bytes of scratch that operators need besides their arguments, for the largest
     * shapes of a program. use_scratch passes the scratch to the device once, as one piece. CPU:
     * 0. */
    uint64_t (*scratch_bytes)(const struct device *d, const struct scratch_shape *s);
    void (*use_scratch)(struct device *d, void *ptr, uint64_t n_bytes);
};

/* PASS_TABLE_ENTRIES is the largest number of block-table entries of a pass in total. The number
 * is the same on all ranks, so that they cut a step into the same passes. */
#define PASS_TABLE_ENTRIES (4u << 20)

struct pass_ops {
    /* Begins a pass. Uploads of the pass before become invalid. */
    void (*begin)(struct device *d);
    /* Uploads host numbers for this pass and returns the device's address. On a CPU that address
     * is the host pointer itself, and the numbers must not change until sync; elsewhere the
     * upload is a copy. The n-th upload of a pass has the same address in every pass if all
     * uploads before it have the same sizes. */
    const void *(*upload)(struct device *d, const void *host, uint64_t n_bytes);
    /* Uploads the rows' sequences in one KV group, with their block tables. All groups of a pass
     * together have at most PASS_TABLE_ENTRIES entries, for which every device has memory. The
     * result is used as `rows` of kv_write and attention in this pass. */
    const struct kv_row *(*upload_rows)(struct device *d, const struct kv_row *rows,
                                        uint32_t n_rows, uint32_t block_tokens);
    MUST_USE enum status (*sync)(struct device *d, struct error *err);
};
