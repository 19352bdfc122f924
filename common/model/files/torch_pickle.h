#pragma once
/* Reads the pickle of a PyTorch checkpoint as data: exactly what torch.save writes for a dict of
 * tensors (protocols 2 to 5). No code of the file runs. The names of a fixed list (OrderedDict,
 * storages, dtypes, the functions that rebuild a tensor) are interpreted, not called. Any other
 * name or opcode is refused, with its name and position. Stack, memo, tables and the number of
 * tensors are bounded, and there is no recursion. The reader is safe for untrusted input. */
#include "common/base/status.h"
#include "common/model/files/torch_types.h"

struct torch_pickle {
    struct torch_storage *storages;
    /* tensors in the dict's order; a tensor with two names is listed twice */
    struct torch_tensor *tensors;
    uint64_t n_storages, n_tensors;
};

/* Reads a pickle. Names and keys point into `bytes`. `name` is for error texts. *out is empty
 * after an error. */
MUST_USE enum status torch_pickle_read(const void *bytes, size_t n, const char *name,
                                       struct torch_pickle *out, struct error *err);
void torch_pickle_fini(struct torch_pickle *p); /* the struct may be empty */
