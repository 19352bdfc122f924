#pragma once
/* The vocabulary of operators: the table that every backend fills (kernels/cpu, kernels/cuda) and
 * that a runner's program is written in. Math only: no files, no sockets, no model names.
 *
 * A row is one token of one sequence. Activations are the backend's element type (CPU: float). All
 * calls come from one thread; a backend may use more inside. On a CPU a call returns when the
 * result is there; on a GPU it is enqueued, and sync tells what failed. Arguments were checked at
 * load time: shapes here are right by construction.
 *
 * Invariance (docs/protocol.md), of the CPU backend: what a row gets depends on that row, its
 * sequence's KV and the weights alone, never on n_rows, its place, its neighbours or the number of
 * threads, to the bit. Every sum has a fixed order: over K it is sequential; over a head's
 * dimension lane by lane (lane l sums elements l, l+16, ... and the 16 lanes are added as a fixed
 * tree); attention works in splits of ATTENTION_SPLIT positions that begin at its multiples and
 * are merged in order. A GPU's products and attention choose kernels and splits by n_rows and the
 * launch's shape: there the same call gives the same bits, and another batch may give others. */
#include <stdbool.h>

#include "common/base/status.h"
#include "kernels/adapter_params.h"
#include "kernels/latent_params.h"
#include "kernels/op_params.h"

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

enum record_state {
    RECORD_NONE,   /* enqueue the pass: it is not recorded */
    RECORD_BEGUN,  /* enqueue it, then record_end: it is recorded, and runs there */
    RECORD_PLAYED, /* it was enqueued whole, as recorded */
    /* The device would not record or replay it, and works on: enqueue it, (again) as it is. Passes
     * of its key are not tried again. */
    RECORD_REFUSED,
};

/* Entries of block tables that a pass has in all. The same on all ranks, or they would cut a step
 * differently. */
#define PASS_TABLE_ENTRIES (4u << 20)

struct device;
struct ops {
    const char *name;
    uint32_t activation_bytes; /* of one element */
    uint32_t logits_rows;      /* that are computed at a time */
    bool on_host;              /* its memory is the host's: pointers may be followed */
    bool has_plain_experts;    /* matrices of experts and heads must have no order of inputs */
    void (*close)(struct device *d);
    /* The ladder of protocol.md, "Links": a group runs the lowest level of its ranks. */
    uint32_t (*isa_level)(const struct device *d);
    MUST_USE enum status (*set_isa_level)(struct device *d, uint32_t level, struct error *err);
    const char *(*isa_name)(const struct device *d);
    /* Zeroed memory of the device in large pages; NULL when there is none. */
    void *(*alloc)(struct device *d, uint64_t n_bytes);
    void (*release)(struct device *d, void *ptr, uint64_t n_bytes);
    /* Bytes of a packed n x k matrix (group: of struct weight); 0: this backend has no kernel for
     * the dtype, or k is no whole number of its blocks. */
    uint64_t (*weight_bytes)(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                             uint32_t group);
    /* w->data has weight_bytes; rows holds w->n rows. A matrix is packed in pieces of a multiple of
     * 16 rows alike: the bytes of one follow those of the one before, and weight_bytes of 0 rows is
     * 0. */
    void (*weight_pack)(struct device *d, struct weight *w, const struct weight_rows *rows);

    /* fn(ctx, i) for i < n on the host's threads that the device has: loading. */
    void (*parallel_for)(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i),
                         void *ctx);

    /* Of weights and constants, outside of passes: host memory to device memory and back. When they
     * return the host's memory is the caller's again. */
    void (*write)(struct device *d, void *to, const void *host, uint64_t n_bytes);
    MUST_USE enum status (*read)(struct device *d, void *host, const void *from, uint64_t n_bytes,
                                 struct error *err);
    uint64_t (*available_bytes)(const struct device *d); /* that alloc may still give */

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
    /* A pass's rows by their adapters, for the add_adapters of this pass. NULL, as the next three:
     * `lora` takes them from the host's memory. */
    const uint32_t *(*upload_adapters)(struct device *d, const struct adapter_rows *rows);
    /* STATUS_UNSUPPORTED for shapes that its operators do not take; before anything is loaded.
     * NULL: all are taken. */
    MUST_USE enum status (*check)(const struct device *d, const struct scratch_shape *s,
                                  struct error *err);
    /* Memory that operators need beside their arguments, for the largest shapes of a program; one
     * piece, given once. CPU: 0. */
    uint64_t (*scratch_bytes)(const struct device *d, const struct scratch_shape *s);
    void (*use_scratch)(struct device *d, void *ptr, uint64_t n_bytes);
    /* Passes that differ in nothing but what was uploaded have one key, and the second of them is
     * recorded. NULL: never. Uploads of the pass come before. of_rows: its operators take what
     * upload_rows and upload_adapters gave, and not only numbers of this key. *why: of
     * RECORD_REFUSED. */
    enum record_state (*record)(struct device *d, uint64_t key, bool of_rows, struct error *why);
    /* What was begun: PLAYED when it runs now, or the device is lost, which sync tells; REFUSED.
     * Not whole: given up by the caller, NONE unless the device had refused it before. */
    enum record_state (*record_end)(struct device *d, uint64_t key, bool is_whole,
                                    struct error *why);
    /* Whether what a pass enqueues for such rows, as the host has them, follows from their number
     * and not from whose they are: others may not be recorded. NULL as record. */
    bool (*can_record)(const struct device *d, const struct kv_row *rows, uint32_t n_rows);
    /* All of them, and one that was begun: what they refer to is not there any more. */
    void (*record_drop)(struct device *d);
    uint64_t (*record_bytes)(const struct device *d); /* of the device, that all of them took */

    void (*embed)(struct device *d, const struct embed_params *p);
    /* ids[i] = last[slots[i]] but where slots[i] is UINT32_MAX: ids that only the device knows. ids
     * and slots were uploaded. */
    void (*take_last)(struct device *d, uint32_t *ids, const uint32_t *slots, const uint32_t *last,
                      uint32_t n_rows);
    /* out[i] = x[rows[i]], dim elements. On a host out may be x, where rows ascend. */
    void (*gather)(struct device *d, struct view out, struct view x, const uint32_t *rows,
                   uint32_t n_rows, uint32_t dim);
    /* Fused, or NULL: add, then norm of what it gave (norm.x is add.x); ropes of Q and K, then
     * kv_write of K and V; linear of two parts of one shape, then gated of their outs, of which
     * only gated.out is written for sure. */
    void (*add_norm)(struct device *d, const struct add_params *add, const struct norm_params *p);
    void (*rope_kv)(struct device *d, const struct rope_params *q, const struct rope_params *k,
                    const struct kv_write_params *p);
    void (*linear_gated)(struct device *d, const struct linear_params *p,
                         const struct gated_params *g);
    /* Experts, or matrices of heads, as the device wants them told: made once when they are loaded,
     * n_bytes of `table_bytes` in device memory. CPU: NULL, 0. */
    uint64_t (*table_bytes)(const struct device *d, uint32_t n);
    void (*expert_table)(struct device *d, const struct moe_expert *experts, uint32_t n, void *out);
    void (*head_table)(struct device *d, const struct weight *const *w, uint32_t n, void *out);
    /* Head h's part of the row times matrix h; NULL: one linear for each head. */
    void (*heads)(struct device *d, const struct heads_params *p);
    void (*norm)(struct device *d, const struct norm_params *p);
    /* out[i] = sum of the squares of the first dim elements of row i. */
    void (*sum_squares)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float *out);
    void (*clear)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim); /* zeros */
    void (*linear)(struct device *d, const struct linear_params *p);
    void (*lora)(struct device *d, const struct lora_params *p);
    /* An adapter's pairs as the device wants them told: n of them, in n * adapter_bytes of device
     * memory, written when it is loaded, behind whatever still reads the one that was there. */
    uint64_t (*adapter_bytes)(const struct device *d);
    void (*adapter_table)(struct device *d, const struct lora_pair *pairs, uint32_t n, void *out);
    void (*add_adapters)(struct device *d, const struct adapters_params *p);
    void (*rope_table)(struct device *d, const struct rope_table_params *p);
    void (*rope)(struct device *d, const struct rope_params *p);
    void (*kv_write)(struct device *d, const struct kv_write_params *p);
    void (*copy)(struct device *d, void *to, const void *from, uint64_t n_bytes);
    void (*attention)(struct device *d, const struct attention_params *p);
    void (*gated)(struct device *d, const struct gated_params *p);
    void (*add)(struct device *d, const struct add_params *p);
    void (*route)(struct device *d, const struct route_params *p);
    void (*moe)(struct device *d, const struct moe_params *p);
    void (*copy_heads)(struct device *d, const struct copy_heads_params *p);
    /* x = x * sigmoid(gate), gate the first element of its row. */
    void (*gate_rows)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                      struct view gate);
    /* x = cap * tanh(x / cap) */
    void (*softcap)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float cap);
    /* out[i] of row i of x[n_rows][dim]. */
    void (*logits_top)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                       struct logits_top *out);
    /* The same of x w^T, capped unless softcap is 0, of which nothing else is wanted: there need
     * not be a place for all of it. p has one part without an out. NULL: by linear, softcap and
     * logits_top. */
    void (*linear_top)(struct device *d, const struct linear_params *p, float softcap,
                       struct logits_top *out);
    /* out[i] = sum over j of exp(x[i][j] - shift[i]); in float lanes, the lanes in double. */
    void (*sum_exp)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                    const float *shift, double *out);
    MUST_USE enum status (*sync)(struct device *d, struct error *err);
    /* The five operators of MLA's attention at once, in whichever form is the cheaper one for each
     * row; NULL: one by one. */
    void (*latent)(struct device *d, const struct latent_params *p);
};

struct device {
    const struct ops *ops;
};
