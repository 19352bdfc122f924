#pragma once
/* The vocabulary of operators: the table that every backend fills (kernels/cpu, kernels/cuda) and
 * that a runner's program is written in. Math only: no files, no sockets, no model names.
 *
 * A row is one token of one sequence. Activations are the backend's element type (CPU: float). All
 * calls come from one thread; a backend may use more inside. On a CPU a call returns when the
 * result is there; on a GPU it is enqueued, and sync tells what failed. Arguments were checked at
 * load time: shapes here are right by construction.
 *
 * Invariance (docs/develop/protocol.md), of the CPU backend: what a row gets depends on that row,
 * its sequence's KV and the weights alone, never on n_rows, its place, its neighbours or the number
 * of threads, to the bit. Every sum has a fixed order: over K it is sequential; over a head's
 * dimension lane by lane (lane l sums elements l, l+16, ... and the 16 lanes are added as a fixed
 * tree); attention works in splits of ATTENTION_SPLIT positions that begin at its multiples and
 * are merged in order. A GPU's products and attention choose kernels and splits by n_rows and the
 * launch's shape: there the same call gives the same bits, and another batch may give others. */
#include <stdbool.h>

#include "common/base/status.h"
#include "kernels/ops_loading.h"
#include "kernels/ops_math.h"
#include "kernels/ops_memory.h"
#include "kernels/ops_recording.h"

struct device;
struct ops {
    const char *name;
    uint32_t activation_bytes; /* of one element */
    uint32_t logits_rows;      /* that are computed at a time */
    bool on_host;              /* its memory is the host's: pointers may be followed */
    bool has_plain_experts;    /* matrices of experts and heads must have no order of inputs */
    void (*close)(struct device *d);
    /* The ladder of protocol.md, "Links": a group runs the lowest level of its ranks. */
    uint32_t (*isa_level)(const struct device *d);
    MUST_USE enum status (*set_isa_level)(struct device *d, uint32_t level, struct error *err);
    const char *(*isa_name)(const struct device *d);
    /* STATUS_UNSUPPORTED for shapes that its operators do not take; before anything is loaded.
     * NULL: all are taken. */
    MUST_USE enum status (*check)(const struct device *d, const struct scratch_shape *s,
                                  struct error *err);
    struct memory_ops memory;
    struct loading_ops loading;
    struct adapter_ops adapters;
    struct pass_ops pass;
    struct recording_ops recording;
    struct math_ops math;
};

struct device {
    const struct ops *ops;
};
