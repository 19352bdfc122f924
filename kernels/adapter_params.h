#pragma once
/* Arguments of adapters to the operators of kernels/ops.h: of a device that reads the host's lists,
 * and of one that has tables of its own. */
#include "kernels/op_params.h"

/* What adapters add (Hu et al. 2021): out[r] += scale * (b (a x[r])) for the rows r of each one's
 * part of a list; no row is in two. Of a device whose operators read the host's memory: it takes
 * LORA_CHUNK_ROWS through the rooms at a time. */
#define LORA_CHUNK_ROWS 64u
struct lora_group {
    const struct weight *a, *b; /* [rank][inputs], [outputs][rank]: of one shape but for the rank */
    float scale;
    uint32_t first, n_rows; /* of the list */
};
struct lora_params {
    struct view x, out, gathered, low, high; /* rooms: of inputs, rank and outputs */
    bool to_float;                           /* out is, as of linear_part */
    const uint32_t *rows;
    const struct lora_group *groups;
    uint32_t n_groups;
};

/* One adapter's part of one matrix; a.n 0: it has none. */
struct lora_pair {
    struct weight a, b; /* [rank][inputs], [outputs][rank] */
    float scale;
};
/* A pass's rows by their adapters: those of adapter i are list[first[i]] .. list[first[i + 1] - 1].
 * The list has n_rows entries, whatever is behind the last of them, each a row of the pass. */
struct adapter_rows {
    const uint32_t *list;  /* [n_rows] */
    const uint32_t *first; /* [n_adapters + 1] */
    uint32_t n_adapters, n_rows;
};
/* The same sum as above for matrices that lie side by side over one x: part i adds what entry
 * first + i of each row's adapter is. Which rows have which adapter, and how large its matrices
 * are, is known to the device alone, so that a recorded pass serves any mix of them. */
struct adapters_params {
    struct view x;
    uint32_t k;           /* inputs */
    const uint32_t *rows; /* as adapters.upload gave them */
    const void *table;    /* of adapter 0, as adapters.table made it; the others' behind it, */
    uint64_t stride;      /* bytes apart */
    uint32_t first, n_parts, most_rank;
    bool to_float; /* every out is, as of linear_part */
    struct adapters_part {
        struct view out;
        uint32_t n; /* outputs */
    } parts[LINEAR_MAX_PARTS];
};
