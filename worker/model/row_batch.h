#pragma once
/* Declares the rows of tokens that one pass of a program computes. worker/sequences and the
 * draft model write the rows, and the runner reads them. The arrays belong to the writer and
 * stay valid until the next pass. */
#include "kernels/ops.h"
#include "worker/model/program.h"

/* `row_batch` holds the rows of one pass. A row attends to the KV values of earlier positions of
 * its sequence, which earlier passes or rows of this pass have written. */
struct row_batch {
    uint32_t n_rows;                 /* number of rows, at most pass_rows */
    const uint32_t *ids, *positions; /* id and position of each row, [n_rows] */
    /* places in the KV cache, [n_rows] per group */
    const struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS];
    /* pending: [n_rows] slots whose newest ids only the device knows, as indexes into `last` in
     * device memory; UINT32_MAX = the id is in `ids`. NULL = all ids are in `ids`. */
    const uint32_t *pending, *last;
    /* adapters of the rows, [n_rows]: numbers from lora_set_find, 0 = none. NULL = no row has an
     * adapter */
    const uint32_t *adapters;
    /* `kept` has the n_kept rows whose hidden states are needed, in ascending order, valid until
     * the next forward; NULL = all rows. Other rows only serve attention and may be left out of
     * the last layer. The list is the same on all ranks. */
    const uint32_t *kept;
    uint32_t n_kept;
};
