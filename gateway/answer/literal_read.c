/* Reads a whole Python literal and writes it as JSON: strings, numbers, words, lists, tuples,
 * sets and maps.
 * The parsers of calls use `literal_read` when a value is complete. They use `literal_find_end`
 * to find that end in text that still arrives.
 * This file is a recursive descent parser. LITERAL_READ_MAX_DEPTH bounds its depth. On a failure
 * `out` is cut back to its old length. The functions are pure; only `literal_find_end` keeps
 * state, in the caller's `struct literal_end`. */
#include "gateway/answer/literal_read.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DIGITS = 256 }; /* most digits of a number with a prefix (0x, 0o, 0b) */

struct reader {
    struct str text;
    size_t at;
    struct strbuf *out;
};

static bool read_value(struct reader *r, uint32_t depth);

static unsigned char peek(const struct reader *r, size_t ahead)
{
    return r->at + ahead < r->text.len ? (unsigned char)r->text.ptr[r->at + ahead] : '\0';
}

static void skip_space(struct reader *r)
{
    while (r->at < r->text.len && peek(r, 0) && strchr(" \t\r\n\f", peek(r, 0)))
        r->at++;
}

/* Skips white space, and also the byte `c` when it is next. Returns true when `c` was next. */
static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (peek(r, 0) != (unsigned char)c || r->at == r->text.len)
        return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

static void put_byte(struct strbuf *out, unsigned char c)
{
    const char byte = (char)c;
    if (c == '"' || c == '\\')
        strbuf_printf(out, "\\%c", c);
    else if (c < 0x20)
        strbuf_printf(out, "\\u%04x", c);
    else
        strbuf_append(out, &byte, 1);
}

static void put_code_point(struct strbuf *out, uint32_t c)
{
    if (c < 0x80)
        put_byte(out, (unsigned char)c);
    else if (c < 0x10000)
        strbuf_printf(out, "\\u%04x", c);
    else
        strbuf_printf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                      0xDC00 + ((c - 0x10000) & 0x3FF));
}

/* Returns the value of a digit, or `base` when `c` is not a digit. */
static uint32_t digit_of(unsigned char c, uint32_t base)
{
    if (isdigit(c))
        return (uint32_t)c - '0';
    return isxdigit(c) ? (uint32_t)(c | 0x20) - 'a' + 10 : base;
}

/* Reads n digits of base 8 or 16, starting `ahead` bytes from here. Returns false when digits
 * are missing or when the number is not a character. */
static bool read_digits(const struct reader *r, size_t ahead, size_t n, uint32_t base,
                        uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = peek(r, ahead + i);
        const uint32_t digit = digit_of(c, base);
        if (digit >= base)
            return false;
        *out = *out * base + digit;
    }
    return *out <= 0x10FFFF;
}

/* Reads the rest of an escape after its backslash. An unknown escape stands for itself, and so
 * does \/. */
static bool read_escape(struct reader *r)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const unsigned char c = peek(r, 0);
    const char *at = c ? strchr(from, c) : NULL;
    size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t base = 16, point = 0;
    if (at) {
        put_byte(r->out, (unsigned char)to[at - from]);
        r->at++;
        return true;
    }
    if (c == '\n') {
        r->at++;
        return true;
    }
    if (c >= '0' && c <= '7') {
        base = 8;
        for (n = 1; n < 3 && peek(r, n) >= '0' && peek(r, n) <= '7';)
            n++;
    }
    if (n == 0) {
        put_byte(r->out, '\\');
        return true;
    }
    if (!read_digits(r, base == 16, n, base, &point))
        return false;
    put_code_point(r->out, point);
    r->at += n + (base == 16);
    return true;
}

/* Reads one string after its prefix. Appends its text without quotes. */
static bool read_quoted(struct reader *r, bool raw)
{
    const unsigned char quote = peek(r, 0);
    const bool triple = peek(r, 1) == quote && peek(r, 2) == quote;
    r->at += triple ? 3 : 1;
    while (r->at < r->text.len) {
        const unsigned char c = peek(r, 0);
        if (c == quote && (!triple || (peek(r, 1) == quote && peek(r, 2) == quote))) {
            r->at += triple ? 3 : 1;
            return true;
        }
        r->at++;
        if (c != '\\') {
            put_byte(r->out, c);
        } else if (raw) {
            put_byte(r->out, c);
            if (r->at < r->text.len)
                put_byte(r->out, peek(r, 0));
            r->at++;
        } else if (!read_escape(r)) {
            return false;
        }
    }
    return false;
}

/* Returns the number of prefix letters (r, b, u, or two of them) before a quote. Returns
 * SIZE_MAX when no string begins here. */
static size_t prefix_of(const struct reader *r)
{
    for (size_t n = 0; n < 3; n++) {
        const unsigned char c = peek(r, n);
        if (c == '"' || c == '\'')
            return n;
        if (!c || !strchr("rRbBuU", c))
            break;
    }
    return SIZE_MAX;
}

/* Reads one or more strings in a row, which Python joins. */
static bool read_strings(struct reader *r)
{
    size_t n;
    strbuf_append_c(r->out, "\"");
    while ((n = prefix_of(r)) != SIZE_MAX) {
        bool raw = false;
        for (size_t i = 0; i < n; i++)
            raw = raw || (peek(r, i) | 0x20) == 'r';
        r->at += n;
        if (!read_quoted(r, raw))
            return false;
        skip_space(r);
    }
    strbuf_append_c(r->out, "\"");
    return true;
}

/* ---- numbers and words ---- */

/* Writes the digits of a number with prefix 0x, 0o or 0b as a decimal number of any size. */
static bool put_in_base(struct strbuf *out, struct str digits, uint32_t base)
{
    unsigned char decimal[MAX_DIGITS * 2] = {0};
    size_t n = 1;
    if (digits.len == 0 || digits.len > MAX_DIGITS)
        return false;
    for (size_t i = 0; i < digits.len; i++) {
        const unsigned char c = (unsigned char)digits.ptr[i];
        uint32_t carry = digit_of(c, base);
        if (carry >= base)
            return false;
        for (size_t k = 0; k < n; k++) {
            carry += decimal[k] * base;
            decimal[k] = (unsigned char)(carry % 10);
            carry /= 10;
        }
        for (; carry > 0; carry /= 10)
            decimal[n++] = (unsigned char)(carry % 10);
    }
    while (n > 0)
        strbuf_printf(out, "%u", decimal[--n]);
    return true;
}

/* Skips the digits at *at. Returns false when there are none. */
static bool pass_digits(struct str s, size_t *at)
{
    const size_t from = *at;
    while (*at < s.len && isdigit((unsigned char)s.ptr[*at]))
        (*at)++;
    return *at > from;
}

/* Writes a decimal number without sign and underscores as JSON. 5., .5 and 07 become valid. */
static bool put_decimal(struct strbuf *out, struct str s)
{
    size_t at = 0, from = 0, digits = 0;
    const bool has_whole = pass_digits(s, &at);
    while (from + 1 < at && s.ptr[from] == '0')
        from++;
    strbuf_append_str(out, has_whole ? (struct str){s.ptr + from, at - from} : STR("0"));
    if (at < s.len && s.ptr[at] == '.') {
        digits = ++at;
        const bool has_part = pass_digits(s, &at);
        if (!has_part && !has_whole)
            return false;
        strbuf_append_c(out, ".");
        strbuf_append_str(out, has_part ? (struct str){s.ptr + digits, at - digits} : STR("0"));
    } else if (!has_whole) {
        return false;
    }
    if (at < s.len && (s.ptr[at] | 0x20) == 'e') {
        const size_t exponent = at++;
        at += at < s.len && (s.ptr[at] == '+' || s.ptr[at] == '-');
        if (!pass_digits(s, &at))
            return false;
        strbuf_append(out, s.ptr + exponent, at - exponent);
    }
    return at == s.len;
}

static bool put_number(struct strbuf *out, struct str s)
{
    struct strbuf plain;
    bool ok = s.len > 0;
    strbuf_init(&plain, 0);
    for (size_t i = 0; i < s.len && ok; i++) {
        if (s.ptr[i] == '_')
            ok = i > 0 && i + 1 < s.len && isalnum((unsigned char)s.ptr[i - 1]) &&
                 isxdigit((unsigned char)s.ptr[i + 1]);
        else
            strbuf_append(&plain, s.ptr + i, 1);
    }
    const struct str all = strbuf_str(&plain);
    if (ok && all.len > 1 && all.ptr[0] == '0' && isalpha((unsigned char)all.ptr[1]) &&
        (all.ptr[1] | 0x20) != 'e') {
        const char kind = (char)(all.ptr[1] | 0x20);
        const uint32_t base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        ok = base > 0 && put_in_base(out, (struct str){all.ptr + 2, all.len - 2}, base);
    } else if (ok) {
        ok = put_decimal(out, all);
    }
    strbuf_fini(&plain);
    return ok;
}

static bool read_word(struct reader *r)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const size_t from = r->at;
    if (peek(r, 0) == '-')
        strbuf_append_c(r->out, "-");
    r->at += peek(r, 0) == '-' || peek(r, 0) == '+';
    const size_t begin = r->at;
    for (unsigned char c; (c = peek(r, 0)), isalnum(c) || c == '_' || c == '.' ||
                                                ((c == '+' || c == '-') && r->at > begin);)
        r->at++;
    const struct str word = {r->text.ptr + begin, r->at - begin};
    for (size_t i = 0; begin == from && i < sizeof words / sizeof *words; i++)
        if (str_eq_c(word, words[i][0])) {
            strbuf_append_c(r->out, words[i][1]);
            return true;
        }
    return put_number(r->out, word);
}

/* ---- lists and maps ---- */

/* Reads a key of a map. Any Python key becomes a string in JSON. */
static bool read_key(struct reader *r, uint32_t depth)
{
    const size_t from = r->out->len;
    strbuf_append_c(r->out, "\"");
    if (!read_value(r, depth))
        return false;
    const char first = r->out->ptr[from + 1];
    if (first == '[' || first == '{')
        return false;
    /* the key was a string, so its text already has quotes: remove the second one */
    if (first == '"') {
        memmove(r->out->ptr + from, r->out->ptr + from + 1, r->out->len - from - 1);
        r->out->len--;
    } else {
        strbuf_append_c(r->out, "\"");
    }
    return true;
}

/* Reads the elements after the opening bracket. (1) is the number 1, and (1,) is a tuple. */
static bool read_list(struct reader *r, char close, uint32_t depth)
{
    const size_t from = r->out->len;
    bool comma = close != ')', first = true;
    strbuf_append_c(r->out, "[");
    while (!take(r, close)) {
        if (!first)
            strbuf_append_c(r->out, ", ");
        if (!read_value(r, depth))
            return false;
        const bool more = take(r, ',');
        comma = comma || more;
        first = false;
        if (!more) {
            if (!take(r, close))
                return false;
            break;
        }
    }
    if (first || comma) {
        strbuf_append_c(r->out, "]");
        return true;
    }
    memmove(r->out->ptr + from, r->out->ptr + from + 1, r->out->len - from - 1);
    r->out->len--;
    return true;
}

/* Reads {}, a map or a set. Elements without keys make a set. */
static bool read_map(struct reader *r, uint32_t depth)
{
    const size_t begin = r->at, from = r->out->len;
    bool first = true;
    skip_space(r);
    if (strchr("[{(", peek(r, 0)) && peek(r, 0))
        /* the value is not a key; without this check such values would be read twice at every
         * depth */
        return false;
    strbuf_append_c(r->out, "{");
    while (!take(r, '}')) {
        if (!first)
            strbuf_append_c(r->out, ", ");
        if (!read_key(r, depth))
            return false;
        if (!take(r, ':')) {
            r->at = begin;
            r->out->len = from;
            return first && read_list(r, '}', depth);
        }
        strbuf_append_c(r->out, ": ");
        if (!read_value(r, depth))
            return false;
        first = false;
        if (!take(r, ',')) {
            if (!take(r, '}'))
                return false;
            break;
        }
    }
    strbuf_append_c(r->out, "}");
    return true;
}

static bool read_value(struct reader *r, uint32_t depth)
{
    if (depth == LITERAL_READ_MAX_DEPTH)
        return false;
    if (take(r, '['))
        return read_list(r, ']', depth + 1);
    if (take(r, '('))
        return read_list(r, ')', depth + 1);
    if (take(r, '{'))
        return read_map(r, depth + 1);
    return prefix_of(r) != SIZE_MAX ? read_strings(r) : read_word(r);
}

/* ---- end of a value ---- */

/* Handles a quote, which opens a string. A third quote directly after an empty string opens a
 * triple-quoted string. */
static void pass_quote(struct literal_end *e, char c)
{
    if (!e->quote && e->n_run == 2 && e->was == c) {
        e->quote = c;
        e->triple = true;
        e->n_run = 0;
    } else if (!e->quote) {
        e->quote = e->was = c;
        e->triple = false;
        e->n_run = 1;
    } else if (c == e->quote) {
        e->n_run++;
        if (!e->triple || e->n_run == 3)
            e->quote = '\0';
        e->n_run = e->quote || (!e->triple && e->n_run == 2) ? e->n_run : 0;
    } else {
        e->n_run = 0;
    }
}

size_t literal_find_end(struct literal_end *e, struct str text, const char *ends)
{
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        if (e->escaped) {
            e->escaped = false;
        } else if (c == '"' || c == '\'') {
            pass_quote(e, c);
            continue;
        } else if (e->quote) {
            e->escaped = c == '\\';
        } else if (e->depth == 0 && c && strchr(ends, c)) {
            return i;
        } else if (c == '[' || c == '(' || c == '{') {
            e->depth++;
        } else if ((c == ']' || c == ')' || c == '}') && e->depth > 0) {
            e->depth--;
        }
        e->n_run = 0;
    }
    return text.len;
}

bool literal_read(struct str text, struct strbuf *out)
{
    struct reader r = {text, 0, out};
    const size_t before = out->len;
    bool ok = read_value(&r, 0);
    skip_space(&r);
    if (ok && r.at == text.len)
        return true;
    out->len = before;
    return false;
}
