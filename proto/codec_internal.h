#pragma once
/* Private to proto/: how a message type becomes its generated struct and back. One table per .proto
 * file (codec_cluster.c, codec_engine.c, codec_step.c); codec.c owns frames, budget and dispatch.
 * to_wire builds the generated structs on the scratch arena and borrows the message's own spans;
 * from_wire borrows what protobuf-c put on the arena. Both mark failure in the context and go on
 * with empty values, so that the mapping reads as a list of fields. */
#include <protobuf-c/protobuf-c.h>

#include "proto/codec.h"
#include "proto/limits.h"

struct wire {
    struct arena *arena;
    enum status status; /* first failure; sticky */
    const char *what;   /* the field it was in, for from_wire */
};

struct codec_ops {
    const ProtobufCMessageDescriptor *descriptor; /* NULL: not in this table */
    uint32_t max_body_bytes;                      /* small for what no credit bounds */
    ProtobufCMessage *(*to_wire)(struct wire *w, const struct msg *m); /* NULL with w->status */
    void (*from_wire)(struct wire *w, const ProtobufCMessage *p, struct msg *m);
};
#define CODEC_SMALL_BYTES (16u << 10)
#define CODEC_LARGE_BYTES (FRAME_MAX_BYTES - FRAME_HEADER_BYTES)

extern const struct codec_ops codec_cluster_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_engine_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_step_ops[MSG_TYPE_COUNT];

void wire_fail(struct wire *w, enum status s, const char *what);
/* One generated struct, initialised; NULL on failure. */
void *wire_new(struct wire *w, const ProtobufCMessageDescriptor *d);
/* n pointers to n initialised structs; NULL when n is 0 or on failure. */
void *wire_new_array(struct wire *w, const ProtobufCMessageDescriptor *d, size_t n);
/* n zeroed plain structs; NULL when n is 0 or on failure. */
void *wire_array(struct wire *w, size_t n, size_t size);

ProtobufCBinaryData wire_put_str(struct str s);
ProtobufCBinaryData wire_put_text(struct str s); /* cut to valid UTF-8 of PROTO_MAX_TEXT_BYTES */
struct str wire_get_str(ProtobufCBinaryData d);

#define WIRE_PUT_SPAN(p, field, span)                                                              \
    do {                                                                                           \
        (p)->n_##field = (span).n;                                                                 \
        (p)->field = (void *)(span).ptr; /* packing does not write */                              \
    } while (0)
#define WIRE_PUT_BYTES(p, field, span)                                                             \
    do {                                                                                           \
        (p)->field.len = (span).n;                                                                 \
        (p)->field.data = (uint8_t *)(span).ptr;                                                   \
    } while (0)
/* Opens a put function with the generated struct of that message in p. */
#define WIRE_PUT(Type, type)                                                                       \
    Cox__##Type *p = wire_new(w, &cox__##type##__descriptor);                                      \
    if (!p)                                                                                        \
    return NULL
#define WIRE_ROW(TYPE, type, max)                                                                  \
    [MSG_##TYPE] = {&cox__##type##__descriptor, max, put_##type, get_##type}
#define WIRE_GET_U32(p, field) ((struct u32_span){(p)->field, (uint32_t)(p)->n_##field})

struct Cox__Sampling;
struct Cox__LogprobRow;
struct Cox__Sampling *wire_put_sampling(struct wire *w, const struct sampling_params *s);
void wire_get_sampling(struct wire *w, const struct Cox__Sampling *p, struct sampling_params *s);
struct Cox__LogprobRow **wire_put_rows(struct wire *w, const struct logprob_row *rows, uint32_t n);
const struct logprob_row *wire_get_rows(struct wire *w, struct Cox__LogprobRow *const *p, size_t n);

/* Caps, enum ranges, counts that must agree, floats that must be numbers: run after decoding and
 * before encoding. outgoing: over-long human texts are fine, encoding cuts them. */
MUST_USE enum status msg_check(const struct msg *m, bool outgoing, struct error *err);
