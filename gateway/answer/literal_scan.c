/* Turns arguments in literal syntax into JSON while they arrive: Python's f(a='x') and
 * FunctionGemma's {a:<escape>x<escape>}.
 * Parsers feed all unconsumed text to `literal_scan_feed`. The JSON is written to the answer, or
 * into a buffer for `literal_scan_read`.
 * The scanner keeps the open brackets in a bit set (LITERAL_MAX_DEPTH). It holds text back only
 * for a word, an escape, or a quote that may end a string. `struct literal_scan` holds the state
 * between two feeds. */
#include "gateway/answer/literal_scan.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/answer/answer.h"

enum { MAX_BEHIND = 128 };

struct place { /* destination of the JSON */
    struct answer *a;
    uint32_t i_call;
    struct strbuf *out; /* buffer that gets the JSON; NULL = the answer gets it */
};

static void give(const struct place *p, struct str text)
{
    if (p->out)
        strbuf_append_str(p->out, text);
    else
        answer_arguments(p->a, p->i_call, text);
}

static void give_c(const struct place *p, const char *text)
{
    give(p, str_from(text));
}

static void give_byte(const struct place *p, unsigned char c)
{
    static const char *const named = "\b\f\n\r\t\"\\", *const letters = "bfnrt\"\\";
    const char *at = c ? strchr(named, c) : NULL;
    char out[8];
    if (at)
        snprintf(out, sizeof out, "\\%c", letters[at - named]);
    else if (c < 0x20)
        snprintf(out, sizeof out, "\\u%04x", c);
    else
        snprintf(out, sizeof out, "%c", c);
    give_c(p, out);
}

/* ---- strings ---- */

static void give_code_point(const struct place *p, uint32_t c)
{
    char out[16];
    if (c < 0x80)
        give_byte(p, (unsigned char)c);
    else if (c < 0x10000) {
        snprintf(out, sizeof out, "\\u%04x", c);
        give_c(p, out);
    } else {
        c -= 0x10000;
        snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
        give_c(p, out);
    }
}

/* Reads n hexadecimal digits at `text[2]`. Returns false when a byte is not such a digit. */
static bool read_hex(struct str text, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 2; i < n + 2; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (!isxdigit(c))
            return false;
        *out = *out << 4 | (uint32_t)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return *out <= 0x10FFFF;
}

/* Writes the character of a Python escape. An unknown escape stands for itself. Returns the
 * number of consumed bytes; 0 = the escape may continue. */
static size_t feed_escape(const struct place *p, struct str text)
{
    static const char *const from = "abfnrtv0", *const to = "\a\b\f\n\r\t\v";
    uint32_t c = 0;
    if (text.len < 2)
        return 0;
    char kind = text.ptr[1];
    size_t n = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (n > 0 && text.len < n + 2)
        return 0;
    if (n > 0 && read_hex(text, n, &c)) {
        give_code_point(p, c);
        return n + 2;
    }
    if (kind == '\n')
        return 2;
    if (kind == '\\' || kind == '\'' || kind == '"') {
        give_byte(p, (unsigned char)kind);
        return 2;
    }
    const char *at = kind ? strchr(from, kind) : NULL;
    give_byte(p, at ? (unsigned char)to[at - from] : '\\');
    return at ? 2 : 1;
}

static bool is_plain(char c, char quote)
{
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\' && c != quote;
}

/* Checks whether a quote ends the string. In f(a='sed -n '1p' x') a quote within the string does
 * not end it. The string ends only when a separator or bracket follows. */
static bool ends_string(struct str text)
{
    const size_t at = json_skip_space(text, 1);
    return at == text.len || (text.ptr[at] && strchr(",:=)]}", text.ptr[at]));
}

/* Handles text inside a string. Plain bytes are emitted unchanged. */
static size_t feed_string(struct literal_scan *s, struct str text, const struct place *p)
{
    size_t n = 0;
    while (n < text.len && is_plain(text.ptr[n], s->quote))
        n++;
    give(p, (struct str){text.ptr, n});
    if (n > 0 || text.len == 0)
        return n;
    if (text.ptr[0] == '\\')
        return feed_escape(p, text);
    const struct str behind = {text.ptr, text.len < MAX_BEHIND ? text.len : MAX_BEHIND};
    if (text.ptr[0] == s->quote && text.len < MAX_BEHIND && json_skip_space(text, 1) == text.len)
        return 0; /* the next text decides whether the string ends here */
    if (text.ptr[0] == s->quote && ends_string(behind)) {
        s->quote = '\0';
        s->value = true;
        give_c(p, "\"");
    } else {
        give_byte(p, (unsigned char)text.ptr[0]);
    }
    return 1;
}

static void give_text(const struct place *p, struct str text)
{
    size_t from = 0;
    for (size_t i = 0; i < text.len; i++)
        if (!is_plain(text.ptr[i], '"')) {
            give(p, (struct str){text.ptr + from, i - from});
            give_byte(p, (unsigned char)text.ptr[i]);
            from = i + 1;
        }
    give(p, (struct str){text.ptr + from, text.len - from});
}

void literal_give_text(struct answer *a, uint32_t i_call, struct str text)
{
    const struct place p = {.a = a, .i_call = i_call};
    give_text(&p, text);
}

size_t literal_give_escape(struct answer *a, uint32_t i_call, struct str text)
{
    const struct place p = {.a = a, .i_call = i_call};
    return feed_escape(&p, text);
}

static size_t feed_marked_string(struct literal_scan *s, struct str text, const char *quote,
                                 const struct place *p)
{
    bool found;
    size_t n = parser_find_marker(text, quote, &found);
    give_text(p, (struct str){text.ptr, n});
    if (!found)
        return n;
    s->quote = '\0';
    s->value = true;
    give_c(p, "\"");
    return n + strlen(quote);
}

/* ---- between strings ---- */

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '+' || c == '-' || c == '.';
}

static size_t skip_digits(struct str s, size_t at)
{
    while (at < s.len && isdigit((unsigned char)s.ptr[at]))
        at++;
    return at;
}

/* Returns true for numbers like 07, which are not valid JSON. */
static bool is_padded(struct str w)
{
    return w.len > 1 && w.ptr[0] == '0' && skip_digits(w, 0) == w.len;
}

static struct str unpadded(struct str w)
{
    while (w.len > 1 && w.ptr[0] == '0')
        w = (struct str){w.ptr + 1, w.len - 1};
    return w;
}

static const char *bare_word(struct str w)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_eq_c(w, words[i][0]))
            return words[i][1];
    return NULL;
}

static void give_word(const struct place *p, struct str w, bool key)
{
    const char *bare = key ? NULL : bare_word(w);
    if (bare) {
        give_c(p, bare);
    } else if (!key && (json_text_reads_number(w, NULL) || is_padded(w))) {
        give(p, json_text_reads_number(w, NULL) ? w : unpadded(w));
    } else {
        give_c(p, "\"");
        give_text(p, w);
        give_c(p, "\"");
    }
}

void literal_give_word(struct answer *a, uint32_t i_call, struct str word)
{
    const struct place p = {.a = a, .i_call = i_call};
    give_word(&p, word, false);
}

static void begin_value(struct literal_scan *s, const struct place *p)
{
    if (s->comma)
        give_c(p, ", ");
    s->comma = false;
}

/* Handles a word. The end of a word is known only when another byte follows. */
static size_t feed_word(struct literal_scan *s, struct str text, const struct place *p, bool *ok)
{
    size_t n = 0;
    while (n < text.len && n < LITERAL_MAX_WORD && is_word_byte(text.ptr[n]))
        n++;
    if (n == text.len && n < LITERAL_MAX_WORD)
        return 0;
    *ok = n > 0 && n < LITERAL_MAX_WORD && !s->value;
    if (!*ok)
        return 0;
    begin_value(s, p);
    give_word(p, (struct str){text.ptr, n}, s->key);
    s->value = true;
    return n;
}

static bool is_map(const struct literal_scan *s)
{
    return s->depth > 0 && (s->maps >> (s->depth - 1) & 1) != 0;
}

static bool open_bracket(struct literal_scan *s, char c, const struct place *p)
{
    bool map = c == '{' || (c == '(' && s->depth == 0);
    if (s->value || s->key || s->depth == LITERAL_MAX_DEPTH)
        return false;
    begin_value(s, p);
    s->maps = (s->maps & ~(1u << s->depth)) | (uint32_t)map << s->depth;
    s->depth++;
    s->key = map;
    give_c(p, map ? "{" : "[");
    return true;
}

/* Closes a bracket. A comma directly before it is ignored. */
static bool close_bracket(struct literal_scan *s, char c, const struct place *p)
{
    bool map = is_map(s);
    if (s->depth == 0 || (map ? c == ']' || s->key == s->value : c == '}'))
        return false;
    give_c(p, map ? "}" : "]");
    s->depth--;
    s->key = s->comma = false;
    s->value = true;
    return true;
}

/* Handles a missing value. In a map, a key without a value gets an empty string, as in vLLM.
 * Returns true for a comma between missing elements, which is ignored. */
static bool lacks_value(struct literal_scan *s, char c, const struct place *p)
{
    if (s->value || !strchr(",)]}", c))
        return false;
    if (is_map(s) && !s->key) {
        give_c(p, "\"\"");
        s->value = true;
        return false;
    }
    return c == ',';
}

static bool feed_sign(struct literal_scan *s, char c, const struct place *p)
{
    bool ok = false;
    if (c == ',') {
        ok = s->value && !s->comma && !s->key;
        s->comma = true;
        s->value = false;
        s->key = is_map(s);
    } else if (c == ':' || c == '=') {
        ok = s->key && s->value;
        s->key = s->value = false;
        give_c(p, ok ? ": " : "");
    } else if (strchr("([{", c)) {
        ok = open_bracket(s, c, p);
    } else if (strchr(")]}", c)) {
        ok = close_bracket(s, c, p);
    }
    return ok;
}

static size_t feed_token(struct literal_scan *s, struct str text, const char *quote,
                         const struct place *p, bool *ok)
{
    size_t n_quote = quote ? strlen(quote) : 1, n = text.len < n_quote ? text.len : n_quote;
    char c = text.ptr[0];
    if (json_skip_space(text, 0) > 0)
        return json_skip_space(text, 0);
    if (quote ? memcmp(text.ptr, quote, n) == 0 : c == '"' || c == '\'') {
        *ok = n < n_quote || !s->value;
        if (n < n_quote || s->value)
            return 0;
        begin_value(s, p);
        s->quote = c;
        give_c(p, "\"");
        return n;
    }
    if (c && strchr(",:=([{)]}", c)) {
        *ok = (quote && lacks_value(s, c, p)) || feed_sign(s, c, p);
        return *ok;
    }
    return feed_word(s, text, p, ok);
}

static enum literal_result scan(struct literal_scan *s, struct str text, const char *quote,
                                const struct place *p, size_t *used)
{
    bool ok = true;
    *used = 0;
    while (*used < text.len) {
        struct str rest = {text.ptr + *used, text.len - *used};
        size_t n = !s->quote ? feed_token(s, rest, quote, p, &ok)
                   : quote   ? feed_marked_string(s, rest, quote, p)
                             : feed_string(s, rest, p);
        *used += n;
        if (!ok)
            return LITERAL_BAD;
        if (n == 0)
            return LITERAL_MORE;
        if (s->depth == 0)
            return LITERAL_DONE;
    }
    return LITERAL_MORE;
}

enum literal_result literal_scan_feed(struct literal_scan *s, struct str text, const char *quote,
                                      struct answer *a, uint32_t i_call, size_t *used)
{
    const struct place p = {.a = a, .i_call = i_call};
    return scan(s, text, quote, &p, used);
}

bool literal_scan_read(struct str text, struct strbuf *out)
{
    const struct place p = {.out = out};
    struct literal_scan s = {0};
    const size_t before = out->len;
    size_t used;
    if (scan(&s, text, NULL, &p, &used) == LITERAL_DONE && used == text.len)
        return true;
    out->len = before;
    return false;
}
