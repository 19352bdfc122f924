/* Follows JSON byte by byte, for tool calls that arrive token by token. json_scan_feed finds the
 * end of a value. json_call_parse finds the name and the start of the arguments in {"name": …,
 * "arguments": …}.
 * The state is a few numbers in the caller's struct. Nothing is allocated, and no byte is read
 * twice. Nesting is bounded by JSON_SCAN_MAX_DEPTH and the beginning of a call by
 * JSON_CALL_MAX_HEAD. The scan is not a validator: it accepts some texts that are not JSON, and
 * a parser reads the value later. The functions are pure and may run on any thread. */
#include "common/json/scan.h"

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

static void scan_in_string(struct json_scan *s, char c)
{
    if (!s->escaped && c == s->quote)
        s->quote = '\0';
    s->escaped = !s->escaped && c == '\\';
}

/* Handles a byte outside of strings. Returns false when it is not allowed there. */
static bool scan_between(struct json_scan *s, char c)
{
    if (c == '"' || (c == '\'' && s->depth > 0)) {
        s->quote = c;
        return true;
    }
    if (c == '{' || c == '[')
        return opens(s, c);
    if (c == '}' || c == ']')
        return closes(s, c);
    if (s->depth > 0)
        return is_scalar_byte(c) || (c && strchr(" \t\r\n,:", c));
    s->is_scalar = is_scalar_byte(c);
    return s->is_scalar;
}

enum json_scan_result json_scan_feed(struct json_scan *s, struct str text, size_t *used)
{
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        bool ok = true;
        *used = i;
        if (s->is_scalar && !is_scalar_byte(c))
            return JSON_SCAN_DONE;
        if (s->quote)
            scan_in_string(s, c);
        else
            ok = scan_between(s, c);
        s->begun = true;
        if (!ok)
            return JSON_SCAN_BAD;
        *used = i + 1;
        if (s->depth == 0 && !s->quote && !s->is_scalar)
            return JSON_SCAN_DONE;
    }
    *used = text.len;
    return JSON_SCAN_MORE;
}

/* ---- the head of a tool call ---- */

/* Lists the steps of the scan. AT_x: the next byte is the object, a key, a colon, a value or a
 * comma. IN_x: a key or a value has begun. */
enum { AT_OBJECT, AT_KEY, IN_KEY, AT_COLON, AT_VALUE, IN_VALUE, AT_COMMA };

/* Continues in a key or a value. JSON_SCAN_DONE means that h->at is the offset after that key or
 * value. */
static enum json_scan_result scan_on(struct json_head *h, struct str text)
{
    size_t n;
    const struct str rest = {text.ptr + h->at, text.len - h->at};
    const enum json_scan_result res = json_scan_feed(&h->scan, rest, &n);
    h->at += n;
    return res;
}

static void begin_scan(struct json_head *h, uint8_t step)
{
    h->step = step;
    h->from = h->at;
    h->scan = (struct json_scan){0};
}

/* Handles the end of a member's value. */
static void end_value(struct json_head *h, struct str text, const char *name_key)
{
    h->step = AT_COMMA;
    if (!str_eq_c((struct str){text.ptr + h->key, h->n_key}, name_key) || text.ptr[h->from] != '"')
        return;
    h->name = h->from + 1;
    h->n_name = h->at - h->from - 2;
    h->has_name = h->n_name > 0 && !memchr(text.ptr + h->name, '\\', h->n_name);
    h->head = h->at;
}

/* Continues in a key or a value. The arguments are known as soon as their value has begun,
 * because its end may not have arrived yet. */
static enum json_scan_result step_inside(struct json_head *h, struct str text, const char *name_key,
                                         const char *const *keys)
{
    const bool is_key = h->step == IN_KEY;
    const enum json_scan_result res = scan_on(h, text);
    if (is_key && res == JSON_SCAN_DONE) {
        h->step = AT_COLON;
        h->key = h->from + 1;
        h->n_key = h->at - h->from - 2;
    }
    if (!is_key && h->at > h->from &&
        str_is_one_of((struct str){text.ptr + h->key, h->n_key}, keys)) {
        h->arguments = h->from;
        h->has_arguments = true;
        h->head = h->from + 1;
    }
    if (!is_key && res == JSON_SCAN_DONE)
        end_value(h, text, name_key);
    return res;
}

/* Handles one byte between keys and values: a required character, or the first byte of a key or
 * value. */
static enum json_scan_result step_between(struct json_head *h, char c)
{
    static const char wants[] = {
        [AT_OBJECT] = '{', [AT_KEY] = '"', [AT_COLON] = ':', [AT_COMMA] = ','};
    if (h->step != AT_VALUE && c != wants[h->step]) {
        h->is_bare = h->step == AT_COMMA && c == '}';
        h->at += h->is_bare;
        return JSON_SCAN_BAD;
    }
    if (h->step == AT_KEY || h->step == AT_VALUE) {
        begin_scan(h, h->step == AT_KEY ? IN_KEY : IN_VALUE);
        return JSON_SCAN_DONE;
    }
    h->step = h->step == AT_COLON ? AT_VALUE : AT_KEY;
    h->at++;
    return JSON_SCAN_DONE;
}

enum json_call_result json_call_parse(struct json_head *h, struct str text, const char *name_key,
                                      const char *const *keys, struct json_call *out)
{
    enum json_scan_result res = JSON_SCAN_DONE;
    while (res == JSON_SCAN_DONE && !(h->has_name && h->has_arguments)) {
        const bool inside = h->step == IN_KEY || h->step == IN_VALUE;
        h->at = inside ? h->at : json_skip_space(text, h->at);
        if (h->at >= text.len)
            res = JSON_SCAN_MORE;
        else
            res = inside ? step_inside(h, text, name_key, keys) : step_between(h, text.ptr[h->at]);
    }
    out->name = (struct str){text.ptr + h->name, h->n_name};
    out->arguments = h->arguments;
    if (h->has_name && h->has_arguments)
        return h->head > JSON_CALL_MAX_HEAD ? JSON_CALL_BAD : JSON_CALL_BEGUN;
    if (h->at > JSON_CALL_MAX_HEAD || (res == JSON_SCAN_BAD && !(h->is_bare && h->has_name)))
        return JSON_CALL_BAD;
    out->arguments = h->at;
    return res == JSON_SCAN_BAD ? JSON_CALL_BARE : JSON_CALL_MORE;
}

enum json_call_result json_keyed_call_parse(struct json_head *h, struct str text,
                                            struct json_call *out)
{
    static const char *const none[] = {NULL};
    enum json_scan_result res = JSON_SCAN_DONE;
    while (res == JSON_SCAN_DONE && h->step != IN_VALUE) {
        const bool inside = h->step == IN_KEY;
        h->at = inside ? h->at : json_skip_space(text, h->at);
        if (h->at >= text.len)
            res = JSON_SCAN_MORE;
        else
            res = inside ? step_inside(h, text, "", none) : step_between(h, text.ptr[h->at]);
    }
    if (h->at > JSON_CALL_MAX_HEAD || res == JSON_SCAN_BAD)
        return JSON_CALL_BAD;
    if (res == JSON_SCAN_MORE)
        return JSON_CALL_MORE;
    out->name = (struct str){text.ptr + h->key, h->n_key};
    out->arguments = h->at;
    const bool ok = h->n_key > 0 && !memchr(out->name.ptr, '\\', h->n_key);
    return ok && text.ptr[h->at] == '{' ? JSON_CALL_BEGUN : JSON_CALL_BAD;
}
