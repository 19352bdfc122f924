/* Scans the top level of a JSON object for the member "model".
 * Only the structure is followed: strings, brackets, commas and colons. A body that is not JSON
 * gives some answer, and the parser refuses the body later. A repeated key is refused by the
 * parser too, so the first "model" is the only one. */
#include "gateway/models/peek.h"

#include <string.h>
#include <strings.h>

#include "common/json/scan.h"
#include "common/json/text.h"

/* Returns the offset of the quote that ends the string whose first byte is at `at`, or the length
 * of the text. A quote after an odd number of backslashes does not end it. */
static size_t end_of_string(struct str t, size_t at)
{
    const size_t begin = at;
    while (at < t.len) {
        const char *quote = memchr(t.ptr + at, '"', t.len - at);
        if (!quote)
            return t.len;
        size_t i = (size_t)(quote - t.ptr), n = 0;
        while (i - n > begin && t.ptr[i - n - 1] == '\\')
            n++;
        if (n % 2 == 0)
            return i;
        at = i + 1;
    }
    return t.len;
}

/* Returns the offset after a list or an object that begins at `at`. */
static size_t end_of_nested(struct str t, size_t at)
{
    for (size_t depth = 0; at < t.len; at++) {
        const char c = t.ptr[at];
        if (c == '"')
            at = end_of_string(t, at + 1);
        else if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            return at + 1;
    }
    return t.len;
}

static bool ends_scalar(char c)
{
    return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t end_of_value(struct str t, size_t at)
{
    if (at >= t.len)
        return t.len;
    if (t.ptr[at] == '"') {
        at = end_of_string(t, at + 1);
        return at < t.len ? at + 1 : at;
    }
    if (t.ptr[at] == '{' || t.ptr[at] == '[')
        return end_of_nested(t, at);
    while (at < t.len && !ends_scalar(t.ptr[at]))
        at++;
    return at;
}

/* Decodes a string with escapes. `inner` has no quotes around it. */
static bool decode(struct str inner, char *buf, size_t size, struct str *out)
{
    const struct str quoted = {inner.ptr - 1, inner.len + 2};
    json_t *v = json_text_load(quoted, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const bool fits = json_is_string(v) && json_string_length(v) <= size;
    if (fits) {
        *out = (struct str){buf, json_string_length(v)};
        memcpy(buf, json_string_value(v), out->len);
    }
    json_decref(v);
    return fits;
}

static bool has_escape(struct str s)
{
    return memchr(s.ptr, '\\', s.len) != NULL;
}

/* Compares without decoding, because a body may have a million keys with escapes. */
static bool is_model(struct str key)
{
    static const struct {
        char letter;
        const char *escape;
    } model[] = {
        {'m', "\\u006d"}, {'o', "\\u006f"}, {'d', "\\u0064"}, {'e', "\\u0065"}, {'l', "\\u006c"}};
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        size_t n = key.len > 0 && key.ptr[0] == model[i].letter ? 1 : 0;
        if (key.len >= 6 && strncasecmp(key.ptr, model[i].escape, 6) == 0)
            n = 6;
        if (n == 0)
            return false;
        key = (struct str){key.ptr + n, key.len - n};
    }
    return key.len == 0;
}

bool model_peek_name(struct str body, size_t at, char buf[MODEL_PEEK_MAX], struct str *name)
{
    if (at >= body.len || body.ptr[at] != '"')
        return false;
    /* each byte of a name is written with at most six bytes */
    const size_t begin = at + 1, most = begin + (size_t)6 * MODEL_PEEK_MAX;
    const bool is_cut = body.len > most;
    if (is_cut)
        body.len = most + 1;
    const size_t end = end_of_string(body, begin);
    *name = (struct str){body.ptr + begin, end - begin};
    if (end >= body.len && !is_cut)
        return false;
    if (end >= body.len || !has_escape(*name)) {
        name->len = name->len < MODEL_PEEK_MAX ? name->len : MODEL_PEEK_MAX;
        return true;
    }
    return decode(*name, buf, MODEL_PEEK_MAX, name);
}

size_t model_peek_find(struct str body)
{
    size_t at = json_skip_space(body, 0);
    if (at >= body.len || body.ptr[at] != '{')
        return body.len;
    do {
        at = json_skip_space(body, at + 1);
        if (at >= body.len || body.ptr[at] != '"')
            return body.len;
        const size_t end = end_of_string(body, at + 1);
        const struct str key = {body.ptr + at + 1, end - at - 1};
        at = json_skip_space(body, end + 1);
        if (at >= body.len || body.ptr[at] != ':')
            return body.len;
        at = json_skip_space(body, at + 1);
        if (is_model(key))
            return at;
        at = json_skip_space(body, end_of_value(body, at));
    } while (at < body.len && body.ptr[at] == ',');
    return body.len;
}
