#pragma once
/* Declares mixtures, products of heads and adapters on the device. This is a C ABI: all pointers
 * except those to the structs themselves are device pointers. Calls enqueue work. The host needs
 * only the number of rows, so a recorded pass is valid for any choice of experts. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions below return a table's size and fill it on the host. The table in use is the
 * device's copy, written once (`write` of struct ops). */
uint64_t cuda_expert_table_bytes(uint32_t n);
MUST_USE enum status cuda_expert_table_fill(const struct moe_expert *experts, uint32_t n, void *out,
                                            struct error *err);
uint64_t cuda_head_table_bytes(uint32_t n);
MUST_USE enum status cuda_head_table_fill(const struct weight *const *w, uint32_t n, void *out,
                                          struct error *err);

/* Chooses experts from logits in bfloat16 or float. The choice equals that of kernels/cpu for
 * the same logits, unless two scores differ only in the last bit of an exponential. Returns
 * STATUS_UNSUPPORTED when the experts' scores do not fit into shared memory (about 6000). */
MUST_USE enum status cuda_route(struct gpu_stream *s, const struct route_params *p,
                                bool logits_are_float, struct error *err);

/* `cuda_room` is the scratch of an operator, aligned to 256 bytes. No other work may use this
 * scratch meanwhile. */
struct cuda_room {
    void *ptr;
    uint64_t n_bytes;
};
/* Returns the bytes of scratch for a mixture. The scratch stays below a limit (half a GiB, or
 * the scratch for one row), so the operator may process fewer than n_rows rows at a time. n is
 * the number of experts on this rank. */
uint64_t cuda_moe_scratch(uint32_t n_rows, uint32_t n_chosen, uint32_t dim, uint32_t width,
                          uint32_t n);
/* Enqueues a mixture. p->experts is read for the shapes only; the experts come from p->table,
 * and p's scratch views are not used. Returns STATUS_NO_MEMORY when the scratch is too small for
 * one row. */
MUST_USE enum status cuda_moe(struct gpu_stream *s, const struct moe_params *p,
                              const struct cuda_room *room, uint32_t n_multiprocessors,
                              struct error *err);

/* Returns the bytes of scratch for inputs that are not whole, aligned pieces of 16 bytes; other
 * inputs need no scratch. With less scratch, the operator processes fewer rows at a time. */
uint64_t cuda_heads_scratch(uint32_t n_rows, uint32_t n_heads, uint32_t k);
MUST_USE enum status cuda_heads(struct gpu_stream *s, const struct heads_params *p,
                                const struct cuda_room *room, uint32_t n_multiprocessors,
                                struct error *err);

/* `grouped_tile` names consecutive rows of a group: places first .. first + n - 1. */
struct grouped_tile {
    uint32_t group, first, n;
};

/* `cuda_adapter_rows` holds a pass's rows by adapter, on the device. One upload has the numbers
 * of tiles of few rows and of many rows, the list, then the tiles. Its length and layout follow
 * from the numbers of rows and adapters alone. In a pass that may be recorded, this is also true
 * for the launches, except that they depend on most_few, which has only a few possible values. */
#define CUDA_ADAPTER_FEW 64u /* a pass of at most this many rows has no tiles of many rows */
struct cuda_adapter_rows {
    const uint32_t *n_tiles; /* on the device: [0] number of tiles of few rows, [1] of many rows */
    const uint32_t *list;
    const struct grouped_tile *few, *many;
    uint32_t n_rows, n_adapters;
    /* few_rows is the number of rows of a tile of few rows. most_few and most_many are the most
     * tiles of few rows and of many rows (0: none). */
    uint32_t few_rows, most_few, most_many;
};
uint64_t cuda_adapter_rows_bytes(uint32_t n_rows, uint32_t n_adapters);
/* Fills `host` with cuda_adapter_rows_bytes() bytes, which the caller must send to `device`.
 * is_recorded means that the pass may be recorded: all tiles then have few rows, and their
 * number is rounded up. */
void cuda_adapter_rows_fill(const struct adapter_rows *rows, bool is_recorded, void *host,
                            const void *device, struct cuda_adapter_rows *out);

uint64_t cuda_adapter_bytes(void);
/* Writes the table of n pairs to `out` in host memory. The table in use is the device's copy. */
MUST_USE enum status cuda_adapter_table_fill(const struct lora_pair *pairs, uint32_t n, void *out,
                                             struct error *err);
/* Returns the bytes of scratch for adapters of at most `rank` over k inputs. With less scratch,
 * the operator processes fewer rows at a time. */
uint64_t cuda_adapters_scratch(uint32_t n_rows, uint32_t rank, uint32_t k);
MUST_USE enum status cuda_adapters(struct gpu_stream *s, const struct adapters_params *p,
                                   const struct cuda_adapter_rows *rows,
                                   const struct cuda_room *room, uint32_t n_multiprocessors,
                                   struct error *err);

#ifdef __cplusplus
}
#endif
