/* Forwards the operators on rows from struct ops to their kernels. */
#include "kernels/cuda/backend/rows.h"

#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/rows/abi.h"

void cuda_backend_gather(struct device *d, struct view out, struct view v, const uint32_t *rows,
                         uint32_t n_rows, uint32_t dim)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_gather(x->stream, out, v, rows, n_rows, dim, &err), &err);
}

void cuda_backend_add_norm(struct device *d, const struct add_params *add,
                           const struct norm_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    const struct add_norm_params both = {*p, add->y};
    if (cuda_goes_on(x))
        cuda_note(x, cuda_add_norm_bf16(x->stream, &both, &err), &err);
}

void cuda_backend_norm(struct device *d, const struct norm_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_norm_bf16(x->stream, p, &err), &err);
}

void cuda_backend_sum_squares(struct device *d, struct view v, uint32_t n_rows, uint32_t dim,
                              float *out)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_sum_squares(x->stream, v, n_rows, dim, out, &err), &err);
}

void cuda_backend_clear(struct device *d, struct view v, uint32_t n_rows, uint32_t dim)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_clear(x->stream, v, n_rows, dim, &err), &err);
}

void cuda_backend_rope_table(struct device *d, const struct rope_table_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_rope_table(x->stream, p, &err), &err);
}

void cuda_backend_rope(struct device *d, const struct rope_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_rope(x->stream, p, &err), &err);
}

void cuda_backend_gated(struct device *d, const struct gated_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_gated(x->stream, p, &err), &err);
}

void cuda_backend_add(struct device *d, const struct add_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_add(x->stream, p, &err), &err);
}

void cuda_backend_copy_heads(struct device *d, const struct copy_heads_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_copy_heads(x->stream, p, &err), &err);
}

void cuda_backend_gate_rows(struct device *d, struct view v, uint32_t n_rows, uint32_t dim,
                            struct view gate)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_gate_rows(x->stream, v, n_rows, dim, gate, &err), &err);
}

void cuda_backend_softcap(struct device *d, struct view v, uint32_t n_rows, uint32_t dim, float cap)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_softcap(x->stream, v, n_rows, dim, cap, &err), &err);
}

void cuda_backend_logits_top(struct device *d, struct view v, uint32_t n_rows, uint32_t dim,
                             struct logits_top *out)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_logits_top(x->stream, v, n_rows, dim, out, &err), &err);
}

void cuda_backend_sum_exp(struct device *d, struct view v, uint32_t n_rows, uint32_t dim,
                          const float *shift, double *out)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_sum_exp(x->stream, v, n_rows, dim, shift, out, &err), &err);
}
