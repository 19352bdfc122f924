/* Handles strings for the whole code: `struct str` borrows bytes, `struct strbuf` owns a growing
 * buffer. This file has comparisons, UTF-8 checks, decimal parsers and the JSON writer.
 * A buffer never grows beyond its limit. The buffer refuses an append that would exceed the
 * limit, and `failed` then stays set until a reset. So a caller may append many parts and check
 * `failed` once. The bytes are always followed by a NUL. No function of this file is safe for
 * two threads on one buffer. */
#include "common/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

struct str str_from(const char *c_string)
{
    return c_string ? (struct str){c_string, strlen(c_string)} : (struct str){"", 0};
}

bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool str_eq_c(struct str a, const char *b)
{
    return str_eq(a, str_from(b));
}

bool str_is_one_of(struct str a, const char *const *list)
{
    for (; *list; list++)
        if (str_eq_c(a, *list))
            return true;
    return false;
}

int str_compare(struct str a, struct str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int d = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return d ? d : (a.len > b.len) - (a.len < b.len);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq((struct str){s.ptr, prefix.len}, prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.len >= suffix.len &&
           str_eq((struct str){s.ptr + s.len - suffix.len, suffix.len}, suffix);
}

static bool is_blank(char c, const char *blanks)
{
    return c != '\0' && strchr(blanks, c) != NULL;
}

struct str str_trim(struct str s, const char *blanks)
{
    while (s.len > 0 && is_blank(s.ptr[s.len - 1], blanks))
        s.len--;
    while (s.len > 0 && is_blank(s.ptr[0], blanks))
        s = (struct str){s.ptr + 1, s.len - 1};
    return s;
}

void str_copy(char *out, size_t size, struct str s)
{
    size_t n = s.len < size - 1 ? s.len : size - 1;
    memcpy(out, s.ptr ? s.ptr : "", n);
    out[n] = '\0';
}

/* Returns the length of the UTF-8 character at `p` (n > 0 bytes left), or 0 when it is not
 * valid. The bounds on the second byte refuse overlong forms, surrogates and values above
 * U+10FFFF. */
static size_t utf8_char_len(const unsigned char *p, size_t n)
{
    unsigned char c = p[0], lo = 0x80, hi = 0xBF;
    size_t len;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        len = 2;
    else if (c >= 0xE0 && c <= 0xEF)
        len = 3;
    else if (c >= 0xF0 && c <= 0xF4)
        len = 4;
    else
        return 0;
    if (c == 0xE0)
        lo = 0xA0;
    else if (c == 0xED)
        hi = 0x9F;
    else if (c == 0xF0)
        lo = 0x90;
    else if (c == 0xF4)
        hi = 0x8F;
    if (n < len || p[1] < lo || p[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return len;
}

size_t str_utf8_valid(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    size_t i = 0;
    while (i < s.len) {
        size_t n = utf8_char_len(p + i, s.len - i);
        if (n == 0)
            break;
        i += n;
    }
    return i;
}

enum status str_to_u64(struct str s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.len == 0)
        return STATUS_INVALID;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return STATUS_INVALID;
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.ptr[i] - '0'), &v))
            return STATUS_LIMIT;
    }
    *out = v;
    return STATUS_OK;
}

enum status str_to_i64(struct str s, int64_t *out)
{
    bool neg = s.len > 0 && s.ptr[0] == '-';
    uint64_t v;
    if (neg)
        s = (struct str){s.ptr + 1, s.len - 1};
    TRY(str_to_u64(s, &v));
    if (v > (uint64_t)INT64_MAX + (neg ? 1 : 0))
        return STATUS_LIMIT;
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return STATUS_OK;
}

enum status str_to_f64(struct str s, double *out)
{
    char tmp[64], *end;
    if (s.len == 0 || s.len >= sizeof tmp)
        return STATUS_INVALID;
    memcpy(tmp, s.ptr, s.len);
    tmp[s.len] = '\0';
    if (strspn(tmp, "+-.0123456789eE") != s.len) /* strtod also accepts blanks, hex, inf and nan */
        return STATUS_INVALID;
    errno = 0;
    double v = strtod(tmp, &end);
    if (end != tmp + s.len || errno == ERANGE)
        return STATUS_INVALID;
    *out = v;
    return STATUS_OK;
}

void strbuf_init(struct strbuf *b, size_t limit)
{
    *b = (struct strbuf){.limit = limit ? limit : (size_t)1 << 30};
}

void strbuf_fini(struct strbuf *b)
{
    mem_free(b->ptr);
    *b = (struct strbuf){0};
}

void strbuf_reset(struct strbuf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->ptr)
        b->ptr[0] = '\0';
}

void strbuf_trim(struct strbuf *b, size_t keep_bytes)
{
    if (b->cap > keep_bytes)
        strbuf_fini(b);
    else
        strbuf_reset(b);
}

static bool reserve(struct strbuf *b, size_t more)
{
    size_t limit = b->limit ? b->limit : (size_t)1 << 30;
    if (b->failed || more > limit - b->len) {
        b->failed = true;
        return false;
    }
    if (b->len + more + 1 <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->len + more + 1)
        cap *= 2;
    b->ptr = mem_realloc(b->ptr, cap);
    b->cap = cap;
    return true;
}

char *strbuf_extend(struct strbuf *b, size_t n)
{
    if (!reserve(b, n))
        return NULL;
    char *p = b->ptr + b->len;
    b->len += n;
    b->ptr[b->len] = '\0';
    return p;
}

bool strbuf_append(struct strbuf *b, const void *bytes, size_t n)
{
    char *p = strbuf_extend(b, n);
    if (p && n)
        memcpy(p, bytes, n);
    return p != NULL;
}

bool strbuf_append_str(struct strbuf *b, struct str s)
{
    return strbuf_append(b, s.ptr, s.len);
}

bool strbuf_append_c(struct strbuf *b, const char *c_string)
{
    return strbuf_append_str(b, str_from(c_string));
}

bool strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

bool strbuf_append_u64(struct strbuf *b, uint64_t v)
{
    char digits[20], *at = digits + sizeof digits;
    do {
        *--at = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    return strbuf_append(b, at, (size_t)(digits + sizeof digits - at));
}

static void append_json_char(struct strbuf *b, unsigned char c)
{
    static const char *const named[] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r",
        ['\t'] = "\\t", ['\b'] = "\\b",  ['\f'] = "\\f"};
    if (c < sizeof named / sizeof *named && named[c])
        strbuf_append(b, named[c], 2);
    else if (c < 0x20 || c == 0x7F)
        strbuf_printf(b, "\\u%04x", c);
    else
        strbuf_append(b, &c, 1);
}

/* Returns the code point of a character of two or three bytes that JSON allows but that other
 * formats refuse, otherwise 0. These are C1 controls and noncharacters (YAML refuses them), line
 * separators (JavaScript) and the byte order mark. */
static unsigned escaped_char(const unsigned char *p, size_t n)
{
    unsigned c = 0;
    if (n == 2)
        c = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    else if (n == 3)
        c = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    bool escape =
        (c >= 0x80 && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0xFEFF || c >= 0xFFFE;
    return escape ? c : 0;
}

bool strbuf_append_json(struct strbuf *b, struct str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    strbuf_append(b, "\"", 1);
    for (size_t i = 0; i < s.len;) {
        size_t n = utf8_char_len(p + i, s.len - i);
        if (n == 1)
            append_json_char(b, p[i]);
        else if (n > 1 && escaped_char(p + i, n))
            strbuf_printf(b, "\\u%04x", escaped_char(p + i, n));
        else if (n > 1)
            strbuf_append(b, p + i, n);
        else
            strbuf_append(b, "\xEF\xBF\xBD", 3);
        i += n ? n : 1;
    }
    return strbuf_append(b, "\"", 1);
}

void strbuf_consume(struct strbuf *b, size_t n)
{
    if (n == 0)
        return;
    if (n > b->len)
        n = b->len;
    memmove(b->ptr, b->ptr + n, b->len - n);
    b->len -= n;
    b->ptr[b->len] = '\0';
}
