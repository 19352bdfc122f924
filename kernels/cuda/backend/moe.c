/* Forwards the operators for mixtures, heads and adapters from struct ops to their kernels.
 * Tables are made on the host and written once; scratch belongs to the device. */
#include "kernels/cuda/backend/moe.h"

#include "common/base/mem.h"
#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/moe/abi.h"

/* LORA_RANK and LORA_INPUTS are the rank of an adapter and the inputs of its matrix for which
 * the scratch is sized. Too little scratch only makes the operator slower. */
enum { LORA_RANK = 512, LORA_INPUTS = 32768 };

static struct cuda_room room_of(const struct cuda_device *x)
{
    return (struct cuda_room){x->scratch.ptr, x->scratch.n_bytes};
}

void cuda_backend_route(struct device *d, const struct route_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_route(x->stream, p, p->float_logits, &err), &err);
}

void cuda_backend_moe(struct device *d, const struct moe_params *p)
{
    struct cuda_device *x = cuda_of(d);
    const struct cuda_room room = room_of(x);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_moe(x->stream, p, &room, x->info.n_multiprocessors, &err), &err);
}

void cuda_backend_heads(struct device *d, const struct heads_params *p)
{
    struct cuda_device *x = cuda_of(d);
    const struct cuda_room room = room_of(x);
    struct error err;
    if (cuda_goes_on(x))
        cuda_note(x, cuda_heads(x->stream, p, &room, x->info.n_multiprocessors, &err), &err);
}

void cuda_backend_add_adapters(struct device *d, const struct adapters_params *p)
{
    struct cuda_device *x = cuda_of(d);
    const struct cuda_room room = room_of(x);
    struct error err;
    if (!cuda_goes_on(x))
        return;
    if (x->adapters.list != p->rows || !p->rows)
        cuda_note(x,
                  error_set(&err, STATUS_INTERNAL,
                            "the adapters of these rows were not uploaded. Report this bug"),
                  &err);
    else
        cuda_note(x,
                  cuda_adapters(x->stream, p, &x->adapters, &room, x->info.n_multiprocessors, &err),
                  &err);
}

uint64_t cuda_backend_adapter_bytes(const struct device *d)
{
    return cuda_adapter_bytes();
}

void cuda_backend_adapter_table(struct device *d, const struct lora_pair *pairs, uint32_t n,
                                void *out)
{
    struct error err;
    void *table = mem_array(n, cuda_adapter_bytes());
    const enum status s = cuda_adapter_table_fill(pairs, n, table, &err);
    cuda_note(cuda_of(d), s, &err);
    if (s == STATUS_OK)
        d->ops->memory.write(d, out, table, n * cuda_adapter_bytes());
    mem_free(table);
}

uint64_t cuda_backend_table_bytes(const struct device *d, uint32_t n)
{
    const uint64_t experts = cuda_expert_table_bytes(n), heads = cuda_head_table_bytes(n);
    return experts > heads ? experts : heads;
}

void cuda_backend_expert_table(struct device *d, const struct moe_expert *experts, uint32_t n,
                               void *out)
{
    struct error err;
    void *table = mem_array(n, cuda_expert_table_bytes(1));
    const enum status s = cuda_expert_table_fill(experts, n, table, &err);
    cuda_note(cuda_of(d), s, &err);
    if (s == STATUS_OK)
        d->ops->memory.write(d, out, table, cuda_expert_table_bytes(n));
    mem_free(table);
}

void cuda_backend_head_table(struct device *d, const struct weight *const *w, uint32_t n, void *out)
{
    struct error err;
    void *table = mem_array(n, cuda_head_table_bytes(1));
    const enum status s = cuda_head_table_fill(w, n, table, &err);
    cuda_note(cuda_of(d), s, &err);
    if (s == STATUS_OK)
        d->ops->memory.write(d, out, table, cuda_head_table_bytes(n));
    mem_free(table);
}

uint64_t cuda_moe_scratch_bytes(const struct scratch_shape *s)
{
    const uint32_t k = s->head_dim > s->v_dim ? s->head_dim : s->v_dim;
    const uint64_t all[] = {
        s->n_experts == 0
            ? 0
            : cuda_moe_scratch(s->n_rows, s->n_chosen, s->hidden, s->expert_width, s->n_experts),
        cuda_heads_scratch(s->n_rows, s->n_heads, k),
        cuda_adapters_scratch(s->n_rows, LORA_RANK, LORA_INPUTS),
    };
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        most = all[i] > most ? all[i] : most;
    return most;
}
