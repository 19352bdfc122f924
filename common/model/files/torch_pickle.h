#pragma once
/* The pickle inside a PyTorch checkpoint, as data: what torch.save writes for a dict of tensors
 * (protocols 2 to 5), and nothing else. No code runs: of the things that a pickle can name, a fixed
 * list is known (OrderedDict, storages, dtypes, the functions that rebuild a tensor), and those are
 * not called but read. Every other name and every other opcode is refused, by name and with its
 * place. Stack, memo, tables and the number of tensors are bounded; nothing recurs. Hostile input.
 */
#include "common/base/status.h"
#include "common/model/files/torch_types.h"

struct torch_pickle {
    struct torch_storage *storages;
    struct torch_tensor *tensors; /* in the dict's order; one with two names is there twice */
    uint64_t n_storages, n_tensors;
};

/* Names and keys point into bytes. name is for error texts. *out is empty on failure. */
MUST_USE enum status torch_pickle_read(const void *bytes, size_t n, const char *name,
                                       struct torch_pickle *out, struct error *err);
void torch_pickle_fini(struct torch_pickle *p); /* an empty one is fine */
