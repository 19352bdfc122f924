/* In place of what is not here yet (backend_moe.c): a program that needs it is told so by sync. */
#include "kernels/cuda/backend_internal.h"

#define LATER __attribute__((weak))

static void refuse(struct device *d, const char *what)
{
    struct error err;
    cuda_note(cuda_of(d),
              error_set(&err, STATUS_UNSUPPORTED, "%s: this build has no CUDA kernel for it", what),
              &err);
}

LATER void cuda_backend_route(struct device *d, const struct route_params *p)
{
    refuse(d, "a mixture of experts");
}
LATER void cuda_backend_moe(struct device *d, const struct moe_params *p)
{
    refuse(d, "a mixture of experts");
}
LATER void cuda_backend_heads(struct device *d, const struct heads_params *p)
{
    refuse(d, "latent attention");
}
LATER void cuda_backend_lora(struct device *d, const struct lora_params *p)
{
    refuse(d, "an adapter");
}
LATER uint64_t cuda_backend_table_bytes(const struct device *d, uint32_t n)
{
    return 0;
}
LATER void cuda_backend_expert_table(struct device *d, const struct moe_expert *experts, uint32_t n,
                                     void *out)
{
    refuse(d, "a mixture of experts");
}
LATER void cuda_backend_head_table(struct device *d, const struct weight *const *w, uint32_t n,
                                   void *out)
{
    refuse(d, "latent attention");
}
LATER uint64_t cuda_moe_scratch_bytes(const struct scratch_shape *s)
{
    return 0;
}
