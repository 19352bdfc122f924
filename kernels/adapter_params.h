#pragma once
/* Declares the arguments of the adapter operators in kernels/ops.h. A CPU device reads the
 * host's lists and uses `lora_params`. A GPU device has tables of its own and uses
 * `adapters_params`. */
#include "kernels/op_params.h"

/* An adapter adds to a product (Hu et al. 2021): out[r] += scale * (b (a x[r])) for each row r
 * in its part of the list. A row is in one part only. `lora_params` is for a device whose
 * operators read the host's memory. Such a device processes LORA_CHUNK_ROWS rows at a time in
 * the scratch views `gathered`, `low` and `high`. */
#define LORA_CHUNK_ROWS 64u
struct lora_group {
    /* shapes: a [rank][inputs], b [outputs][rank]; only the rank may differ between adapters */
    const struct weight *a, *b;
    float scale;
    uint32_t first, n_rows; /* this adapter's part of the list `rows` */
};
struct lora_params {
    /* `gathered`, `low` and `high` are scratch for inputs, for `rank` numbers a row, and for
     * outputs. */
    struct view x, out, gathered, low, high;
    bool to_float; /* `out` holds floats, as in linear_part */
    const uint32_t *rows;
    const struct lora_group *groups;
    uint32_t n_groups;
};

/* `lora_pair` holds one adapter's matrices for one matrix of the model. a.n is 0 when the
 * adapter has no pair for that matrix. */
struct lora_pair {
    struct weight a, b; /* array shapes: a [rank][inputs], b [outputs][rank] */
    float scale;
};
/* `adapter_rows` lists the rows of a pass, ordered by adapter: adapter i has list[first[i]] ..
 * list[first[i + 1] - 1]. Each of the n_rows entries is a row of the pass, even those after the
 * last adapter's part. */
struct adapter_rows {
    const uint32_t *list;  /* `list` has the shape [n_rows] */
    const uint32_t *first; /* `first` has the shape [n_adapters + 1] */
    uint32_t n_adapters, n_rows;
};
/* `adapters_params` describes the sum of `lora_params` for matrices that are side by side and
 * share one x. Part i adds entry first + i of each row's adapter. Only the device knows which
 * rows have which adapter and how large its matrices are, so a recorded pass serves any mix of
 * adapters. */
struct adapters_params {
    struct view x;
    uint32_t k;           /* number of inputs */
    const uint32_t *rows; /* list on the device, as adapters.upload returned it */
    const void *table;    /* table of adapter 0, made by adapters.table */
    uint64_t stride;      /* bytes from one adapter's table to the next */
    uint32_t first, n_parts, most_rank;
    bool to_float; /* every `out` holds floats, as in linear_part */
    struct adapters_part {
        struct view out;
        uint32_t n; /* number of outputs */
    } parts[LINEAR_MAX_PARTS];
};
