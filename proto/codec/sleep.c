/* Maps the messages of sleep.proto to plain structs and back. */
#include "proto/codec/ops.h"
#include "proto/sleep.pb-c.h"

static ProtobufCMessage *put_sleep(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Sleep, sleep);
    p->level = (uint32_t)m->sleep.level;
    return &p->base;
}

static void get_sleep(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    m->sleep.level = (enum sleep_level)((const Cox__Sleep *)base)->level;
}

static ProtobufCMessage *put_slept(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Slept, slept);
    p->level = (uint32_t)m->slept.level;
    p->status = (uint32_t)m->slept.status;
    p->text = wire_put_text(m->slept.text);
    return &p->base;
}

static void get_slept(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Slept *p = (const Cox__Slept *)base;
    m->slept = (struct msg_slept){.level = (enum sleep_level)p->level,
                                  .status = (enum status)p->status,
                                  .text = wire_get_str(p->text)};
}

const struct codec_ops codec_sleep_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(SLEEP, sleep, CODEC_SMALL_BYTES),
    WIRE_ROW(SLEPT, slept, CODEC_SMALL_BYTES),
};
