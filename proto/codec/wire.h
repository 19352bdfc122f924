#pragma once
/* Private to proto/: how a message type becomes its generated struct and back. One table per .proto
 * file (codec_cluster.c, codec_engine.c, codec_step.c); codec.c owns frames, budget and dispatch,
 * codec_columns.c what a step has many of.
 * to_wire builds the generated structs on the scratch arena and borrows the message's own spans;
 * from_wire borrows what protobuf-c put on the arena. Both mark failure in the context and go on
 * with empty values, so that the mapping reads as a list of fields. */
#include <protobuf-c/protobuf-c.h>

#include "proto/codec/codec.h"
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

extern const struct codec_ops codec_adapter_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_cluster_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_engine_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_kv_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_grammar_ops[MSG_TYPE_COUNT];
extern const struct codec_ops codec_step_ops[MSG_TYPE_COUNT];

void wire_fail(struct wire *w, enum status s, const char *what);
static inline void wire_must(struct wire *w, bool ok, const char *what)
{
    if (!ok)
        wire_fail(w, STATUS_PROTOCOL, what);
}
/* One generated struct, initialised; NULL on failure. */
void *wire_new(struct wire *w, const ProtobufCMessageDescriptor *d);
/* n pointers to n initialised structs; NULL when n is 0 or on failure. */
void *wire_new_array(struct wire *w, const ProtobufCMessageDescriptor *d, size_t n);
/* n zeroed plain structs; NULL when n is 0 or on failure. */
void *wire_array(struct wire *w, size_t n, size_t size);
/* The same, not zeroed: for what is filled in at once. */
void *wire_uncleared(struct wire *w, size_t n, size_t size);

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
#define WIRE_GET_F32(p, field) ((struct f32_span){(p)->field, (uint32_t)(p)->n_##field})

/* ---- columns: one field of an array of structs as one packed array ---- */

/* Room for n values, all of which are filled in at once; and what makes a column absent when every
 * value turned out to be the usual one. */
#define WIRE_NEW_COLUMN(w, p, column, n)                                                           \
    do {                                                                                           \
        (p)->column = wire_uncleared((w), (n), sizeof *(p)->column);                               \
        (p)->n_##column = (n);                                                                     \
    } while (0)
#define WIRE_DROP_COLUMN(p, column, usual)                                                         \
    do {                                                                                           \
        if (usual)                                                                                 \
            (p)->n_##column = 0;                                                                   \
    } while (0)

/* Appends a span to a column that has room; returns its new end. */
static inline uint32_t *wire_put_words(uint32_t *end, struct u32_span s)
{
    for (uint32_t i = 0; i < s.n; i++)
        *end++ = s.ptr[i];
    return end;
}

/* What every value of an absent column is; always: the column must be there. */
enum wire_usual { WIRE_USUAL_0, WIRE_USUAL_1, WIRE_ALWAYS };

/* A column on the way in: step 0 reads the usual value for every item. */
struct wire_column {
    const uint32_t *ptr;
    size_t step;
};
/* Fails, and then reads as usual values, when it has not one value per item. */
struct wire_column wire_get_column(struct wire *w, const uint32_t *column, size_t n_column,
                                   size_t n, enum wire_usual usual, const char *what);
#define WIRE_GET_COLUMN(w, p, column, n, usual)                                                    \
    wire_get_column((w), (p)->column, (p)->n_##column, (n), (usual), #column " is not one per item")
static inline uint32_t wire_at(struct wire_column c, size_t i)
{
    return c.ptr[i * c.step];
}

/* Words that are dealt out in order; what is left or missing at the end is an error. */
struct wire_rest {
    const uint32_t *ptr;
    size_t n;
    bool missing;
};
struct wire_rest wire_get_rest(const uint32_t *words, size_t n);
static inline struct u32_span wire_take(struct wire_rest *r, uint32_t n)
{
    if (n > r->n) {
        r->missing = true;
        n = 0;
    }
    struct u32_span s = {r->ptr, n};
    r->ptr += n;
    r->n -= n;
    return s;
}

/* ---- parts that several messages have ---- */

struct Cox__Sampling;
struct Cox__LogprobRow;
struct Cox__Sampling *wire_put_sampling(struct wire *w, const struct sampling_params *s);
void wire_get_sampling(struct wire *w, const struct Cox__Sampling *p, struct sampling_params *s);
struct Cox__LogprobRow **wire_put_rows(struct wire *w, const struct logprob_row *rows, uint32_t n);
const struct logprob_row *wire_get_rows(struct wire *w, struct Cox__LogprobRow *const *p, size_t n);

/* Caps, enum ranges, counts that must agree, floats that must be numbers: run after decoding and
 * before encoding. outgoing: over-long human texts are fine, encoding cuts them. */
MUST_USE enum status msg_check(const struct msg *m, bool outgoing, struct error *err);
