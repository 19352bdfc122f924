#pragma once
/* Times the parts of bench_cpu_model. A part is a model's operator alone, on the device and with
 * the shapes, weights and KV cache of its passes. This file also fills a KV cache with made-up
 * contents. */
#include <stdint.h>

struct engine;

struct part_time {
    /* seconds: measured time; flops: operations, where a product and a sum count as two */
    double seconds, flops;
};
/* Times all matrix products of one pass of n_rows rows. After the keys and values of the last
 * layer, only n_kept of the rows are computed. */
struct part_time cpu_parts_linears(struct engine *e, uint32_t n_rows, uint32_t n_kept);
/* Times attention of n_rows rows of one sequence, from `position` on, in the first n_layers
 * layers (fewer if the model has fewer). `blocks` is the sequence's block table. *n_done is the
 * number of layers that were timed. */
struct part_time cpu_parts_attention(struct engine *e, uint32_t n_rows, uint32_t position,
                                     const uint32_t *blocks, uint32_t n_layers, uint32_t *n_done);
/* Fills blocks 0 to n_blocks - 1 of all layers with random float16 keys and values, of either
 * sign and a magnitude of 1/16 to 1/4. Returns NULL, or the reason why the blocks cannot be
 * filled. */
const char *cpu_parts_fill(struct engine *e, uint32_t n_blocks);
