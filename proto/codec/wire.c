#include "proto/codec/wire.h"

#include <string.h>

#include "proto/limits.h"

void wire_fail(struct wire *w, enum status s, const char *what)
{
    if (w->status == STATUS_OK) {
        w->status = s;
        w->what = what;
    }
}

void *wire_new(struct wire *w, const ProtobufCMessageDescriptor *d)
{
    void *p = arena_try_alloc(w->arena, d->sizeof_message);
    if (p)
        protobuf_c_message_init(d, p);
    else
        wire_fail(w, STATUS_NO_MEMORY,
                  "there is not enough memory to decode or encode the message");
    return p;
}

void *wire_new_array(struct wire *w, const ProtobufCMessageDescriptor *d, size_t n)
{
    if (n == 0)
        return NULL;
    void **pointers = arena_try_array(w->arena, n, sizeof *pointers);
    char *structs = arena_try_array(w->arena, n, d->sizeof_message);
    if (!pointers || !structs) {
        wire_fail(w, STATUS_NO_MEMORY,
                  "there is not enough memory to decode or encode the message");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        pointers[i] = structs + i * d->sizeof_message;
        protobuf_c_message_init(d, pointers[i]);
    }
    return pointers;
}

void *wire_array(struct wire *w, size_t n, size_t size)
{
    void *p = wire_uncleared(w, n, size);
    if (p)
        memset(p, 0, n * size);
    return p;
}

void *wire_uncleared(struct wire *w, size_t n, size_t size)
{
    size_t total;
    if (n == 0)
        return NULL;
    void *p = __builtin_mul_overflow(n, size, &total) ? NULL : arena_try_alloc(w->arena, total);
    if (!p)
        wire_fail(w, STATUS_NO_MEMORY,
                  "the message has more items than its size or the memory for decoding allows");
    return p;
}

ProtobufCBinaryData wire_put_str(struct str s)
{
    return (ProtobufCBinaryData){s.len, (uint8_t *)s.ptr};
}

/* snprintf makes these texts and may cut a character in two, so the text ends at a whole
 * character. Otherwise a peer would close the link. */
ProtobufCBinaryData wire_put_text(struct str s)
{
    if (s.len > PROTO_MAX_TEXT_BYTES)
        s.len = PROTO_MAX_TEXT_BYTES;
    s.len = str_utf8_valid(s);
    return wire_put_str(s);
}

struct str wire_get_str(ProtobufCBinaryData d)
{
    return d.len ? (struct str){(const char *)d.data, d.len} : (struct str){"", 0};
}
