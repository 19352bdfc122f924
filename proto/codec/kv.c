/* Maps the messages of kv.proto to plain structs and back. These messages order and report moves
 * of KV blocks from one replica to another. */
#include "proto/codec/ops.h"
#include "proto/kv.pb-c.h"

static ProtobufCMessage *put_kv_transfer(struct wire *w, const struct msg *m)
{
    const struct msg_kv_transfer *t = &m->kv_transfer;
    WIRE_PUT(KvTransfer, kv_transfer);
    p->term_epoch = t->term_epoch;
    p->id = t->id;
    p->sends = t->sends;
    p->from_address = wire_put_str(t->from_address);
    p->to_address = wire_put_str(t->to_address);
    WIRE_PUT_BYTES(p, comm_id, t->comm_id);
    WIRE_PUT_SPAN(p, block_groups, t->block_groups);
    WIRE_PUT_SPAN(p, blocks, t->blocks);
    return &p->base;
}

static void get_kv_transfer(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__KvTransfer *p = (const Cox__KvTransfer *)base;
    m->kv_transfer =
        (struct msg_kv_transfer){.term_epoch = p->term_epoch,
                                 .id = p->id,
                                 .sends = p->sends != 0,
                                 .from_address = wire_get_str(p->from_address),
                                 .to_address = wire_get_str(p->to_address),
                                 .comm_id = {p->comm_id.data, (uint32_t)p->comm_id.len},
                                 .block_groups = WIRE_GET_U32(p, block_groups),
                                 .blocks = WIRE_GET_U32(p, blocks)};
}

static ProtobufCMessage *put_kv_transferred(struct wire *w, const struct msg *m)
{
    WIRE_PUT(KvTransferred, kv_transferred);
    p->term_epoch = m->kv_transferred.term_epoch;
    p->id = m->kv_transferred.id;
    p->status = (uint32_t)m->kv_transferred.status;
    p->text = wire_put_text(m->kv_transferred.text);
    p->n_bytes = m->kv_transferred.n_bytes;
    p->took_ns = m->kv_transferred.took_ns;
    return &p->base;
}

static void get_kv_transferred(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__KvTransferred *p = (const Cox__KvTransferred *)base;
    m->kv_transferred = (struct msg_kv_transferred){.term_epoch = p->term_epoch,
                                                    .id = p->id,
                                                    .status = (enum status)p->status,
                                                    .text = wire_get_str(p->text),
                                                    .n_bytes = p->n_bytes,
                                                    .took_ns = p->took_ns};
}

const struct codec_ops codec_kv_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(KV_TRANSFER, kv_transfer, 1u << 20),
    WIRE_ROW(KV_TRANSFERRED, kv_transferred, CODEC_SMALL_BYTES),
};
