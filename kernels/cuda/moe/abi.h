#pragma once
/* Mixtures, products of heads and adapters on the device. C ABI: all pointers but the structs
 * themselves are the device's. Work is enqueued; nothing is counted on the host but rows, so a
 * recorded pass stays right whatever the rows choose. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the host; the table itself is the device's, written once (`write` of struct ops). */
uint64_t cuda_expert_table_bytes(uint32_t n);
MUST_USE enum status cuda_expert_table_fill(const struct moe_expert *experts, uint32_t n, void *out,
                                            struct error *err);
uint64_t cuda_head_table_bytes(uint32_t n);
MUST_USE enum status cuda_head_table_fill(const struct weight *const *w, uint32_t n, void *out,
                                          struct error *err);

/* logits: bfloat16, or float. The choice is that of kernels/cpu for the same logits but where two
 * scores differ in the last bit of an exponential. STATUS_UNSUPPORTED: more experts than fit into
 * shared memory (about 6000). */
MUST_USE enum status cuda_route(struct gpu_stream *s, const struct route_params *p,
                                bool logits_are_float, struct error *err);

/* Scratch of an operator, 256-byte aligned; what it holds is the operator's alone. */
struct cuda_room {
    void *ptr;
    uint64_t n_bytes;
};
/* A mixture of rows in turns, if need be, so that scratch stays below a limit (half a GiB, or what
 * one row takes). n: experts that are here. */
uint64_t cuda_moe_scratch(uint32_t n_rows, uint32_t n_chosen, uint32_t dim, uint32_t width,
                          uint32_t n);
/* p->experts is read for the shape alone, p->table has the experts; p's rooms are not used.
 * STATUS_NO_MEMORY: the room is too small for one row. */
MUST_USE enum status cuda_moe(struct gpu_stream *s, const struct moe_params *p,
                              const struct cuda_room *room, uint32_t n_multiprocessors,
                              struct error *err);

/* For inputs that are no whole, aligned pieces of 16 bytes; others need none. Less is more turns.
 */
uint64_t cuda_heads_scratch(uint32_t n_rows, uint32_t n_heads, uint32_t k);
MUST_USE enum status cuda_heads(struct gpu_stream *s, const struct heads_params *p,
                                const struct cuda_room *room, uint32_t n_multiprocessors,
                                struct error *err);

/* Rows of a group that follow each other: places first .. first + n - 1. */
struct grouped_tile {
    uint32_t group, first, n;
};

/* A pass's rows by their adapters on the device, told in one upload: the numbers of tiles of a few
 * rows and of many, the list, then the tiles. How long that is, and where what lies in it, follows
 * from the counts of rows and adapters alone; so do the launches of a pass that may be recorded but
 * for most_few, which is one of few numbers. */
#define CUDA_ADAPTER_FEW 64u /* a pass of up to so many rows has no tiles of many */
struct cuda_adapter_rows {
    const uint32_t *n_tiles; /* of the device: [0] of few rows, [1] of many */
    const uint32_t *list;
    const struct grouped_tile *few, *many;
    uint32_t n_rows, n_adapters;
    uint32_t few_rows, most_few, most_many; /* rows of a tile of few; tiles; most_many 0: none */
};
uint64_t cuda_adapter_rows_bytes(uint32_t n_rows, uint32_t n_adapters);
/* host: so many bytes, to be sent to `device`. is_recorded: the pass may be, so that all tiles are
 * of few rows and their number is rounded up. */
void cuda_adapter_rows_fill(const struct adapter_rows *rows, bool is_recorded, void *host,
                            const void *device, struct cuda_adapter_rows *out);

uint64_t cuda_adapter_bytes(void);
/* out: of the host; the table is the device's. */
MUST_USE enum status cuda_adapter_table_fill(const struct lora_pair *pairs, uint32_t n, void *out,
                                             struct error *err);
/* rank: the largest; k: inputs. Less is more turns. */
uint64_t cuda_adapters_scratch(uint32_t n_rows, uint32_t rank, uint32_t k);
MUST_USE enum status cuda_adapters(struct gpu_stream *s, const struct adapters_params *p,
                                   const struct cuda_adapter_rows *rows,
                                   const struct cuda_room *room, uint32_t n_multiprocessors,
                                   struct error *err);

#ifdef __cplusplus
}
#endif
