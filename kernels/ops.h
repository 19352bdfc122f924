#pragma once
/* Declares the table of operators that every backend fills (kernels/cpu, kernels/cuda), and in
 * which a runner's program is written. The table contains only math: no files, sockets or model
 * names.
 *
 * A row is one token of one sequence. Activations have the backend's element type (CPU: float).
 * All calls come from one thread; a backend may use more threads inside. On a CPU, a call
 * returns when the result is complete. On a GPU, the call is enqueued, and sync reports
 * failures. Arguments are checked at load time, so operators need not check shapes.
 *
 * Invariance of the CPU backend (docs/develop/protocol.md): the bits of a row's result depend on
 * that row, its sequence's KV and the weights alone. They never depend on n_rows, the row's
 * place, its neighbours or the number of threads. Every sum has a fixed order. Over K it is
 * sequential. Over a head's dimension it is lane by lane (lane l sums elements l, l+16, ... and
 * the 16 lanes are added as a fixed tree). Attention works in splits of ATTENTION_SPLIT
 * positions that begin at its multiples and are merged in order. A GPU's products and attention
 * choose kernels and splits by n_rows and the launch's shape: the same call gives the same bits,
 * and another batch may give others. */
#include <stdbool.h>

#include "common/base/status.h"
#include "kernels/ops_loading.h"
#include "kernels/ops_math.h"
#include "kernels/ops_memory.h"
#include "kernels/ops_recording.h"

struct device;
struct ops {
    const char *name;
    uint32_t activation_bytes; /* bytes of one element of the activations */
    uint32_t logits_rows;      /* number of rows of logits that are computed at a time */
    bool on_host;              /* device memory is host memory: pointers may be followed */
    bool has_plain_experts;    /* matrices of experts and heads must not have an order of inputs */
    void (*close)(struct device *d);
    /* Returns the device's level (protocol.md, "Links"): a replica runs the lowest level of its
     * ranks. */
    uint32_t (*isa_level)(const struct device *d);
    MUST_USE enum status (*set_isa_level)(struct device *d, uint32_t level, struct error *err);
    const char *(*isa_name)(const struct device *d);
    /* Returns STATUS_UNSUPPORTED for shapes that the device's operators do not support. It is
     * called before the model is loaded. NULL means that all shapes are supported. */
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
