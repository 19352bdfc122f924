/* Fuzzes frames from the network. A frame that decodes must encode, and must decode again to the
 * same message. The input is tried unchanged, and once more with a valid header, so that
 * mutations reach the body. */
#include <stdlib.h>
#include <string.h>

#include "proto/codec/codec.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct arena in, scratch;
static struct strbuf first, second;

static bool decode(struct str frame, struct msg *out)
{
    struct frame_header h;
    struct error err;
    arena_reset(&in);
    if (frame_parse_header(frame, &h, &err) != STATUS_OK)
        return false;
    enum status s = codec_decode(frame, &h, &in, out, &err);
    if (in.used_bytes > PROTO_DECODE_BASE_BYTES + frame.len * PROTO_DECODE_FACTOR)
        abort();
    return s == STATUS_OK;
}

static void encode(const struct msg *m, struct strbuf *out)
{
    strbuf_reset(out);
    if (codec_encode(m, 1, 1, &scratch, out) != STATUS_OK)
        abort(); /* a message that was accepted must be one that can be sent */
}

static void check(struct str frame)
{
    struct msg m;
    if (!decode(frame, &m))
        return;
    encode(&m, &first);
    if (!decode(strbuf_str(&first), &m))
        abort();
    encode(&m, &second);
    if (!str_eq(strbuf_str(&first), strbuf_str(&second)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (first.limit == 0) {
        arena_init(&in, 64u << 20);
        arena_init(&scratch, 0);
        strbuf_init(&first, FRAME_MAX_BYTES);
        strbuf_init(&second, FRAME_MAX_BYTES);
    }
    check((struct str){(const char *)data, size});
    if (size < FRAME_HEADER_BYTES || size > 1u << 20)
        return 0;
    uint8_t *fixed = malloc(size);
    if (!fixed)
        return 0;
    uint32_t body = (uint32_t)(size - FRAME_HEADER_BYTES);
    memcpy(fixed, data, size);
    memcpy(fixed, "CX", 2);
    fixed[2] = PROTOCOL_MAJOR;
    fixed[4] = (uint8_t)(1 + fixed[4] % (MSG_TYPE_COUNT - 1));
    memset(fixed + 5, 0, 3);
    for (int i = 0; i < 4; i++, body >>= 8)
        fixed[24 + i] = (uint8_t)body;
    memset(fixed + 28, 0, 4);
    check((struct str){(const char *)fixed, size});
    free(fixed);
    return 0;
}
