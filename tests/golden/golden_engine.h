#pragma once
/* One sequence through a whole model: ids in, logits out. Fed piece by piece, so that its KV cache
 * is what it is in a worker. Blocks lie in no order. */
#include "kernels/cpu/cpu.h"
#include "tests/golden/golden_ranks.h"

enum { GOLDEN_PASS_ROWS = 256 }; /* what is more is fed in several passes */

struct golden_engine {
    struct golden_ranks *ranks;
    uint32_t vocab_size;
    uint32_t max_len, n_done; /* positions fed */
    uint32_t *table;
    uint32_t *ids, *positions, *adapters; /* [pass_rows] */
    uint32_t adapter;                     /* of every row; 0: none */
    struct kv_row *rows;
};

/* logits [vocab_size] of row i of what was fed; valid during the call. */
typedef void golden_row_fn(void *ctx, uint32_t i, const float *logits);

struct golden_engine_options {
    enum cpu_isa isa;
    enum dtype kv_dtype;
    uint32_t max_len;
    uint32_t tp, pp; /* pp 0: 1 */
    bool expert_parallel;
    bool sockets;  /* between the ranks, not shared memory */
    bool is_eager; /* passes are never recorded */
    enum quant_at_load quantization;
    enum cpu_activations activations;
    const char *lora;      /* folder of the adapter that every row has; NULL: none */
    struct device *device; /* of one rank; NULL: one of its own at isa. Borrowed */
};
MUST_USE enum status golden_engine_open(struct golden_engine *e, const char *model,
                                        const struct golden_engine_options *o, struct error *err);
void golden_engine_close(struct golden_engine *e);
bool golden_engine_is_mixture(const struct golden_engine *e);
void golden_engine_begin(struct golden_engine *e); /* a new sequence */
/* The next n ids; fn gets rows from, from + 1, .. n - 1. */
void golden_engine_feed(struct golden_engine *e, const uint32_t *ids, uint32_t n, uint32_t from,
                        golden_row_fn *fn, void *ctx);
