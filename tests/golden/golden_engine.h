#pragma once
/* Runs one sequence through a whole model: ids in, logits out. The sequence is fed piece by
 * piece, so its KV cache is filled as in a worker. The sequence's blocks are not in order. */
#include "kernels/cpu/cpu.h"
#include "tests/golden/golden_ranks.h"

enum { GOLDEN_PASS_ROWS = 256 }; /* most rows of a pass; longer pieces are fed in several passes */

struct golden_engine {
    struct golden_ranks *ranks;
    uint32_t vocab_size;
    uint32_t max_len, n_done; /* n_done is the number of positions fed so far */
    uint32_t *table;
    uint32_t *ids, *positions, *adapters; /* arrays of a pass, [pass_rows] */
    uint32_t adapter;                     /* adapter of every row; 0 = none */
    struct kv_row *rows;
};

/* Receives the logits [vocab_size] of row i of the fed ids; valid during the call. */
typedef void golden_row_fn(void *ctx, uint32_t i, const float *logits);

struct golden_engine_options {
    enum cpu_isa isa;
    enum dtype kv_dtype;
    uint32_t max_len;
    uint32_t tp, pp; /* numbers of ranks per stage and of stages; pp 0 = 1 */
    bool expert_parallel;
    bool sockets;  /* true = ranks use sockets instead of shared memory */
    bool is_eager; /* true = passes are never recorded */
    enum quant_at_load quantization;
    enum cpu_activations activations;
    const char *lora;      /* folder of the adapter for every row; NULL = none */
    struct device *device; /* borrowed device of one rank; NULL = a device of its own at isa */
};
MUST_USE enum status golden_engine_open(struct golden_engine *e, const char *model,
                                        const struct golden_engine_options *o, struct error *err);
void golden_engine_close(struct golden_engine *e);
bool golden_engine_is_mixture(const struct golden_engine *e);
void golden_engine_begin(struct golden_engine *e); /* starts a new sequence */
/* Feeds the next n ids. fn gets the rows from `from` to n - 1. */
void golden_engine_feed(struct golden_engine *e, const uint32_t *ids, uint32_t n, uint32_t from,
                        golden_row_fn *fn, void *ctx);
