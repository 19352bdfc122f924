/* Maps the messages of adapter.proto to plain structs and back. */
#include "proto/adapter.pb-c.h"
#include "proto/codec/ops.h"

static ProtobufCMessage *put_adapter(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Adapter, adapter);
    p->id = m->adapter.id;
    p->on = m->adapter.on;
    p->name = wire_put_str(m->adapter.name);
    p->path = wire_put_str(m->adapter.path);
    p->identity_hi = m->adapter.identity.hi;
    p->identity_lo = m->adapter.identity.lo;
    return &p->base;
}

static void get_adapter(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Adapter *p = (const Cox__Adapter *)base;
    m->adapter = (struct msg_adapter){.id = p->id,
                                      .on = p->on != 0,
                                      .name = wire_get_str(p->name),
                                      .path = wire_get_str(p->path),
                                      .identity = {p->identity_hi, p->identity_lo}};
}

static ProtobufCMessage *put_adapter_done(struct wire *w, const struct msg *m)
{
    WIRE_PUT(AdapterDone, adapter_done);
    p->id = m->adapter_done.id;
    p->on = m->adapter_done.on;
    p->status = (uint32_t)m->adapter_done.status;
    p->text = wire_put_text(m->adapter_done.text);
    p->identity_hi = m->adapter_done.identity.hi;
    p->identity_lo = m->adapter_done.identity.lo;
    return &p->base;
}

static void get_adapter_done(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__AdapterDone *p = (const Cox__AdapterDone *)base;
    m->adapter_done = (struct msg_adapter_done){.id = p->id,
                                                .on = p->on != 0,
                                                .status = (enum status)p->status,
                                                .text = wire_get_str(p->text),
                                                .identity = {p->identity_hi, p->identity_lo}};
}

static ProtobufCMessage *put_adapters(struct wire *w, const struct msg *m)
{
    const struct msg_adapters *a = &m->adapters;
    WIRE_PUT(Adapters, adapters);
    p->names = wire_array(w, a->n, sizeof *p->names);
    p->paths = wire_array(w, a->n, sizeof *p->paths);
    for (uint32_t i = 0; p->names && p->paths && i < a->n; i++) {
        p->names[i] = wire_put_str(a->list[i].name);
        p->paths[i] = wire_put_str(a->list[i].path);
    }
    p->n_names = p->n_paths = a->n;
    return &p->base;
}

static void get_adapters(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Adapters *p = (const Cox__Adapters *)base;
    struct adapter_name *list = wire_array(w, p->n_names, sizeof *list);
    for (size_t i = 0; list && i < p->n_names; i++)
        list[i] = (struct adapter_name){wire_get_str(p->names[i]),
                                        i < p->n_paths ? wire_get_str(p->paths[i]) : STR("")};
    m->adapters = (struct msg_adapters){list, (uint32_t)p->n_names};
}

static ProtobufCMessage *put_adapter_order(struct wire *w, const struct msg *m)
{
    WIRE_PUT(AdapterOrder, adapter_order);
    p->ticket = m->adapter_order.ticket;
    p->on = m->adapter_order.on;
    p->in_place = m->adapter_order.in_place;
    p->name = wire_put_str(m->adapter_order.name);
    p->path = wire_put_str(m->adapter_order.path);
    p->by = wire_put_text(m->adapter_order.by);
    return &p->base;
}

static void get_adapter_order(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__AdapterOrder *p = (const Cox__AdapterOrder *)base;
    m->adapter_order = (struct msg_adapter_order){.ticket = p->ticket,
                                                  .on = p->on != 0,
                                                  .in_place = p->in_place != 0,
                                                  .name = wire_get_str(p->name),
                                                  .path = wire_get_str(p->path),
                                                  .by = wire_get_str(p->by)};
}

static ProtobufCMessage *put_adapter_answer(struct wire *w, const struct msg *m)
{
    WIRE_PUT(AdapterAnswer, adapter_answer);
    p->ticket = m->adapter_answer.ticket;
    p->status = (uint32_t)m->adapter_answer.status;
    p->text = wire_put_text(m->adapter_answer.text);
    return &p->base;
}

static void get_adapter_answer(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__AdapterAnswer *p = (const Cox__AdapterAnswer *)base;
    m->adapter_answer =
        (struct msg_adapter_answer){p->ticket, (enum status)p->status, wire_get_str(p->text)};
}

const struct codec_ops codec_adapter_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(ADAPTER, adapter, CODEC_SMALL_BYTES),
    WIRE_ROW(ADAPTER_DONE, adapter_done, CODEC_SMALL_BYTES),
    WIRE_ROW(ADAPTERS, adapters, 1u << 20),
    WIRE_ROW(ADAPTER_ORDER, adapter_order, CODEC_SMALL_BYTES),
    WIRE_ROW(ADAPTER_ANSWER, adapter_answer, CODEC_SMALL_BYTES),
};
