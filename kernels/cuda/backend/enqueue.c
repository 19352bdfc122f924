#include "kernels/cuda/backend/enqueue.h"

#include "kernels/cuda/backend/staging.h"

bool cuda_goes_on(struct cuda_device *x)
{
    struct error err;
    if (x->failed == STATUS_OK && cuda_staging_is_dirty(x))
        cuda_note(x, cuda_staging_send(x, &err), &err);
    return x->failed == STATUS_OK;
}
