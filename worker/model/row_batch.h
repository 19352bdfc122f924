#pragma once
/* The rows of tokens that one pass of a program computes: written by worker/sequences and the draft
 * model, read by the runner. The arrays belong to the writer and stay until the next pass. */
#include "kernels/ops.h"
#include "worker/model/program.h"

/* The rows of one pass. A row attends to the KV of earlier positions of its sequence, written by
 * earlier passes or by rows of this one. */
struct row_batch {
    uint32_t n_rows;                                     /* <= pass_rows */
    const uint32_t *ids, *positions;                     /* [n_rows] */
    const struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS]; /* each [n_rows] */
    /* Rows whose ids only the device knows: [n_rows] slots of last, which is the device's;
     * UINT32_MAX: the id is in ids. NULL: all are. */
    const uint32_t *pending, *last;
    const uint32_t *adapters; /* [n_rows] as lora_set_find says, 0: none; NULL: no row has one */
    /* The rows whose hidden states are asked for, [n_kept] in ascending order, valid until the next
     * forward; NULL: all. What is only there to be attended to may be left out of the last layer.
     * The same on all ranks. */
    const uint32_t *kept;
    uint32_t n_kept;
};
