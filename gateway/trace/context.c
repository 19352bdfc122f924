#include "gateway/trace/context.h"

#include <string.h>

#include "common/base/str.h"

enum { PARENT_BYTES = 55, MEMBERS_MAX = 32, KEY_MAX = 256, VALUE_MAX = 256 };

static bool is_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads n bytes of lower-case hex. The standard does not allow upper-case hex. */
static bool read_hex(const char *at, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int hi = digit(at[2 * i]), lo = hi < 0 ? -1 : digit(at[2 * i + 1]);
        if (lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

/* Parses a traceparent header, "00-TRACE-PARENT-FLAGS". Later versions may continue after
 * another dash. */
static bool read_parent(struct trace_context *out, struct str h)
{
    uint8_t version, flags;
    if (h.len < PARENT_BYTES || h.ptr[2] != '-' || h.ptr[35] != '-' || h.ptr[52] != '-' ||
        !read_hex(h.ptr, 1, &version) || !read_hex(h.ptr + 3, TRACE_ID_BYTES, out->trace_id) ||
        !read_hex(h.ptr + 36, SPAN_ID_BYTES, out->parent_id) || !read_hex(h.ptr + 53, 1, &flags))
        return false;
    if (version == 0xff || is_zero(out->trace_id, TRACE_ID_BYTES) ||
        is_zero(out->parent_id, SPAN_ID_BYTES))
        return false;
    if (h.len > PARENT_BYTES && (version == 0 || h.ptr[PARENT_BYTES] != '-'))
        return false;
    out->sampled = flags & 1;
    return true;
}

static bool key_is_fine(struct str key)
{
    if (key.len == 0 || key.len > KEY_MAX)
        return false;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        bool other = c == '_' || c == '-' || c == '*' || c == '/' || c == '@';
        if (!plain && (i == 0 || !other))
            return false;
    }
    return true;
}

static bool value_is_fine(struct str value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] < 0x20 || value.ptr[i] > 0x7e || value.ptr[i] == '=')
            return false;
    return value.len > 0 && value.len <= VALUE_MAX;
}

/* Checks a list of key=value pairs. A member of the list may be empty. */
static bool state_is_fine(struct str h)
{
    if (h.len > TRACE_STATE_MAX)
        return false;
    for (size_t n = 0; h.len > 0; n++) {
        const char *comma = memchr(h.ptr, ',', h.len);
        size_t len = comma ? (size_t)(comma - h.ptr) : h.len;
        struct str member = str_trim((struct str){h.ptr, len}, " \t");
        const char *is = member.len ? memchr(member.ptr, '=', member.len) : NULL;
        size_t n_key = is ? (size_t)(is - member.ptr) : 0;
        if (n >= MEMBERS_MAX)
            return false;
        if (member.len > 0 && (!is || !key_is_fine((struct str){member.ptr, n_key}) ||
                               !value_is_fine((struct str){is + 1, member.len - n_key - 1})))
            return false;
        h.ptr += len + (comma != NULL);
        h.len -= len + (comma != NULL);
    }
    return true;
}

bool trace_context_read(struct trace_context *out, struct str traceparent, struct str tracestate)
{
    *out = (struct trace_context){0};
    if (!read_parent(out, str_trim(traceparent, " \t"))) {
        *out = (struct trace_context){0};
        return false;
    }
    tracestate = str_trim(tracestate, " \t");
    if (state_is_fine(tracestate) && tracestate.len > 0)
        memcpy(out->state, tracestate.ptr, tracestate.len);
    return true;
}

void trace_context_begin(struct trace_context *out, const uint8_t random[TRACE_ID_BYTES],
                         double ratio)
{
    uint64_t low = 0;
    *out = (struct trace_context){0};
    memcpy(out->trace_id, random, TRACE_ID_BYTES);
    if (is_zero(out->trace_id, TRACE_ID_BYTES))
        out->trace_id[0] = 1;
    /* the standard requires these 56 bits to be random */
    for (size_t i = 9; i < TRACE_ID_BYTES; i++)
        low = low << 8 | out->trace_id[i];
    out->sampled = (double)low < ratio * 0x1p56;
}

bool trace_context_is_set(const struct trace_context *c)
{
    return !is_zero(c->trace_id, TRACE_ID_BYTES);
}

void trace_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        *out++ = "0123456789abcdef"[bytes[i] >> 4];
        *out++ = "0123456789abcdef"[bytes[i] & 15];
    }
    *out = '\0';
}
