#include "kernels/cuda/backend/state.h"

void cuda_note(struct cuda_device *x, enum status s, const struct error *err)
{
    if (s == STATUS_OK || x->failed != STATUS_OK)
        return;
    x->failed = s;
    x->error = *err;
}
