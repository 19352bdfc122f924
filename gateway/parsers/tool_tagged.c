/* Parses calls with one tag per argument and plain text in it, for all families in
 * tool_parsers.c of that kind.
 * `parser_run` feeds all unconsumed text to the step function. Content is emitted through
 * tool_text.c, and calls and arguments through answer.h. The tool's schema decides the type of a
 * value (tool_types.h).
 * All constants of a family are in `struct tagged_family`. The state is `struct parser_state`
 * alone. Strings are emitted as they arrive. Values of other types are held until their end, at
 * most MAX_HELD_VALUE bytes. `n_seen` and `n_first` keep searched positions, so no byte is
 * searched twice. */
#include "gateway/parsers/tool_tagged.h"

#include <string.h>

#include "common/json/text.h"
#include "gateway/answer/answer.h"
#include "gateway/answer/literal_scan.h"
#include "gateway/answer/tool_types.h"

enum {
    STEP_TEXT,
    STEP_HEAD,    /* position: before the name of a call */
    STEP_SEEK,    /* position: before the mark of a name */
    STEP_KEY,     /* position: before a key, or before the call's end */
    STEP_VALUE,   /* position: at the start of a value */
    STEP_STRING,  /* position: in a string value */
    STEP_OTHER,   /* position: in a value that is not a string */
    STEP_PAST,    /* position: after a value, before the value's end tag */
    STEP_WRAPPED, /* position: in a value that may hold all arguments */
    STEP_NEXT,    /* position: after a call */
};

enum {
    MAX_HELD = 512,
    MAX_KEY = 64 << 10,
    MAX_HELD_JSON = 64 << 10,
    MAX_HELD_VALUE = 4 << 20,
    NO_TOOL = UINT32_MAX
};

static struct str skip_space(struct str s)
{
    return parser_skip(s, json_skip_space(s, 0));
}

static struct str held(struct str s)
{
    return (struct str){s.ptr, s.len < MAX_HELD ? s.len : MAX_HELD};
}

/* ---- the request's tools ---- */

static uint32_t find_tool(const struct answer *a, struct str name)
{
    for (size_t i = 0; i < json_array_size(a->rules->tool_list); i++) {
        const json_t *tool = json_array_get(a->rules->tool_list, i),
                     *own = json_object_get(json_object_get(tool, "function"), "name");
        if (json_is_string(own) && str_eq_c(name, json_string_value(own)))
            return (uint32_t)i;
    }
    return NO_TOOL;
}

static const json_t *parameters_of(const struct answer *a, uint32_t i_tool)
{
    const json_t *tool = json_array_get(a->rules->tool_list, i_tool);
    return json_object_get(json_object_get(tool, "function"), "parameters");
}

/* ---- steps ---- */

static size_t feed_text(const struct tagged_family *f, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    size_t i_mark;
    const size_t n = tool_text_feed(&f->text, s, text, end, a, &i_mark);
    if (i_mark != SIZE_MAX) {
        s->step = STEP_HEAD;
        s->i_mark = (uint32_t)i_mark;
        s->in_header = !f->name_mark || strcmp(f->text.marks[i_mark], f->name_mark) == 0;
    }
    return n;
}

static bool is_name_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.' || c == '/' || c == ':';
}

/* Reads a name and its end at the start of text. Returns 0 when the name is missing. With
 * `more`, it may still arrive. */
static size_t read_name(const struct tagged_family *f, struct str text, struct str *name,
                        bool *more)
{
    size_t n = json_skip_space(text, 0);
    const size_t from = n;
    bool found = true;
    *more = false;
    while (n < text.len && is_name_byte(text.ptr[n]))
        n++;
    *name = (struct str){text.ptr + from, n - from};
    if (n == text.len) {
        *more = true;
        return 0;
    }
    if (n > from && !f->name_end) {
        const size_t next = json_skip_space(text, n);
        *more = next == text.len && !memchr(text.ptr + n, '\n', next - n);
        return next == text.len || text.ptr[next] == '<' || memchr(text.ptr + n, '\n', next - n)
                   ? (*more ? 0 : n)
                   : 0;
    }
    if (n == from)
        return 0;
    if (f->name_close && parser_find_marker(parser_skip(text, n), f->name_close, &found) != 0)
        return 0;
    if (!f->name_close)
        n = json_skip_space(text, n);
    const size_t at = found ? parser_find_marker(parser_skip(text, n), f->name_end, &found) : 0;
    *more = !found;
    return found && (at == 0 || f->name_close) ? n + at + strlen(f->name_end) : 0;
}

/* Returns the position after the mark of a name. Returns SIZE_MAX when more text is needed, and
 * text.len + 1 when other text is there. */
static size_t find_name_mark(const struct tagged_family *f, const struct parser_state *s,
                             struct str text)
{
    bool found;
    if (s->in_header)
        return 0;
    const struct str rest = skip_space(text);
    const size_t n = parser_find_marker(rest, f->name_mark, &found);
    if (n > 0 && rest.len > 0)
        return text.len + 1;
    return found ? text.len - rest.len + strlen(f->name_mark) : SIZE_MAX;
}

/* Skips text before the mark of a name. */
static size_t feed_seek(const struct tagged_family *f, struct parser_state *s, struct str text)
{
    const char *const next[] = {f->name_mark, f->close, NULL};
    size_t i_found;
    const size_t n = parser_find_first(text, next, &i_found);
    if (i_found == SIZE_MAX)
        return n;
    s->said = false;
    s->step = i_found == 0 ? STEP_HEAD : STEP_TEXT;
    s->in_header = true;
    s->i_mark = NO_TOOL;
    return n + strlen(next[i_found]);
}

static void to_key(struct parser_state *s)
{
    s->step = STEP_KEY;
    s->n_seen = s->n_first = 0;
}

static size_t feed_head(const struct tagged_family *f, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const struct str rest = held(text);
    struct str name = {0};
    size_t n = 0, at = find_name_mark(f, s, rest);
    bool more = at == SIZE_MAX;
    if (f->seeks && at != 0) {
        s->step = STEP_SEEK;
        return 0;
    }
    if (at <= rest.len)
        n = read_name(f, parser_skip(rest, at), &name, &more);
    if (n == 0 && more && !end && text.len < MAX_HELD)
        return 0;
    if (n == 0) {
        tool_text_refuse(s, s->i_mark == NO_TOOL ? f->name_mark : f->text.marks[s->i_mark], a);
        s->step = STEP_TEXT;
        return 0;
    }
    s->n_blanks = 0;
    s->i_call = answer_call(a, name);
    s->i_mark = find_tool(a, name);
    s->in_object = false;
    answer_arguments(a, s->i_call, STR("{"));
    to_key(s);
    return at + n;
}

static void give_key(struct parser_state *s, struct str key, struct answer *a)
{
    answer_arguments(a, s->i_call, s->in_object ? STR(", \"") : STR("\""));
    literal_give_text(a, s->i_call, key);
    answer_arguments(a, s->i_call, STR("\": "));
    s->in_object = true;
    s->step = STEP_VALUE;
}

static const struct str wrappers[] = {{"arguments", 9}, {"input", 5}};

/* Returns true when the key may hold all arguments. It must be the first argument and have a
 * name for all arguments, and the tool must have no parameter of that name. */
static bool may_wrap(const struct tagged_family *f, struct parser_state *s, struct str key,
                     const struct answer *a)
{
    const json_t *properties = json_object_get(parameters_of(a, s->i_mark), "properties");
    if (!f->unwraps || s->in_object || json_object_size(properties) == 0 ||
        json_object_getn(properties, key.ptr, key.len))
        return false;
    for (s->i_wrapper = 0; s->i_wrapper < sizeof wrappers / sizeof *wrappers; s->i_wrapper++)
        if (str_eq(key, wrappers[s->i_wrapper]))
            return true;
    return false;
}

/* Returns the types of a value, stated by the tool, or by the model next to the key. Returns 0
 * when no type is stated. */
static uint32_t types_of_value(const struct tagged_family *f, const struct parser_state *s,
                               struct str key, struct str says, const struct answer *a)
{
    const uint32_t types = tool_types_of(parameters_of(a, s->i_mark), key);
    bool found = false;
    if (f->says)
        (void)parser_find_marker(says, f->says, &found);
    if (found && (f->says_always || types == 0))
        return TOOL_STRING;
    if (f->says_always && json_skip_space(says, 0) < says.len)
        return 0;
    return types == 0 && (!f->says || f->says_else) ? TOOL_STRING : types;
}

/* Continues the search for a marker from position *seen. */
static size_t find_on(struct str text, const char *marker, size_t *seen, bool *found)
{
    *seen += parser_find_marker(parser_skip(text, *seen), marker, found);
    return *seen;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Reads a key after its tag, which ends at `from`. A key that is too long is skipped. Returns
 * the number of consumed bytes; 0 = more text is needed. `n_seen` and `n_first` are the
 * positions where the searches for the key's end and for its value continue. */
static size_t feed_key_name(const struct tagged_family *f, struct parser_state *s, struct str text,
                            size_t from, struct answer *a)
{
    const size_t most = from + MAX_KEY;
    const struct str within = {text.ptr, text.len < most ? text.len : most};
    struct str key, says = {0};
    bool found;
    s->n_seen = larger(s->n_seen, from);
    size_t n = find_on(within, f->key_end, &s->n_seen, &found);
    if (!found)
        return text.len < most ? 0 : from;
    key = (struct str){text.ptr + from, n - from};
    n += strlen(f->key_end);
    if (f->value) {
        s->n_first = larger(s->n_first, n);
        const size_t at = find_on(within, f->value, &s->n_first, &found);
        if (!found)
            return text.len < most ? 0 : from;
        says = (struct str){text.ptr + n, at - n};
        n = at + strlen(f->value);
    }
    s->types = types_of_value(f, s, key, says, a);
    if (may_wrap(f, s, key, a))
        s->step = STEP_WRAPPED;
    else
        give_key(s, key, a);
    return n;
}

static size_t feed_key(const struct tagged_family *f, struct parser_state *s, struct str text,
                       struct answer *a)
{
    size_t i_found, n = parser_find_first(text, f->inner, &i_found);
    const size_t behind = i_found == SIZE_MAX ? n : n + strlen(f->inner[i_found]);
    if (i_found == 0) {
        const size_t used = feed_key_name(f, s, text, behind, a);
        n = used > 0 ? used : n;
    } else if (i_found != SIZE_MAX) {
        answer_arguments(a, s->i_call, STR("}"));
        s->step = STEP_NEXT;
        n = strcmp(f->inner[i_found], f->close) == 0 ? n : behind;
    }
    s->n_seen -= s->n_seen < n ? s->n_seen : n;
    s->n_first -= s->n_first < n ? s->n_first : n;
    return n;
}

#define CDATA     "<![CDATA["
#define CDATA_END "]]>"

static size_t feed_value(const struct tagged_family *f, struct parser_state *s, struct str text,
                         bool end, struct answer *a)
{
    const size_t at = f->strips ? json_skip_space(text, 0) : 0;
    bool found = false;
    if (at == text.len)
        return at;
    const bool here = f->cdata && parser_find_marker(parser_skip(text, at), CDATA, &found) == 0;
    if (here && !found && !end)
        return 0;
    s->in_list = found; /* true = the value is character data (CDATA) */
    s->n_seen = s->n_first = 0;
    s->value = (struct literal_end){0};
    s->step = s->types != TOOL_STRING ? STEP_OTHER : STEP_STRING;
    if (s->types == TOOL_STRING)
        answer_arguments(a, s->i_call, STR("\""));
    return here && found ? at + strlen(CDATA) : at + (f->trim && text.ptr[0] == '\n');
}

/* Returns the end of a value, which is its end tag. Where the end tag may be missing, the next
 * key or the end of the call ends the value. */
static size_t find_value_end(const struct tagged_family *f, const struct parser_state *s,
                             struct str text, bool *found)
{
    const char *ends[4] = {s->in_list ? CDATA_END : f->value_end};
    size_t i_found;
    if (f->may_lack_end) {
        ends[1] = f->inner[0];
        ends[2] = f->inner[1];
    }
    const size_t at = parser_find_first(text, ends, &i_found);
    *found = i_found != SIZE_MAX;
    return at;
}

/* Returns the length of the white space at the end of a value that may belong to the tags: one
 * newline, or all white space. */
static size_t end_of_tags(const struct tagged_family *f, const struct parser_state *s,
                          struct str value)
{
    size_t n = 0;
    if (f->trim)
        return value.len > 0 && value.ptr[value.len - 1] == '\n';
    while (f->strips && !s->in_list && n < value.len && n < MAX_HELD &&
           json_skip_space((struct str){value.ptr + value.len - n - 1, 1}, 0) == 1)
        n++;
    return n;
}

/* Emits a string as it arrives, except for white space that may be the end of the string. */
static size_t feed_string(const struct tagged_family *f, struct parser_state *s, struct str text,
                          struct answer *a)
{
    bool found;
    const size_t n = find_value_end(f, s, text, &found);
    const size_t n_end = end_of_tags(f, s, (struct str){text.ptr, n});
    literal_give_text(a, s->i_call, (struct str){text.ptr, n - n_end});
    if (!found)
        return n - n_end;
    answer_arguments(a, s->i_call, STR("\""));
    s->step = STEP_PAST;
    return n;
}

static bool is_readable(struct str value)
{
    struct strbuf json;
    strbuf_init(&json, 0);
    const bool ok = json_text_is_whole(value) || literal_read(value, &json);
    strbuf_fini(&json);
    return ok;
}

/* Returns the end of a list or an object, which is the first end tag outside of a string. When
 * the text up to that tag is not a valid value, the end is the first end tag at all. Returns
 * SIZE_MAX when more text is needed. No text is searched twice. */
static size_t find_held_end(const struct tagged_family *f, struct parser_state *s, struct str text,
                            bool end)
{
    for (;;) {
        bool found;
        const struct str rest = parser_skip(text, s->n_seen);
        const size_t n = find_value_end(f, s, rest, &found);
        (void)literal_find_end(&s->value, (struct str){rest.ptr, n}, "");
        s->n_seen += n;
        if (!found)
            return end && s->n_first > 0 ? s->n_first : SIZE_MAX;
        const size_t at = s->n_seen;
        if (!s->value.quote)
            return s->n_first == 0 || is_readable((struct str){text.ptr, at}) ? at : s->n_first;
        s->n_first = s->n_first > 0 ? s->n_first : at;
        (void)literal_find_end(&s->value, (struct str){text.ptr + at, 1}, "");
        s->n_seen++;
    }
}

/* Emits the available part of a list or an object in which the answer has ended. */
static void give_cut_off(struct parser_state *s, struct str text, struct answer *a)
{
    struct json_scan json = {0};
    struct literal_scan literal = {0};
    size_t n;
    text = skip_space(text);
    if (json_scan_feed(&json, text, &n) != JSON_SCAN_BAD)
        answer_arguments(a, s->i_call, (struct str){text.ptr, n});
    else
        (void)literal_scan_feed(&literal, text, NULL, a, s->i_call, &n);
}

/* Emits the value that ended at n. */
static size_t give_value(const struct tagged_family *f, struct parser_state *s, struct str text,
                         size_t n, struct answer *a)
{
    const struct str value = {text.ptr, n};
    s->step = STEP_PAST;
    tool_value_give(a, s->i_call, s->types, (struct str){text.ptr, n - end_of_tags(f, s, value)});
    return n;
}

/* Handles a list or an object. The value is read as a whole: as JSON, as a literal, or as text. */
static size_t feed_held(const struct tagged_family *f, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const size_t n = find_held_end(f, s, text, end);
    if (n != SIZE_MAX)
        return give_value(f, s, text, n, a);
    if (text.len >= MAX_HELD_VALUE) {
        answer_arguments(a, s->i_call, STR("\""));
        s->step = STEP_STRING;
    } else if (end) {
        give_cut_off(s, text, a);
        s->step = STEP_PAST;
        return text.len;
    }
    return 0;
}

/* Handles a value that is not a plain string. The value is emitted at its end. A value that may
 * be a string becomes a string as soon as no other type fits, or when the value is too long to
 * hold. */
static size_t feed_other(const struct tagged_family *f, struct parser_state *s, struct str text,
                         bool end, struct answer *a)
{
    const bool may_be_text = s->types & TOOL_STRING;
    const struct str word = skip_space(text);
    const bool opens = word.len > 0 && (word.ptr[0] == '{' || word.ptr[0] == '[');
    struct str value = held(text);
    bool found;
    if (opens && (!may_be_text || tool_value_may_be_other(s->types, value)))
        return feed_held(f, s, text, end, a);
    value.len = find_value_end(f, s, value, &found);
    const bool is_text = may_be_text && !tool_value_may_be_other(s->types, value);
    if (!found && !is_text && text.len < MAX_HELD)
        return 0;
    if (!found || is_text) {
        answer_arguments(a, s->i_call, STR("\""));
        s->step = STEP_STRING;
        return 0;
    }
    return give_value(f, s, text, value.len, a);
}

/* Emits the members of an object such as {"a": 1} as arguments. */
static bool give_members(struct parser_state *s, struct str text, const json_t *properties,
                         struct answer *a)
{
    json_error_t e;
    json_t *v = text.len > 0 ? json_loadb(text.ptr, text.len, JSON_DECODE_INT_AS_REAL, &e) : NULL;
    bool ok = json_is_object(v);
    const char *key;
    json_t *value;
    json_object_foreach(v, key, value) ok = ok && json_object_get(properties, key);
    if (ok && json_object_size(v) > 0) {
        const char *open = memchr(text.ptr, '{', text.len);
        const size_t from = (size_t)(open - text.ptr) + 1;
        while (text.ptr[text.len - 1] != '}')
            text.len--;
        answer_arguments(a, s->i_call, (struct str){text.ptr + from, text.len - from - 1});
        s->in_object = true;
    }
    json_decref(v);
    return ok;
}

/* Handles a value that may hold all arguments, under a key that is not a parameter of the tool.
 * The value is unwrapped when all its members are parameters of the tool and the call ends after
 * the value. */
static size_t feed_wrapped(const struct tagged_family *f, struct parser_state *s, struct str text,
                           struct answer *a)
{
    const json_t *properties = json_object_get(parameters_of(a, s->i_mark), "properties");
    bool found = false;
    size_t i_next = SIZE_MAX, n = parser_find_marker(text, f->value_end, &found);
    const size_t behind = n + strlen(f->value_end);
    if (found)
        (void)parser_find_first(parser_skip(text, behind), f->inner, &i_next);
    if (i_next == SIZE_MAX && text.len < MAX_HELD_JSON)
        return 0;
    if (i_next != SIZE_MAX && i_next > 0 &&
        give_members(s, (struct str){text.ptr, n}, properties, a)) {
        to_key(s);
        return behind;
    }
    give_key(s, wrappers[s->i_wrapper], a);
    return 0;
}

static size_t feed_past(const struct tagged_family *f, struct parser_state *s, struct str text)
{
    bool found;
    s->in_list = false;
    size_t n = find_value_end(f, s, text, &found), n_end = strlen(f->value_end);
    if (!found)
        return n;
    to_key(s);
    const bool is_end = text.len - n >= n_end && memcmp(text.ptr + n, f->value_end, n_end) == 0;
    return is_end ? n + n_end : n;
}

/* Handles the text after a call: the closing tag, another call between the same tags, or other
 * text. */
static size_t feed_next(const struct tagged_family *f, struct parser_state *s, struct str text,
                        bool end)
{
    const char *const next[] = {f->close, f->name_mark, NULL};
    size_t at = json_skip_space(text, 0), i_found = SIZE_MAX;
    struct str rest = parser_skip(text, at);
    bool here = at <= MAX_HELD && parser_find_first(rest, next, &i_found) == 0;
    if (here && i_found == SIZE_MAX && !end)
        return 0; /* there is no text yet, or only the beginning of a mark */
    s->said = false;
    s->step = STEP_TEXT;
    if (!here || i_found == SIZE_MAX)
        return 0;
    s->step = i_found == 1 ? STEP_HEAD : STEP_TEXT;
    s->in_header = true;
    s->i_mark = NO_TOOL;
    return at + strlen(next[i_found]);
}

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const struct tagged_family *f = p->family;
    switch (s->step) {
    case STEP_TEXT:
        return feed_text(f, s, text, end, a);
    case STEP_HEAD:
        return feed_head(f, s, text, end, a);
    case STEP_SEEK:
        return feed_seek(f, s, text);
    case STEP_KEY:
        return feed_key(f, s, text, a);
    case STEP_VALUE:
        return feed_value(f, s, text, end, a);
    case STEP_STRING:
        return feed_string(f, s, text, a);
    case STEP_OTHER:
        return feed_other(f, s, text, end, a);
    case STEP_PAST:
        return feed_past(f, s, text);
    case STEP_WRAPPED:
        return feed_wrapped(f, s, text, a);
    default:
        return f->seeks ? feed_seek(f, s, text) : feed_next(f, s, text, end);
    }
}

size_t tool_tagged_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}
