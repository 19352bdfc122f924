#pragma once
/* Builds and reads generated structs: allocation on the arena, texts, spans. The context keeps
 * the first failure, and the caller continues with empty values, so that a mapping reads as a
 * list of fields. The file is private to proto/codec. */
#include <protobuf-c/protobuf-c.h>

#include "common/base/arena.h"
#include "common/base/str.h"
#include "proto/spans.h"

struct wire {
    struct arena *arena;
    enum status status; /* first failure; later ones do not replace it */
    const char *what;   /* name of the field that failed, for from_wire */
};

void wire_fail(struct wire *w, enum status s, const char *what);
static inline void wire_must(struct wire *w, bool ok, const char *what)
{
    if (!ok)
        wire_fail(w, STATUS_PROTOCOL, what);
}
/* Returns one initialised generated struct, or NULL on failure. */
void *wire_new(struct wire *w, const ProtobufCMessageDescriptor *d);
/* Returns n pointers to n initialised structs, or NULL when n is 0 or on failure. */
void *wire_new_array(struct wire *w, const ProtobufCMessageDescriptor *d, size_t n);
/* Returns n zeroed plain structs, or NULL when n is 0 or on failure. */
void *wire_array(struct wire *w, size_t n, size_t size);
/* Returns memory for n structs like wire_array, but not zeroed, for a caller that fills it in at
 * once. */
void *wire_uncleared(struct wire *w, size_t n, size_t size);

ProtobufCBinaryData wire_put_str(struct str s);
/* Cuts the text to PROTO_MAX_TEXT_BYTES of valid UTF-8. */
ProtobufCBinaryData wire_put_text(struct str s);
struct str wire_get_str(ProtobufCBinaryData d);

#define WIRE_PUT_SPAN(p, field, span)                                                              \
    do {                                                                                           \
        (p)->n_##field = (span).n;                                                                 \
        (p)->field = (void *)(span).ptr; /* the packing code does not write to the span */         \
    } while (0)
#define WIRE_PUT_BYTES(p, field, span)                                                             \
    do {                                                                                           \
        (p)->field.len = (span).n;                                                                 \
        (p)->field.data = (uint8_t *)(span).ptr;                                                   \
    } while (0)
/* WIRE_PUT opens the function that encodes the given message type, with the generated struct in
 * `p`. */
#define WIRE_PUT(Type, type)                                                                       \
    Cox__##Type *p = wire_new(w, &cox__##type##__descriptor);                                      \
    if (!p)                                                                                        \
    return NULL
#define WIRE_GET_U32(p, field) ((struct u32_span){(p)->field, (uint32_t)(p)->n_##field})
#define WIRE_GET_F32(p, field) ((struct f32_span){(p)->field, (uint32_t)(p)->n_##field})
