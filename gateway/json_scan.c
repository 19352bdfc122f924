#include "gateway/json_scan.h"

#include <string.h>

size_t json_skip_space(struct str text, size_t at)
{
    while (at < text.len && strchr(" \t\r\n", text.ptr[at]) && text.ptr[at])
        at++;
    return at;
}

static bool is_scalar_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
           c == '-' || c == '.';
}

static bool opens(struct json_scan *s, char c)
{
    if (s->depth >= JSON_SCAN_MAX_DEPTH)
        return false;
    s->lists &= ~(1ull << s->depth);
    s->lists |= (uint64_t)(c == '[') << s->depth;
    s->depth++;
    return true;
}

static bool closes(struct json_scan *s, char c)
{
    if (s->depth == 0)
        return false;
    s->depth--;
    return (s->lists >> s->depth & 1) == (c == ']');
}

enum json_scan_result json_scan_feed(struct json_scan *s, struct str text, size_t *used)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool ok = true, ends = false;
        *used = i;
        if (s->quote) {
            s->quote = !s->escaped && c == s->quote ? '\0' : s->quote;
            s->escaped = !s->escaped && c == '\\';
            ends = !s->quote && s->depth == 0;
        } else if (s->is_scalar && !is_scalar_byte(c)) {
            return JSON_SCAN_DONE;
        } else if (c == '"' || (c == '\'' && s->depth > 0)) {
            s->quote = c;
        } else if (c == '{' || c == '[') {
            ok = opens(s, c);
        } else if (c == '}' || c == ']') {
            ok = closes(s, c);
            ends = s->depth == 0;
        } else if (s->depth == 0) {
            ok = s->is_scalar = is_scalar_byte(c);
        } else {
            ok = is_scalar_byte(c) || (c && strchr(" \t\r\n,:", c));
        }
        s->begun = true;
        if (!ok)
            return JSON_SCAN_BAD;
        *used = i + 1;
        if (ends)
            return JSON_SCAN_DONE;
    }
    *used = text.len;
    return JSON_SCAN_MORE;
}

static struct str from(struct str text, size_t at)
{
    return (struct str){text.ptr + at, text.len - at};
}

static bool is_one_of(struct str key, const char *const *keys)
{
    for (; *keys; keys++)
        if (str_eq_c(key, *keys))
            return true;
    return false;
}

/* A string at `at`: its bytes between the quotes; at moves behind it. */
static enum json_scan_result read_string(struct str text, size_t *at, struct str *out)
{
    struct json_scan scan = {0};
    size_t n;
    if (*at < text.len && text.ptr[*at] != '"')
        return JSON_SCAN_BAD;
    enum json_scan_result res = json_scan_feed(&scan, from(text, *at), &n);
    if (res == JSON_SCAN_DONE)
        *out = (struct str){text.ptr + *at + 1, n - 2};
    *at += n;
    return res;
}

/* The byte `want` after white space; at moves behind it. */
static enum json_scan_result read_byte(struct str text, size_t *at, char want)
{
    *at = json_skip_space(text, *at);
    if (*at >= text.len)
        return JSON_SCAN_MORE;
    return text.ptr[(*at)++] == want ? JSON_SCAN_DONE : JSON_SCAN_BAD;
}

/* One "key": value, and what follows it. value_at: where the value begins. */
static enum json_scan_result read_member(struct str text, size_t *at, struct str *key,
                                         size_t *value_at)
{
    struct json_scan scan = {0};
    size_t n;
    *at = json_skip_space(text, *at);
    enum json_scan_result res = read_string(text, at, key);
    if (res == JSON_SCAN_DONE)
        res = read_byte(text, at, ':');
    if (res != JSON_SCAN_DONE)
        return res;
    *at = *value_at = json_skip_space(text, *at);
    if (*at >= text.len)
        return JSON_SCAN_MORE;
    res = json_scan_feed(&scan, from(text, *at), &n);
    *at += n;
    return res;
}

enum json_call_result json_call_parse(struct str text, const char *name_key,
                                      const char *const *keys, struct json_call *out)
{
    size_t at = 0, head = 0; /* head: bytes without which it would not be known */
    bool has_name = false, has_arguments = false;
    enum json_scan_result res = read_byte(text, &at, '{');
    while (res == JSON_SCAN_DONE) {
        struct str key = {0};
        size_t value_at = SIZE_MAX;
        res = read_member(text, &at, &key, &value_at);
        /* begun, whatever becomes of it: that may not have come yet */
        if (value_at != SIZE_MAX && at > value_at && is_one_of(key, keys)) {
            out->arguments = value_at;
            has_arguments = true;
            head = value_at + 1;
        }
        if (res == JSON_SCAN_DONE && str_eq_c(key, name_key) && text.ptr[value_at] == '"') {
            out->name = (struct str){text.ptr + value_at + 1, at - value_at - 2};
            has_name = out->name.len > 0 && !memchr(out->name.ptr, '\\', out->name.len);
            head = at;
        }
        if (has_name && has_arguments)
            return head > JSON_CALL_MAX_HEAD ? JSON_CALL_BAD : JSON_CALL_BEGUN;
        if (res == JSON_SCAN_DONE)
            res = read_byte(text, &at, ',');
    }
    if (res == JSON_SCAN_BAD && has_name && text.ptr[at - 1] == '}' && at <= JSON_CALL_MAX_HEAD) {
        out->arguments = at;
        return JSON_CALL_BARE;
    }
    return res == JSON_SCAN_BAD || at > JSON_CALL_MAX_HEAD ? JSON_CALL_BAD : JSON_CALL_MORE;
}

enum json_call_result json_keyed_call_parse(struct str text, struct json_call *out)
{
    size_t at = 0;
    enum json_scan_result res = read_byte(text, &at, '{');
    at = json_skip_space(text, at);
    if (res == JSON_SCAN_DONE)
        res = read_string(text, &at, &out->name);
    if (res == JSON_SCAN_DONE)
        res = read_byte(text, &at, ':');
    if (res == JSON_SCAN_DONE) {
        res = read_byte(text, &at, '{');
        out->arguments = at - 1;
    }
    if (at > JSON_CALL_MAX_HEAD || res == JSON_SCAN_BAD)
        return JSON_CALL_BAD;
    if (res == JSON_SCAN_MORE)
        return JSON_CALL_MORE;
    const bool ok = out->name.len > 0 && !memchr(out->name.ptr, '\\', out->name.len);
    return ok ? JSON_CALL_BEGUN : JSON_CALL_BAD;
}
