/* Tests AWS's event stream. A strict reader in this file decodes what the gateway writes. */
#include "gateway/sagemaker/event_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t number(const char *at)
{
    const unsigned char *u = (const unsigned char *)at;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

/* Removes the first message from `in` and returns its payload. Appends its headers to `headers`
 * as "name=value;". */
static struct str take(struct str *in, struct strbuf *headers)
{
    assert_true(in->len >= 16);
    uint32_t total = number(in->ptr), n_headers = number(in->ptr + 4);
    assert_true(total <= in->len && 16 + n_headers <= total);
    assert_int_equal(event_stream_crc(0, (struct str){in->ptr, 8}), number(in->ptr + 8));
    assert_int_equal(event_stream_crc(0, (struct str){in->ptr, total - 4}),
                     number(in->ptr + total - 4));
    for (const char *at = in->ptr + 12, *end = at + n_headers; at < end;) {
        uint32_t n = (unsigned char)*at++;
        strbuf_append(headers, at, n);
        at += n;
        assert_int_equal(*at++, 7);
        uint32_t v = (uint32_t)(unsigned char)at[0] << 8 | (unsigned char)at[1];
        strbuf_append_c(headers, "=");
        strbuf_append(headers, at + 2, v);
        strbuf_append_c(headers, ";");
        at += 2 + v;
        assert_true(at <= end);
    }
    struct str payload = {in->ptr + 12 + n_headers, total - n_headers - 16};
    *in = (struct str){in->ptr + total, in->len - total};
    return payload;
}

/* The CRC has the check value of the CRC catalogue, and matches the empty message of AWS's test
 * vectors. */
static void test_crc(void **state)
{
    assert_int_equal(event_stream_crc(0, STR("123456789")), 0xCBF43926);
    assert_int_equal(event_stream_crc(event_stream_crc(0, STR("1234")), STR("56789")), 0xCBF43926);
    assert_int_equal(event_stream_crc(0, STR("")), 0);
    assert_int_equal(event_stream_crc(0, STR("\0\0\0\x10\0\0\0\0")), 0x05c248eb);
    assert_int_equal(event_stream_crc(0, STR("\0\0\0\x10\0\0\0\0\x05\xc2\x48\xeb")), 0x7d98c8ff);
}

static void test_payload(void **state)
{
    struct strbuf b, headers;
    strbuf_init(&b, 0);
    strbuf_init(&headers, 0);
    strbuf_append_c(&b, "before"); /* the checksum begins at the message, not at the buffer */
    event_stream_payload(&b, STR("{\"a\":1}\n"));
    struct str all = {b.ptr + 6, b.len - 6};
    assert_int_equal(all.len, 113);
    assert_int_equal(number(all.ptr + 8), 0xb327ff46); /* this value was computed with zlib */
    assert_int_equal(number(all.ptr + all.len - 4), 0x29969631);
    assert_true(str_eq_c(take(&all, &headers), "{\"a\":1}\n"));
    assert_int_equal(all.len, 0);
    assert_string_equal(strbuf_str(&headers).ptr,
                        ":event-type=PayloadPart;:content-type=application/octet-stream;"
                        ":message-type=event;");
    strbuf_fini(&b);
    strbuf_fini(&headers);
}

static void test_long_payload(void **state)
{
    size_t n = 2 * EVENT_STREAM_MAX_PAYLOAD + 1, got = 0;
    char *text = malloc(n);
    struct strbuf b, headers;
    strbuf_init(&b, 0);
    strbuf_init(&headers, 0);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(i * 31);
    event_stream_payload(&b, (struct str){text, n});
    struct str all = strbuf_str(&b);
    int n_messages = 0;
    for (; all.len > 0; n_messages++) {
        struct str part = take(&all, &headers);
        assert_memory_equal(part.ptr, text + got, part.len);
        got += part.len;
    }
    assert_int_equal(n_messages, 3);
    assert_int_equal(got, n);
    strbuf_reset(&b);
    event_stream_payload(&b, STR(""));
    assert_int_equal(b.len, 0);
    strbuf_fini(&b);
    strbuf_fini(&headers);
    free(text);
}

static void test_exception(void **state)
{
    struct strbuf b, headers;
    strbuf_init(&b, 0);
    strbuf_init(&headers, 0);
    event_stream_exception(&b, "ModelStreamError", STR("{\"Message\":\"m\"}"));
    struct str all = strbuf_str(&b);
    assert_true(str_eq_c(take(&all, &headers), "{\"Message\":\"m\"}"));
    assert_string_equal(strbuf_str(&headers).ptr,
                        ":exception-type=ModelStreamError;:content-type=application/json;"
                        ":message-type=exception;");
    strbuf_fini(&b);
    strbuf_fini(&headers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crc), cmocka_unit_test(test_payload),
                                       cmocka_unit_test(test_long_payload),
                                       cmocka_unit_test(test_exception)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
