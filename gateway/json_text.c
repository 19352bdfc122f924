#include "gateway/json_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tree's place for such a number is an object of one member, which is called by a noncharacter,
 * that no text has for a reason, and a word: nobody who reads a string or a number takes it for
 * one. A client that writes this object itself gives a number to nobody but itself. */
#define MARK  "\xEF\xB7\x90number"
#define BEGIN "{\"" MARK "\":"
enum { BEGIN_LEN = sizeof BEGIN - 1, SAFE_DIGITS = 18, MOST_READ = 400 };

/* The number that begins at text[at]: what follows it. */
static size_t number_end(struct str text, size_t at)
{
    while (at < text.len && text.ptr[at] && strchr("0123456789+-.eE", text.ptr[at]))
        at++;
    return at;
}

static size_t skip_digits(struct str s, size_t at)
{
    while (at < s.len && isdigit((unsigned char)s.ptr[at]))
        at++;
    return at;
}

/* As JSON has it: -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)? */
static bool is_number(struct str s, bool *is_integer)
{
    size_t from = s.len > 0 && s.ptr[0] == '-', at = skip_digits(s, from);
    *is_integer = true;
    if (at == from || (s.ptr[from] == '0' && at > from + 1))
        return false;
    if (at < s.len && s.ptr[at] == '.') {
        from = at + 1;
        at = skip_digits(s, from);
        *is_integer = false;
        if (at == from)
            return false;
    }
    if (at < s.len && (s.ptr[at] | 0x20) == 'e') {
        from = at + 1;
        from += from < s.len && (s.ptr[from] == '+' || s.ptr[from] == '-');
        at = skip_digits(s, from);
        *is_integer = false;
        if (at == from)
            return false;
    }
    return at == s.len;
}

static bool fits_integer(struct str s)
{
    static const char *const most[] = {"9223372036854775807", "9223372036854775808"};
    const bool negative = s.ptr[0] == '-';
    const size_t n = s.len - negative;
    if (n <= SAFE_DIGITS)
        return true;
    return n == SAFE_DIGITS + 1 && memcmp(s.ptr + negative, most[negative], n) <= 0;
}

/* Of a real: finite as a double. */
static bool fits_real(struct str s)
{
    char text[MOST_READ + 1];
    if (s.len > MOST_READ)
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    return isfinite(strtod(text, NULL));
}

/* Whether the tree has a place for it. What is no number is jansson's to refuse. */
static bool fits(struct str s)
{
    bool is_integer;
    if (!is_number(s, &is_integer))
        return true;
    return is_integer ? fits_integer(s) : fits_real(s);
}

/* Calls found for each number outside of strings that does not fit, in order. */
static size_t next_too_large(struct str text, size_t at, size_t *end)
{
    bool in_string = false;
    for (; at < text.len; at++) {
        const char c = text.ptr[at];
        if (in_string) {
            at += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '-' || isdigit((unsigned char)c)) {
            *end = number_end(text, at);
            if (!fits((struct str){text.ptr + at, *end - at}))
                return at;
            at = *end - 1;
        }
    }
    return SIZE_MAX;
}

bool json_text_is_number(const json_t *v)
{
    const json_t *number = json_object_get(v, MARK);
    const struct str s = {json_string_value(number), json_string_length(number)};
    bool is_integer;
    return json_is_string(number) && json_object_size(v) == 1 && is_number(s, &is_integer);
}

json_t *json_text_load(struct str text, size_t flags, json_error_t *e)
{
    size_t end = 0, at = next_too_large(text, 0, &end), from = 0;
    if (at == SIZE_MAX)
        return json_loadb(text.ptr, text.len, flags, e);
    struct strbuf b;
    strbuf_init(&b, 0);
    for (; at != SIZE_MAX; at = next_too_large(text, end, &end)) {
        strbuf_append(&b, text.ptr + from, at - from);
        strbuf_append_c(&b, BEGIN "\"");
        strbuf_append(&b, text.ptr + at, end - at);
        strbuf_append_c(&b, "\"}");
        from = end;
    }
    strbuf_append(&b, text.ptr + from, text.len - from);
    struct str whole = strbuf_str(&b);
    json_t *v = json_loadb(whole.ptr, whole.len, flags, e);
    strbuf_fini(&b);
    if (!json_text_is_number(v) || (flags & JSON_DECODE_ANY))
        return v;
    json_decref(v); /* the whole text is a number, which is neither an object nor a list */
    return json_loadb("0", 1, flags, e);
}

/* The number in what json_dumps wrote of such an object, and the object's length; 0: it is none. */
static size_t marked_number(const char *object, struct str *number)
{
    bool is_integer;
    const char *at = object + BEGIN_LEN;
    at += *at == ' ';
    if (*at++ != '"')
        return 0;
    const struct str all = {at, strcspn(at, "\"")};
    *number = all;
    if (!is_number(all, &is_integer) || at[all.len] != '"' || at[all.len + 1] != '}')
        return 0;
    return (size_t)(at + all.len + 2 - object);
}

char *json_text_dump(const json_t *v, size_t flags)
{
    char *text = json_dumps(v, flags), *from = text, *to, *at = text ? strstr(text, BEGIN) : NULL;
    if (!at)
        return text;
    for (to = text; at; at = strstr(from, BEGIN)) {
        struct str number;
        const size_t n = marked_number(at, &number);
        const size_t kept = (size_t)(at - from) + (n > 0 ? 0 : 1);
        memmove(to, from, kept);
        to += kept, from += kept;
        if (n > 0) {
            memmove(to, number.ptr, number.len);
            to += number.len;
            from = at + n;
        }
    }
    memmove(to, from, strlen(from) + 1);
    return text;
}
