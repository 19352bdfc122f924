/* Moves weights to the host and back (see park.h). All weights are one allocation, so parking is
 * one copy. The new allocation has another address: every pointer of the program into the old one
 * is moved by the same distance. Pointers that a runner made of them are invalid, so the engine
 * frees the runner before, and makes another one after. */
#include "worker/weights/park.h"

#include <stddef.h>

enum status weights_park(struct device *d, struct loaded *l, struct error *err)
{
    if (!d->ops->memory.alloc_host)
        return STATUS_OK;
    void *host = d->ops->memory.alloc_host(d, l->n_bytes);
    if (!host)
        return error_set(err, STATUS_NO_MEMORY,
                         "cannot keep the weights in host memory: the system could not lock %.1f "
                         "MiB of it. Free memory, or use sleep level 2",
                         (double)l->n_bytes / (1 << 20));
    enum status s = d->ops->memory.read(d, host, l->memory, l->n_bytes, err);
    if (s != STATUS_OK) {
        d->ops->memory.release_host(d, host);
        return s;
    }
    d->ops->memory.release(d, l->memory, l->n_bytes);
    l->from = (uintptr_t)l->memory;
    l->memory = NULL;
    l->host = host;
    return STATUS_OK;
}

/* `move` says how far the weights have moved. Addresses are integers here, because the old memory
 * does not exist any more. */
struct move {
    uintptr_t from, to;
};

static void *moved(struct move m, const void *ptr)
{
    return ptr ? (void *)(m.to + ((uintptr_t)ptr - m.from)) : NULL;
}

static void move_op(struct move m, struct op *o)
{
    if (o->kind == OP_ATTENTION)
        o->attention.sinks = moved(m, o->attention.sinks);
    else if (o->kind == OP_ROUTE)
        o->route.bias = moved(m, o->route.bias);
    else if (o->kind == OP_NORM)
        o->norm.w = moved(m, o->norm.w);
}

static void move_program(struct move m, struct program *p)
{
    for (uint32_t i = 0; i < p->n_weights; i++) {
        struct op_weight *x = &p->weights[i];
        x->w.data = moved(m, x->w.data);
        x->w.order = moved(m, x->w.order);
        x->bias = moved(m, x->bias);
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        move_op(m, &p->ops[i]);
    if (program_is_last(p))
        move_op(m, &p->final_norm);
}

enum status weights_unpark(struct program *p, struct device *d, struct loaded *l, struct error *err)
{
    if (!l->host)
        return STATUS_OK;
    void *memory = d->ops->memory.alloc(d, l->n_bytes);
    if (!memory)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %llu bytes of weights: other processes took memory "
                         "of the device while the model slept. Stop them or put them to sleep",
                         (unsigned long long)l->n_bytes);
    d->ops->memory.write(d, memory, l->host, l->n_bytes);
    move_program((struct move){l->from, (uintptr_t)memory}, p);
    d->ops->memory.release_host(d, l->host);
    l->host = NULL;
    l->memory = memory;
    return STATUS_OK;
}
