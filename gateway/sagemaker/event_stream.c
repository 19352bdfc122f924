#include "gateway/sagemaker/event_stream.h"

#include <string.h>

enum { PRELUDE = 8, SUM = 4, TYPE_STRING = 7 };

struct header {
    const char *name, *value;
};

/* Computes the CRC four bits at a time. A table of sixteen entries is fast enough for texts.
 * `crc` is the value of the bytes before, or 0. */
uint32_t event_stream_crc(uint32_t crc, struct str bytes)
{
    static const uint32_t table[16] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
        0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
        0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
    };
    crc = ~crc;
    for (size_t i = 0; i < bytes.len; i++) {
        crc ^= (unsigned char)bytes.ptr[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static void append_number(struct strbuf *out, uint32_t v)
{
    const unsigned char bytes[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
                                    (unsigned char)(v >> 8), (unsigned char)v};
    strbuf_append(out, (const char *)bytes, sizeof bytes);
}

static void append_header(struct strbuf *out, const struct header *h)
{
    size_t n = strlen(h->name), v = strlen(h->value);
    const unsigned char name_len = (unsigned char)n;
    const unsigned char type[3] = {TYPE_STRING, (unsigned char)(v >> 8), (unsigned char)v};
    strbuf_append(out, (const char *)&name_len, 1);
    strbuf_append(out, h->name, n);
    strbuf_append(out, (const char *)type, sizeof type);
    strbuf_append(out, h->value, v);
}

static size_t header_bytes(const struct header *h)
{
    return 1 + strlen(h->name) + 3 + strlen(h->value);
}

static void append_message(struct strbuf *out, const struct header *headers, size_t n_headers,
                           struct str payload)
{
    size_t begin = out->len, n = 0;
    for (size_t i = 0; i < n_headers; i++)
        n += header_bytes(&headers[i]);
    append_number(out, (uint32_t)(PRELUDE + SUM + n + payload.len + SUM));
    append_number(out, (uint32_t)n);
    append_number(out, event_stream_crc(0, (struct str){out->ptr + begin, PRELUDE}));
    for (size_t i = 0; i < n_headers; i++)
        append_header(out, &headers[i]);
    strbuf_append_str(out, payload);
    append_number(out, event_stream_crc(0, (struct str){out->ptr + begin, out->len - begin}));
}

void event_stream_payload(struct strbuf *out, struct str bytes)
{
    static const struct header headers[] = {{":event-type", "PayloadPart"},
                                            {":content-type", "application/octet-stream"},
                                            {":message-type", "event"}};
    while (bytes.len > 0) {
        size_t n = bytes.len < EVENT_STREAM_MAX_PAYLOAD ? bytes.len : EVENT_STREAM_MAX_PAYLOAD;
        append_message(out, headers, 3, (struct str){bytes.ptr, n});
        bytes = (struct str){bytes.ptr + n, bytes.len - n};
    }
}

void event_stream_exception(struct strbuf *out, const char *type, struct str json)
{
    const struct header headers[] = {{":exception-type", type},
                                     {":content-type", "application/json"},
                                     {":message-type", "exception"}};
    append_message(out, headers, 3, json);
}
