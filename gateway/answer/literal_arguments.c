/* Turns Python call arguments, (a='x', b=[True]), into a JSON object while they arrive.
 * Parsers of Python-like calls feed all unconsumed text. `answer_arguments` receives the JSON,
 * and the parser gets the number of consumed bytes.
 * Strings are emitted as they arrive. Other values are held until their end is known, at most
 * MAX_HELD bytes. The output is valid JSON whenever the call is complete. `struct
 * literal_arguments` holds the state between two feeds and owns no memory. */
#include "gateway/answer/literal_arguments.h"

#include <ctype.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/answer/answer.h"

/* `STEP_KEY` is the position before a key or the closing bracket, and `STEP_STRING` is inside a
 * string. `STEP_JOINT` is after a string, where another string may continue it. `STEP_HELD` is
 * inside another value, and `STEP_NEXT` is after a value. `STEP_CUT` means that the answer ended
 * inside a value. */
enum { STEP_OPEN, STEP_KEY, STEP_VALUE, STEP_STRING, STEP_JOINT, STEP_HELD, STEP_NEXT, STEP_CUT };
enum { MAX_BEHIND = 128, MAX_HELD = 4 << 20 };

enum look { LOOK_NO, LOOK_YES, LOOK_MORE };

struct work {
    struct literal_arguments *s;
    struct answer *a;
    uint32_t i_call;
    bool end;
    enum literal_result result;
};

static void give(const struct work *w, struct str text)
{
    answer_arguments(w->a, w->i_call, text);
}

static size_t stop(struct work *w, enum literal_result result, size_t n)
{
    give(w, STR("}"));
    w->result = result;
    return n;
}

static bool is_key_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* Checks whether the text begins with a key and its separator. Sets `behind` to the end of the
 * separator. */
static enum look look_at_key(const struct work *w, struct str text, struct str *key, size_t *behind)
{
    const size_t from = json_skip_space(text, 0);
    size_t at = from;
    while (at < text.len && is_key_byte(text.ptr[at]))
        at++;
    *key = (struct str){text.ptr + from, at - from};
    at = json_skip_space(text, at);
    if (at == text.len)
        return at < MAX_BEHIND && !w->end ? LOOK_MORE : LOOK_NO;
    *behind = at + 1;
    const char c = text.ptr[at];
    const bool separates = w->s->sep ? c == w->s->sep : c == '=' || c == ':';
    return key->len > 0 && separates ? LOOK_YES : LOOK_NO;
}

/* Checks whether a value has ended before this text. A comma alone is no proof, because text may
 * contain commas. A key or a bracket must follow. */
static enum look look_past_value(const struct work *w, struct str text)
{
    struct str key;
    size_t at = json_skip_space(text, 0), behind;
    if (at == text.len)
        return at < MAX_BEHIND && !w->end ? LOOK_MORE : LOOK_YES;
    if (text.ptr[at] == ')')
        return LOOK_YES;
    if (text.ptr[at] != ',')
        return LOOK_NO;
    text = parser_skip(text, at + 1);
    at = json_skip_space(text, 0);
    if (at < text.len && text.ptr[at] == ')')
        return LOOK_YES;
    return look_at_key(w, text, &key, &behind);
}

/* ---- strings ---- */

static bool is_quote(struct str text, size_t at)
{
    return at < text.len && (text.ptr[at] == '"' || text.ptr[at] == '\'');
}

/* Opens the string whose quote begins the text. Returns the length of the quotes; 0 = more text
 * is needed. */
static size_t open_string(struct work *w, struct str text)
{
    const char c = text.ptr[0];
    size_t n = 1;
    while (n < 3 && n < text.len && text.ptr[n] == c)
        n++;
    if (n == text.len && n < 3 && !w->end)
        return 0;
    w->s->quote = c;
    w->s->triple = n == 3;
    w->s->step = STEP_STRING;
    return n == 3 ? 3 : 1;
}

/* Checks whether a quote of the string's own kind ends the string. The string ends when a value
 * may end after the quote, or when another string follows, which Python joins. After an earlier
 * quote that did not end the string, the text is not Python, and later quotes are text too. */
static enum look look_at_quote(const struct work *w, struct str text)
{
    const struct str behind = parser_skip(text, 1);
    const size_t at = json_skip_space(behind, 0);
    const enum look ends = look_past_value(w, behind);
    if (ends != LOOK_NO || w->s->odd || !is_quote(behind, at))
        return ends;
    if (behind.ptr[at] != w->s->quote)
        return LOOK_YES;
    const enum look next = look_past_value(w, parser_skip(behind, at + 1));
    return next == LOOK_MORE ? LOOK_MORE : next == LOOK_YES ? LOOK_NO : LOOK_YES;
}

static size_t feed_quote(struct work *w, struct str text)
{
    const size_t n = w->s->triple ? 3 : 1;
    size_t n_quotes = 1;
    enum look ends = LOOK_NO;
    while (n_quotes < n && n_quotes < text.len && text.ptr[n_quotes] == w->s->quote)
        n_quotes++;
    if (n_quotes == text.len && n_quotes < n)
        return 0;
    if (w->s->triple)
        ends = n_quotes == n ? LOOK_YES : LOOK_NO;
    else
        ends = look_at_quote(w, text);
    if (ends == LOOK_MORE)
        return 0;
    if (ends == LOOK_YES) {
        w->s->step = STEP_JOINT;
        return n;
    }
    w->s->odd = w->s->odd || !w->s->triple;
    literal_give_text(w->a, w->i_call, (struct str){text.ptr, 1});
    return 1;
}

static size_t feed_string(struct work *w, struct str text)
{
    size_t n = 0;
    while (n < text.len && text.ptr[n] != '\\' && text.ptr[n] != w->s->quote)
        n++;
    literal_give_text(w->a, w->i_call, (struct str){text.ptr, n});
    if (n > 0 || text.len == 0)
        return n;
    return text.ptr[0] == '\\' ? literal_give_escape(w->a, w->i_call, text) : feed_quote(w, text);
}

static size_t feed_joint(struct work *w, struct str text)
{
    const size_t at = json_skip_space(text, 0);
    if (at == text.len && (at > 0 || !w->end))
        return at;
    if (is_quote(text, at)) {
        const size_t n = open_string(w, parser_skip(text, at));
        return n > 0 ? at + n : at;
    }
    give(w, STR("\""));
    w->s->step = STEP_NEXT;
    return at;
}

/* ---- other values ---- */

static void give_value(struct work *w, struct str text)
{
    struct strbuf json;
    while (text.len > 0 && isspace((unsigned char)text.ptr[text.len - 1]))
        text.len--;
    strbuf_init(&json, 0);
    bool ok = literal_read(text, &json);
    if (!ok && text.len > 0 && (text.ptr[0] == '[' || text.ptr[0] == '{'))
        ok = literal_scan_read(text, &json) && json_text_is_whole(strbuf_str(&json));
    if (ok) {
        give(w, strbuf_str(&json));
    } else {
        give(w, STR("\""));
        literal_give_text(w->a, w->i_call, text);
        give(w, STR("\""));
    }
    strbuf_fini(&json);
}

static size_t end_held(struct work *w, struct str text, size_t n)
{
    give_value(w, (struct str){text.ptr, n});
    w->s->step = STEP_NEXT;
    return n;
}

/* Emits the available part of a value that the end of the answer has cut off. */
static size_t cut_held(struct work *w, struct str text)
{
    struct literal_scan scan = {0};
    size_t n;
    (void)literal_scan_feed(&scan, text, NULL, w->a, w->i_call, &n);
    w->s->step = STEP_CUT;
    return text.len;
}

static size_t feed_held(struct work *w, struct str text)
{
    struct literal_arguments *s = w->s;
    while (s->n_seen < text.len) {
        const struct str rest = parser_skip(text, s->n_seen);
        const size_t n = literal_find_end(&s->value, rest, ",)]}");
        s->n_seen += n;
        if (n == rest.len)
            break;
        const bool comma = rest.ptr[n] == ',';
        const enum look ends = comma ? look_past_value(w, parser_skip(rest, n)) : LOOK_YES;
        if (ends == LOOK_YES)
            return end_held(w, text, s->n_seen);
        if (ends == LOOK_MORE)
            return 0;
        s->n_seen++;
    }
    if (text.len >= MAX_HELD)
        return end_held(w, text, text.len);
    return w->end && text.len > 0 ? cut_held(w, text) : 0;
}

/* ---- between strings and values ---- */

static size_t feed_key(struct work *w, struct str text)
{
    struct str key;
    size_t at = json_skip_space(text, 0), behind = 0;
    if (at < text.len && text.ptr[at] == ')')
        return stop(w, LITERAL_DONE, at + 1);
    const enum look is_key = look_at_key(w, text, &key, &behind);
    if (at == text.len)
        return at;
    if (is_key == LOOK_MORE)
        return 0;
    if (is_key == LOOK_NO)
        return w->end && is_key_byte(text.ptr[at]) ? 0 : stop(w, LITERAL_BAD, at);
    give(w, w->s->any ? STR(", \"") : STR("\""));
    literal_give_text(w->a, w->i_call, key);
    give(w, STR("\": "));
    w->s->any = true;
    w->s->sep = text.ptr[behind - 1];
    w->s->step = STEP_VALUE;
    return behind;
}

static size_t feed_value(struct work *w, struct str text)
{
    const size_t at = json_skip_space(text, 0);
    if (at == text.len)
        return at;
    w->s->odd = false;
    if (is_quote(text, at)) {
        const size_t n = open_string(w, parser_skip(text, at));
        if (n == 0)
            return at;
        give(w, STR("\""));
        return at + n;
    }
    w->s->n_seen = 0;
    w->s->value = (struct literal_end){0};
    w->s->step = STEP_HELD;
    return at;
}

static size_t feed_next(struct work *w, struct str text)
{
    const size_t at = json_skip_space(text, 0);
    if (at == text.len)
        return at;
    if (text.ptr[at] == ')')
        return stop(w, LITERAL_DONE, at + 1);
    if (text.ptr[at] != ',')
        return stop(w, LITERAL_BAD, at);
    w->s->step = STEP_KEY;
    return at + 1;
}

static size_t feed_step(struct work *w, struct str text)
{
    switch (w->s->step) {
    case STEP_OPEN:
        give(w, text.len > 0 ? STR("{") : STR(""));
        w->s->step = text.len > 0 ? STEP_KEY : STEP_OPEN;
        return text.len > 0;
    case STEP_KEY:
        return feed_key(w, text);
    case STEP_VALUE:
        return feed_value(w, text);
    case STEP_STRING:
        return feed_string(w, text);
    case STEP_JOINT:
        return feed_joint(w, text);
    case STEP_HELD:
        return feed_held(w, text);
    case STEP_NEXT:
        return feed_next(w, text);
    default:
        return text.len;
    }
}

enum literal_result literal_arguments_feed(struct literal_arguments *s, struct str text, bool end,
                                           struct answer *a, uint32_t i_call, size_t *used)
{
    struct work w = {s, a, i_call, end, LITERAL_MORE};
    for (*used = 0; w.result == LITERAL_MORE;) {
        const uint32_t before = s->step;
        const size_t n = feed_step(&w, parser_skip(text, *used));
        *used += n;
        if (n == 0 && s->step == before)
            break;
    }
    return w.result;
}
