#include "kernels/cuda/backend/attention.h"

#include "kernels/cuda/attention/abi.h"
#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/backend/staging.h"

void cuda_backend_kv_write(struct device *d, const struct kv_write_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err = {0};
    if (cuda_goes_on(x))
        cuda_note(x, cuda_kv_write(x->stream, p, &err), &err);
}

void cuda_backend_rope_kv(struct device *d, const struct rope_params *q,
                          const struct rope_params *k, const struct kv_write_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err = {0};
    if (!cuda_rope_kv_fits(k, p)) {
        d->ops->math.rope(d, q);
        d->ops->math.rope(d, k);
        d->ops->math.kv_write(d, p);
    } else if (cuda_goes_on(x)) {
        cuda_note(x, cuda_rope_kv(x->stream, q, k, p, &err), &err);
    }
}

void cuda_backend_attention(struct device *d, const struct attention_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err = {0};
    if (!cuda_goes_on(x))
        return;
    const struct gpu_rows *rows = cuda_rows(x, p->rows);
    if (!rows) {
        cuda_note(x,
                  error_set(&err, STATUS_INTERNAL,
                            "attention was called with the rows of another pass. Report this bug"),
                  &err);
        return;
    }
    const struct cuda_attention_params params = {.p = *p,
                                                 .tiles = rows->tiles,
                                                 .counts = rows->counts,
                                                 .n_multiprocessors = x->info.n_multiprocessors,
                                                 .scratch = x->scratch.ptr,
                                                 .n_scratch_bytes = x->scratch.n_bytes};
    cuda_note(x, cuda_attention(x->stream, &params, &err), &err);
}

uint64_t cuda_attention_scratch_bytes(const struct scratch_shape *s)
{
    return cuda_attention_parts_bytes(s->n_rows, s->n_heads, s->v_dim);
}
