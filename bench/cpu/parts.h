#pragma once
/* Parts of bench_cpu_model: a model's operators by themselves, on the device and with the shapes,
 * weights and KV cache that its passes have, and a KV cache with made-up contents. */
#include <stdint.h>

struct engine;

struct part_time {
    double seconds, flops; /* a product and a sum are two */
};
/* All of the layers' products with matrices in one pass of n_rows rows, of which n_kept go on
 * behind the last layer's keys and values. */
struct part_time cpu_parts_linears(struct engine *e, uint32_t n_rows, uint32_t n_kept);
/* Attention of rows at position, position + 1, ... of one sequence, in at most n_layers layers, the
 * first ones. blocks: of the sequence; *n_done: in how many it was. */
struct part_time cpu_parts_attention(struct engine *e, uint32_t n_rows, uint32_t position,
                                     const uint32_t *blocks, uint32_t n_layers, uint32_t *n_done);
/* Random numbers of float16 for keys and values of all layers: in blocks 0 .. n_blocks - 1, either
 * sign, 1/16 to 1/4. NULL, or what keeps it from doing so. */
const char *cpu_parts_fill(struct engine *e, uint32_t n_blocks);
