/* Converts JSON text to jansson's tree and back, with numbers of any size. json_text_load parses
 * requests, schemas and batch lines. json_text_dump writes a tree as text. json_text_load wraps
 * a number that the tree cannot hold in an object, and json_text_dump unwraps it.
 * json_text_measure bounds the tree before it is built, and json_text_is_whole checks a text
 * strictly without building a tree. All functions are pure and safe on any thread. A returned
 * tree or text belongs to the caller. */
#include "common/json/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/scan.h"

/* A number that does not fit in the tree becomes an object with one member. The member's key is
 * a Unicode noncharacter and a word. No normal text contains this key, so code that reads
 * strings or numbers does not mistake the object for one. A client that sends such an object
 * itself only sends itself a number. */
#define MARK  "\xEF\xB7\x90number"
#define BEGIN "{\"" MARK "\":"
enum { BEGIN_LEN = sizeof BEGIN - 1, SAFE_DIGITS = 18, MOST_READ = 400 };

/* Returns the offset after the number that begins at text[at]. */
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

/* Checks the form of JSON's numbers: -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)? */
bool json_text_reads_number(struct str s, bool *is_integer)
{
    size_t from = s.len > 0 && s.ptr[0] == '-', at = skip_digits(s, from);
    bool whole = true;
    if (at == from || (s.ptr[from] == '0' && at > from + 1))
        return false;
    if (at < s.len && s.ptr[at] == '.') {
        from = at + 1;
        at = skip_digits(s, from);
        whole = false;
        if (at == from)
            return false;
    }
    if (at < s.len && (s.ptr[at] | 0x20) == 'e') {
        from = at + 1;
        from += from < s.len && (s.ptr[from] == '+' || s.ptr[from] == '-');
        at = skip_digits(s, from);
        whole = false;
        if (at == from)
            return false;
    }
    if (is_integer)
        *is_integer = whole;
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

/* Returns true when a real number is finite as a double. */
static bool fits_real(struct str s)
{
    char text[MOST_READ + 1];
    if (s.len > MOST_READ)
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    return isfinite(strtod(text, NULL));
}

/* Returns true when the tree can hold the number. For a text that is not a number the function
 * returns true, and jansson then refuses the text. */
static bool fits(struct str s)
{
    bool is_integer;
    if (!json_text_reads_number(s, &is_integer))
        return true;
    return is_integer ? fits_integer(s) : fits_real(s);
}

/* Finds the next number outside of strings that does not fit in the tree. Returns its offset and
 * sets its end. Returns SIZE_MAX when there is no such number. */
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
    return json_is_string(number) && json_object_size(v) == 1 &&
           json_text_reads_number(s, &is_integer);
}

bool json_text_is_object(const json_t *v)
{
    return json_is_object(v) && !json_text_is_number(v);
}

/* Counts the values of a text. A tree takes about 48 bytes a value, so a text like "1,1,1,…"
 * would grow 24-fold. Every value follows a comma or a colon, except the first value of a list
 * or an object. Strings are skipped. */
bool json_text_measure(struct str text, uint32_t max_depth, uint64_t max_values,
                       struct json_text_size *out)
{
    uint32_t depth = 0;
    bool in_string = false;
    *out = (struct json_text_size){0};
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            out->n_values++;
            out->depth = ++depth > out->depth ? depth : out->depth;
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',' || c == ':') {
            out->n_values++;
        } else if (c == '-' || isdigit((unsigned char)c)) {
            const size_t end = number_end(text, i);
            out->n_values += fits((struct str){text.ptr + i, end - i}) ? 0 : 2;
            i = end - 1;
        }
        if (out->n_values > max_values || out->depth > max_depth)
            return false;
    }
    return true;
}

uint64_t json_text_count(const json_t *v)
{
    uint64_t n = v ? 1 : 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value) n += 1 + json_text_count(value);
    for (size_t i = 0; i < json_array_size(v); i++)
        n += json_text_count(json_array_get(v, i));
    return n;
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
    json_decref(v); /* the whole text is one number, which is neither an object nor a list */
    return json_loadb("0", 1, flags, e);
}

/* Finds the number in the text that json_dumps wrote for an object that stands for a number.
 * Returns the length of the object, or 0 when the object does not stand for a number. */
static size_t marked_number(const char *object, struct str *number)
{
    bool is_integer;
    const char *at = object + BEGIN_LEN;
    at += *at == ' ';
    if (*at++ != '"')
        return 0;
    const struct str all = {at, strcspn(at, "\"")};
    *number = all;
    if (!json_text_reads_number(all, &is_integer) || at[all.len] != '"' || at[all.len + 1] != '}')
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

/* ---- strict check by RFC 8259 ---- */

/* Returns the offset after the string. `at` is the offset after its first quote. Returns 0 when
 * the string is not valid. */
static size_t string_end(struct str s, size_t at)
{
    for (; at < s.len; at++) {
        const unsigned char c = (unsigned char)s.ptr[at];
        if (c == '"')
            return at + 1;
        if (c < 0x20)
            return 0;
        if (c != '\\')
            continue;
        if (++at == s.len || !s.ptr[at] || !strchr("\"\\/bfnrtu", s.ptr[at]))
            return 0;
        for (size_t i = 0, n = s.ptr[at] == 'u' ? 4 : 0; i < n; i++)
            if (++at == s.len || !isxdigit((unsigned char)s.ptr[at]))
                return 0;
    }
    return 0;
}

/* Returns the offset after the string, number or word at `at`. Returns 0 when there is none of
 * these. */
static size_t scalar_end(struct str s, size_t at)
{
    static const char *const words[] = {"true", "false", "null"};
    bool is_integer;
    if (s.ptr[at] == '"')
        return string_end(s, at + 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (s.len - at >= n && memcmp(s.ptr + at, words[i], n) == 0)
            return at + n;
    }
    const size_t end = number_end(s, at);
    return json_text_reads_number((struct str){s.ptr + at, end - at}, &is_integer) ? end : 0;
}

/* Returns the offset after `"key":` at `at`. Returns 0 when there is no key. */
static size_t key_end(struct str s, size_t at)
{
    at = at < s.len && s.ptr[at] == '"' ? string_end(s, at + 1) : 0;
    at = at > 0 ? json_skip_space(s, at) : s.len;
    return at < s.len && s.ptr[at] == ':' ? at + 1 : 0;
}

struct whole { /* state of the check; bit d of `lists` = the bracket at depth d opens a list */
    unsigned char lists[JSON_TEXT_MAX_DEPTH / 8];
    uint32_t depth;
    bool first; /* true = after an opening bracket, where the next value may be missing */
    bool value; /* true = after a value, where a comma or a closing bracket must follow */
};

static bool in_list(const struct whole *w)
{
    return w->depth > 0 && (w->lists[(w->depth - 1) / 8] >> (w->depth - 1) % 8 & 1) != 0;
}

static bool open_whole(struct whole *w, bool list)
{
    if (w->depth == JSON_TEXT_MAX_DEPTH)
        return false;
    unsigned char *byte = &w->lists[w->depth / 8];
    const unsigned char bit = (unsigned char)(1u << w->depth % 8);
    *byte = (unsigned char)(list ? *byte | bit : *byte & ~bit);
    w->depth++;
    w->first = true;
    w->value = false;
    return true;
}

/* Returns the offset after the token at `at`. Returns 0 when the token is not allowed there. */
static size_t pass_token(struct whole *w, struct str s, size_t at)
{
    const char c = s.ptr[at];
    const bool list = in_list(w), closes = c == ']' || c == '}';
    if (closes && (w->depth == 0 || list != (c == ']') || !(w->value || w->first)))
        return 0;
    if (closes) {
        w->depth--;
        w->first = false;
        w->value = true;
        return at + 1;
    }
    if (w->value) {
        w->value = false;
        if (c != ',' || w->depth == 0)
            return 0;
        at = json_skip_space(s, at + 1);
        if (at == s.len || s.ptr[at] == ']' || s.ptr[at] == '}')
            return 0;
    }
    if (w->depth > 0 && !list) {
        at = key_end(s, at);
        at = at > 0 ? json_skip_space(s, at) : s.len;
    }
    if (at >= s.len)
        return 0;
    if (s.ptr[at] == '[' || s.ptr[at] == '{')
        return open_whole(w, s.ptr[at] == '[') ? at + 1 : 0;
    w->first = false;
    w->value = true;
    return scalar_end(s, at);
}

bool json_text_is_whole(struct str text)
{
    struct whole w = {0};
    size_t at = json_skip_space(text, 0);
    while (at < text.len) {
        at = pass_token(&w, text, at);
        if (at == 0)
            return false;
        at = json_skip_space(text, at);
    }
    return w.value && w.depth == 0;
}
