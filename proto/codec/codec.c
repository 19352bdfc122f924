/* Encodes and decodes frames, and dispatches by message type. protobuf-c unpacks a body with an
 * allocator on the arena (free does nothing) under a budget that depends on the body's size. The
 * result is mapped to a plain struct that borrows the unpacked arrays, and then checked
 * (check.c). */
#include "proto/codec/codec.h"

#include <assert.h>
#include <string.h>

#include "common/base/mem.h"
#include "proto/codec/check.h"
#include "proto/codec/ops.h"

static uint64_t get_le(const uint8_t *p, int n_bytes)
{
    uint64_t v = 0;
    for (int i = n_bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static void put_le(uint8_t *p, int n_bytes, uint64_t v)
{
    for (int i = 0; i < n_bytes; i++, v >>= 8)
        p[i] = (uint8_t)v;
}

static const struct codec_ops *find_ops(enum msg_type t)
{
    static const struct codec_ops *const tables[] = {
        codec_cluster_ops, codec_engine_ops,  codec_step_ops, codec_adapter_ops,
        codec_kv_ops,      codec_grammar_ops, codec_sleep_ops};
    if ((unsigned)t >= MSG_TYPE_COUNT)
        return NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (tables[i][t].descriptor)
            return &tables[i][t];
    return NULL;
}

enum status frame_parse_header(struct str frame, struct frame_header *out, struct error *err)
{
    const uint8_t *p = (const uint8_t *)frame.ptr;
    *out = (struct frame_header){0};
    if (frame.len < FRAME_HEADER_BYTES)
        return error_set(err, STATUS_PROTOCOL,
                         "the frame is invalid: it has %zu bytes, but its header alone needs %u. "
                         "Run the same release on every machine",
                         frame.len, FRAME_HEADER_BYTES);
    if (p[0] != 'C' || p[1] != 'X')
        return error_set(err, STATUS_PROTOCOL,
                         "the message is not a Coxswain frame: it starts with the bytes %02x %02x. "
                         "Check that the peer is a cox process",
                         p[0], p[1]);
    *out = (struct frame_header){.major = p[2],
                                 .minor = p[3],
                                 .type = (enum msg_type)get_le(p + 4, 2),
                                 .session = get_le(p + 8, 8),
                                 .seq = get_le(p + 16, 8),
                                 .body_bytes = (uint32_t)get_le(p + 24, 4)};
    if (out->major != PROTOCOL_MAJOR)
        return error_set(err, STATUS_VERSION,
                         "the peer speaks protocol %u.%u, but this process speaks %u.%u: run the "
                         "same release on every machine",
                         out->major, out->minor, PROTOCOL_MAJOR, PROTOCOL_MINOR);
    if (get_le(p + 6, 2) != 0 || get_le(p + 28, 4) != 0)
        return error_set(err, STATUS_PROTOCOL,
                         "the frame is invalid: reserved bytes of its header are not zero. Run the "
                         "same release on every machine");
    const struct codec_ops *ops = find_ops(out->type);
    if (!ops)
        return error_set(err, STATUS_PROTOCOL,
                         "the frame is invalid: it has the unknown type %u. Run the same release "
                         "on every machine",
                         (unsigned)out->type);
    if (out->body_bytes != frame.len - FRAME_HEADER_BYTES)
        return error_set(err, STATUS_PROTOCOL,
                         "the header of a %s frame announces %u body bytes, but the frame has %zu. "
                         "Run the same release on every machine",
                         msg_type_name(out->type), out->body_bytes, frame.len - FRAME_HEADER_BYTES);
    if (out->body_bytes > ops->max_body_bytes)
        return error_set(err, STATUS_PROTOCOL,
                         "a %s frame has %u body bytes; at most %u are allowed. Run the same "
                         "release on every machine",
                         msg_type_name(out->type), out->body_bytes, ops->max_body_bytes);
    return STATUS_OK;
}

static void *arena_alloc_cb(void *arena, size_t size)
{
    return arena_try_alloc(arena, size ? size : 1);
}

static void arena_free_cb(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

static enum status decode_body(struct str body, const struct codec_ops *ops, struct arena *arena,
                               struct msg *out, struct error *err)
{
    const char *name = msg_type_name(out->type);
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc_cb, .free = arena_free_cb, .allocator_data = arena};
    const ProtobufCMessage *p =
        protobuf_c_message_unpack(ops->descriptor, &allocator, body.len, (const uint8_t *)body.ptr);
    if (!p)
        return error_set(err, STATUS_PROTOCOL,
                         "the %s message has a malformed body of %zu bytes. Run the same release "
                         "on every machine",
                         name, body.len);
    struct wire w = {.arena = arena};
    ops->from_wire(&w, p, out);
    if (w.status != STATUS_OK)
        return error_set(err, STATUS_PROTOCOL, "invalid %s message: %s", name, w.what);
    return msg_check(out, false, err);
}

enum status codec_decode(struct str frame, const struct frame_header *header, struct arena *arena,
                         struct msg *out, struct error *err)
{
    const struct codec_ops *ops = find_ops(header->type);
    memset(out, 0, sizeof *out);
    if (!ops || frame.len < FRAME_HEADER_BYTES ||
        header->body_bytes != frame.len - FRAME_HEADER_BYTES ||
        header->body_bytes > ops->max_body_bytes)
        return error_set(err, STATUS_PROTOCOL,
                         "the header does not belong to this frame. Report this bug");
    out->type = header->type;
    /* The counts in a body can ask for far more memory than the body's own size. The limit caps
     * the cost of this one message. */
    size_t old_limit = arena->limit_bytes;
    size_t budget = PROTO_DECODE_BASE_BYTES + (size_t)header->body_bytes * PROTO_DECODE_FACTOR;
    if (old_limit == 0 || old_limit - arena->used_bytes > budget)
        arena->limit_bytes = arena->used_bytes + budget;
    struct str body = {frame.ptr + FRAME_HEADER_BYTES, frame.len - FRAME_HEADER_BYTES};
    enum status s = decode_body(body, ops, arena, out, err);
    arena->limit_bytes = old_limit;
    return s;
}

enum status codec_encode(const struct msg *m, uint64_t session, uint64_t seq, struct arena *scratch,
                         struct strbuf *out)
{
    const struct codec_ops *ops = find_ops(m->type);
    if (!ops)
        return STATUS_INVALID;
    TRY(msg_check(m, true, NULL));
    arena_reset(scratch);
    struct wire w = {.arena = scratch};
    ProtobufCMessage *p = ops->to_wire(&w, m);
    if (w.status != STATUS_OK)
        return w.status;
    size_t n = protobuf_c_message_get_packed_size(p);
    if (n > ops->max_body_bytes)
        return STATUS_LIMIT;
    uint8_t *frame = (uint8_t *)strbuf_extend(out, FRAME_HEADER_BYTES + n);
    if (!frame)
        return STATUS_LIMIT;
    memset(frame, 0, FRAME_HEADER_BYTES);
    frame[0] = 'C';
    frame[1] = 'X';
    frame[2] = PROTOCOL_MAJOR;
    frame[3] = PROTOCOL_MINOR;
    put_le(frame + 4, 2, (uint64_t)m->type);
    put_le(frame + 8, 8, session);
    put_le(frame + 16, 8, seq);
    put_le(frame + 24, 4, n);
    size_t packed = protobuf_c_message_pack(p, frame + FRAME_HEADER_BYTES);
    assert(packed == n); /* these are the same structs that were measured above */
    return STATUS_OK;
}

/* Encodes and decodes the message, so that the copy includes every field of the wire format. */
enum status msg_copy(const struct msg *m, struct arena *arena, struct msg *out)
{
    struct arena scratch;
    struct strbuf frame;
    struct frame_header h;
    arena_init(&scratch, 0);
    strbuf_init(&frame, 0);
    enum status s = codec_encode(m, 0, 0, &scratch, &frame);
    arena_fini(&scratch);
    if (s == STATUS_OK)
        s = frame_parse_header(strbuf_str(&frame), &h, NULL);
    if (s == STATUS_OK)
        s = codec_decode(strbuf_str(&frame), &h, arena, out, NULL);
    strbuf_fini(&frame);
    return s;
}
