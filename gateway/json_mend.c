/* A state machine over bytes. Between values it knows what has to follow; a byte that cannot follow
 * is repaired where a model's meaning is plain (a quote, a comma, a word of Python), else dropped.
 *
 * json_mend_feed ─▶ feed_between ─▶ feed_string │ feed_number │ feed_word │ feed_bare ─▶ out
 *
 * What has been appended can always be completed: a byte that may not be JSON (the 0 of 007, a
 * backslash, a comma) is held until the next one has come. A function that returns 0 has changed
 * the step, and the byte is looked at again. */
#include "gateway/json_mend.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "gateway/json_scan.h"

/* AT_VALUE: a value has to follow, at depth 0 the first byte of all. BARE: in a word that stands
 * for a string. SKIP: in a word that stands for nothing. LOST: nested too deep, so nothing more
 * counts. */
enum {
    AT_VALUE,
    AT_KEY,
    AT_COLON,
    AT_NEXT,
    IN_STRING,
    IN_NUMBER,
    IN_WORD,
    IN_BARE,
    IN_SKIP,
    IS_LOST,
    IS_DONE,
};
enum { SIGN, ZERO, INTEGER, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS };
enum { MAX_WORD = 5, N_UNICODE = 6 };

static void put(struct strbuf *out, const char *text)
{
    (void)strbuf_append_c(out, text);
}

static void put_byte(struct strbuf *out, char c)
{
    (void)strbuf_append(out, &c, 1);
}

/* A byte inside of a string. */
static void put_escaped(struct strbuf *out, char c)
{
    static const char *const from = "\b\f\n\r\t\"\\", *const letters = "bfnrt\"\\";
    const char *at = c ? strchr(from, c) : NULL;
    char text[8];
    if (!at && (unsigned char)c >= 0x20) {
        put_byte(out, c);
        return;
    }
    if (at)
        snprintf(text, sizeof text, "\\%c", letters[at - from]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    put(out, text);
}

static void put_held(struct json_mend *m, struct strbuf *out)
{
    (void)strbuf_append(out, m->held, m->n_held);
    m->n_held = 0;
}

static void hold(struct json_mend *m, char c)
{
    m->held[m->n_held++] = c;
}

static bool is_space(char c)
{
    return json_skip_space((struct str){&c, 1}, 0) == 1;
}

/* A word or a number ends before it. */
static bool ends_word(char c)
{
    return is_space(c) || (c && strchr(",:{}[]\"", c));
}

/* ---- brackets and what has to follow ---- */

static bool in_map(const struct json_mend *m)
{
    const uint32_t i = m->depth - 1;
    return m->depth > 0 && (m->maps[i / 64] >> i % 64 & 1) != 0;
}

static void end_value(struct json_mend *m)
{
    m->step = m->depth > 0 ? AT_NEXT : IS_DONE;
}

static void end_string(struct json_mend *m, struct strbuf *out)
{
    put_byte(out, '"');
    if (m->key)
        m->step = AT_COLON;
    else
        end_value(m);
    m->key = false;
}

/* Before a member: the comma that was held. */
static void put_comma(struct json_mend *m, struct strbuf *out)
{
    (void)strbuf_append(out, m->comma, m->n_comma);
    m->n_comma = 0;
}

static void open_bracket(struct json_mend *m, char c, struct strbuf *out)
{
    const uint32_t i = m->depth;
    const bool map = c == '{';
    if (i == JSON_MEND_MAX_DEPTH) {
        put(out, "null");
        m->step = IS_LOST;
        return;
    }
    m->maps[i / 64] = (m->maps[i / 64] & ~(1ull << i % 64)) | (uint64_t)map << i % 64;
    m->depth++;
    m->n_maps += map;
    put_byte(out, c);
    m->step = map ? AT_KEY : AT_VALUE;
}

/* A key without a value has none. */
static void complete_member(struct json_mend *m, struct strbuf *out)
{
    if (m->step == AT_COLON)
        put(out, ": null");
    else if (m->step == AT_VALUE && in_map(m))
        put(out, "null");
    m->n_comma = 0;
}

static void close_innermost(struct json_mend *m, struct strbuf *out)
{
    const bool map = in_map(m);
    complete_member(m, out);
    put_byte(out, map ? '}' : ']');
    m->depth--;
    m->n_maps -= map;
    end_value(m);
}

/* Closes what is open inside of the bracket as well; one that nothing has opened is dropped. */
static void close_bracket(struct json_mend *m, char c, struct strbuf *out)
{
    const bool map = c == '}';
    bool closed = map ? m->n_maps == 0 : m->n_maps == m->depth;
    while (!closed) {
        closed = in_map(m) == map;
        close_innermost(m, out);
    }
}

static void feed_comma(struct json_mend *m, struct strbuf *out)
{
    const bool map = in_map(m);
    if (m->step == AT_KEY || (m->step == AT_VALUE && !map))
        return; /* one comma too many */
    complete_member(m, out);
    m->comma[0] = ',';
    m->n_comma = 1;
    m->step = map ? AT_KEY : AT_VALUE;
}

/* ---- strings ---- */

/* Behind a backslash that is held. One that means nothing in JSON is itself, but for \'. */
static size_t feed_escape(struct json_mend *m, char c, struct strbuf *out)
{
    const bool first = m->n_held == 1;
    if (first ? c == 'u' : isxdigit((unsigned char)c) != 0) {
        hold(m, c);
        if (m->n_held == N_UNICODE)
            put_held(m, out);
        return 1;
    }
    if (first && c == '\'') {
        m->n_held = 0;
        put_byte(out, c);
        return 1;
    }
    const bool known = first && c && strchr("\"\\/bfnrt", c);
    if (known)
        hold(m, c);
    else
        put_byte(out, '\\');
    put_held(m, out);
    return known;
}

static size_t feed_string(struct json_mend *m, struct str text, struct strbuf *out)
{
    size_t n = 0;
    if (m->n_held > 0)
        return feed_escape(m, text.ptr[0], out);
    while (n < text.len && (unsigned char)text.ptr[n] >= 0x20 && text.ptr[n] != '"' &&
           text.ptr[n] != '\\' && text.ptr[n] != m->quote)
        n++;
    (void)strbuf_append(out, text.ptr, n);
    if (n > 0)
        return n;
    if (m->quote && text.ptr[0] == '\\')
        hold(m, '\\');
    else if (m->quote && text.ptr[0] == m->quote)
        end_string(m, out);
    else
        put_escaped(out, text.ptr[0]);
    return 1;
}

static void begin_string(struct json_mend *m, char quote, bool key, struct strbuf *out)
{
    put_byte(out, '"');
    m->quote = quote;
    m->key = key;
    m->step = IN_STRING;
}

/* ---- numbers and words ---- */

static size_t go(struct json_mend *m, uint8_t part, char c, struct strbuf *out)
{
    put_held(m, out);
    put_byte(out, c);
    m->number = part;
    return 1;
}

/* A sign or zeros, which are held: they may be no number's beginning, or too many. */
static size_t feed_number_start(struct json_mend *m, char c, struct strbuf *out)
{
    if (c == '0') {
        if (m->number == SIGN)
            hold(m, c);
        m->number = ZERO;
        return 1;
    }
    if (isdigit((unsigned char)c)) {
        m->n_held -= m->number == ZERO;
        return go(m, INTEGER, c, out);
    }
    if (c == '.') {
        if (m->number == SIGN)
            hold(m, '0');
        return go(m, POINT, c, out);
    }
    m->step = IN_WORD; /* -Infinity */
    return 0;
}

static size_t feed_number(struct json_mend *m, char c, struct strbuf *out)
{
    const uint8_t at = m->number;
    const bool digit = isdigit((unsigned char)c) != 0, e = c == 'e' || c == 'E';
    if (at == SIGN || (at == ZERO && (digit || c == '.')))
        return feed_number_start(m, c, out);
    if (digit) {
        const uint8_t behind = at == POINT ? FRACTION : EXPONENT_DIGITS;
        return go(m, at == INTEGER || at == FRACTION ? at : behind, c, out);
    }
    if (at == INTEGER && c == '.')
        return go(m, POINT, c, out);
    if (at == EXPONENT && (c == '+' || c == '-'))
        return go(m, EXPONENT_SIGN, c, out);
    put_held(m, out);
    if (at == POINT || at == EXPONENT || at == EXPONENT_SIGN)
        put_byte(out, '0');
    if (e && at <= FRACTION)
        return go(m, EXPONENT, c, out);
    if (ends_word(c))
        end_value(m);
    else
        m->step = m->depth > 0 ? IN_SKIP : IS_DONE;
    return 0;
}

/* JSON's and Python's words. */
static const char *word_of(struct str w)
{
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_eq_c(w, words[i][0]))
            return words[i][1];
    return NULL;
}

/* The word is a string; by itself all text behind it belongs to that. */
static void begin_bare(struct json_mend *m, struct strbuf *out)
{
    put_byte(out, '"');
    for (size_t i = 0; i < m->n_held; i++)
        put_escaped(out, m->held[i]);
    m->n_held = 0;
    m->quote = '\0';
    m->step = m->depth > 0 ? IN_BARE : IN_STRING;
}

static size_t feed_word(struct json_mend *m, char c, struct strbuf *out)
{
    const char *word = word_of((struct str){m->held, m->n_held});
    if (!ends_word(c) && m->n_held < MAX_WORD) {
        hold(m, c);
        return 1;
    }
    if (ends_word(c) && word) {
        put(out, word);
        m->n_held = 0;
        end_value(m);
    } else {
        begin_bare(m, out);
    }
    return 0;
}

static size_t feed_bare(struct json_mend *m, char c, struct strbuf *out)
{
    if (ends_word(c))
        end_string(m, out);
    else
        put_escaped(out, c);
    return !ends_word(c);
}

/* ---- between ---- */

static void begin_value(struct json_mend *m, char c, struct strbuf *out)
{
    put_comma(m, out);
    if (c == '{' || c == '[') {
        open_bracket(m, c, out);
    } else if (c == '"' || (c == '\'' && m->depth > 0)) {
        begin_string(m, c, false, out);
    } else if (isdigit((unsigned char)c) || (c && strchr("+-.", c))) {
        m->step = IN_NUMBER;
        m->number = SIGN;
        if (c == '-')
            hold(m, c);
        else if (c != '+')
            (void)feed_number_start(m, c, out);
    } else {
        m->step = IN_WORD;
        hold(m, c);
    }
}

static size_t begin_key(struct json_mend *m, char c, struct strbuf *out)
{
    put_comma(m, out);
    if (c == '"' || c == '\'') {
        begin_string(m, c, true, out);
        return 1;
    }
    m->key = true;
    put_byte(out, '"');
    m->step = IN_BARE;
    if (c == '{' || c == '[')
        end_string(m, out); /* a value without a key */
    return 0;
}

/* Neither white space nor a comma, a colon or a closing bracket: what follows begins, or the comma
 * or the colon before it was left out. */
static size_t feed_item(struct json_mend *m, char c, struct strbuf *out)
{
    const bool map = in_map(m), quoted = c == '"' || c == '\'' || c == '{' || c == '[';
    if (m->step == AT_KEY)
        return begin_key(m, c, out);
    if (m->step == AT_VALUE) {
        begin_value(m, c, out);
        return 1;
    }
    if (m->step == AT_COLON) {
        put(out, ": ");
        m->step = AT_VALUE;
    } else if (map && !quoted) {
        m->step = IN_SKIP;
    } else {
        put(out, ", ");
        m->step = map ? AT_KEY : AT_VALUE;
    }
    return 0;
}

static size_t feed_between(struct json_mend *m, char c, struct strbuf *out)
{
    if (is_space(c)) {
        if (m->n_comma == 0)
            put_byte(out, c);
        else if (m->n_comma < sizeof m->comma)
            m->comma[m->n_comma++] = c;
        return 1;
    }
    if (m->depth == 0 || !strchr(",:}]", c) || !c)
        return feed_item(m, c, out);
    if (c == ',') {
        feed_comma(m, out);
    } else if (c == ':' && m->step == AT_COLON) {
        put_byte(out, c);
        m->step = AT_VALUE;
    } else if (c != ':') {
        close_bracket(m, c, out);
    }
    return 1;
}

static size_t feed_skip(struct json_mend *m, char c)
{
    if (ends_word(c))
        m->step = AT_NEXT;
    return !ends_word(c);
}

static size_t feed_byte(struct json_mend *m, char c, struct strbuf *out)
{
    switch (m->step) {
    case IN_NUMBER:
        return feed_number(m, c, out);
    case IN_WORD:
        return feed_word(m, c, out);
    case IN_BARE:
        return feed_bare(m, c, out);
    case IN_SKIP:
        return feed_skip(m, c);
    case IS_LOST:
    case IS_DONE:
        return 1;
    default:
        return feed_between(m, c, out);
    }
}

void json_mend_feed(struct json_mend *m, struct str text, struct strbuf *out)
{
    for (size_t at = 0; at < text.len;) {
        const struct str rest = {text.ptr + at, text.len - at};
        at += m->step == IN_STRING ? feed_string(m, rest, out) : feed_byte(m, rest.ptr[0], out);
    }
}

void json_mend_end(struct json_mend *m, struct strbuf *out)
{
    if (m->step == AT_VALUE && m->depth == 0)
        put(out, "{}");
    while (m->step == IN_NUMBER || m->step == IN_WORD || m->step == IN_BARE || m->step == IN_SKIP)
        (void)feed_byte(m, ' ', out);
    if (m->step == IN_STRING) {
        if (m->n_held > 0)
            put_byte(out, '\\');
        put_held(m, out);
        end_string(m, out);
    }
    while (m->depth > 0)
        close_innermost(m, out);
    m->step = IS_DONE;
}
