#pragma once
/* Declares tables that map a message type to its generated struct and back. There is one table
 * per .proto file, in the .c file of the same name. `to_wire` builds the generated structs on
 * the scratch arena and borrows the message's own spans. `from_wire` borrows the arrays that
 * protobuf-c put on the arena. The file is private to proto/codec. */
#include "proto/codec/wire.h"
#include "proto/limits.h"
#include "proto/messages.h"

struct codec_ops {
    /* descriptor of the generated struct; NULL = the type is not in this table */
    const ProtobufCMessageDescriptor *descriptor;
    uint32_t max_body_bytes; /* most bytes of a body; small for types that no credit bounds */
    /* returns NULL and sets w->status on failure */
    ProtobufCMessage *(*to_wire)(struct wire *w, const struct msg *m);
    void (*from_wire)(struct wire *w, const ProtobufCMessage *p, struct msg *m);
};
#define CODEC_SMALL_BYTES (16u << 10)
#define CODEC_LARGE_BYTES (FRAME_MAX_BYTES - FRAME_HEADER_BYTES)

extern const struct codec_ops codec_adapter_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_cluster_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_engine_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_kv_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_grammar_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_sleep_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_step_ops[MSG_TYPE_COUNT];

#define WIRE_ROW(TYPE, type, max)                                                                  \
    [MSG_##TYPE] = {&cox__##type##__descriptor, max, put_##type, get_##type}
