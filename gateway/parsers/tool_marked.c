/* Parses calls with JSON or literal arguments after a marker, for all families in tool_parsers.c
 * of that kind.
 * `parser_run` feeds all unconsumed text to the step function. Content is emitted through
 * tool_text.c, and calls and arguments through answer.h.
 * All constants of a family are in `struct marked_family`. The state is `struct parser_state`
 * alone. Arguments are emitted as they arrive. Text before them is held up to NAMED_MAX_HEAD or
 * MAX_BLANK bytes. Text that begins like a call and is not one becomes content, as in vLLM. */
#include "gateway/parsers/tool_marked.h"

#include <ctype.h>
#include <string.h>

#include "gateway/answer/answer.h"
#include "gateway/answer/literal_arguments.h"
#include "gateway/answer/literal_scan.h"

/* `STEP_REST` is in members of the object after its arguments. `STEP_NEXT` is before another
 * object, or the end of a list. `STEP_AFTER` is before the closing marker. `STEP_OBJECT` is in
 * an object within the text that is not a call. */
enum {
    STEP_START,
    STEP_TEXT,
    STEP_HEAD,
    STEP_ARGUMENTS,
    STEP_REST,
    STEP_NEXT,
    STEP_AFTER,
    STEP_OBJECT,
};

enum { NO_MARK = UINT32_MAX, NAMED_MAX_HEAD = 512, MAX_BLANK = 512 };

static const char *const argument_keys[] = {"arguments", "parameters", NULL};

static size_t feed_start(const struct marked_family *f, struct parser_state *s, struct str text,
                         bool end)
{
    size_t at = json_skip_space(text, 0);
    if (f->bare && at == text.len && at <= MAX_BLANK && !end)
        return 0;
    const bool begins = f->bare && at < text.len && at <= MAX_BLANK && text.ptr[at] == f->bare;
    s->step = begins ? STEP_HEAD : STEP_TEXT;
    s->i_mark = NO_MARK;
    return 0;
}

/* Returns the position where the object of a call may begin within text; text.len = none. */
static size_t find_object(const struct marked_family *f, struct str text)
{
    const char *at = f->anywhere && text.len > 0 ? memchr(text.ptr, f->bare, text.len) : NULL;
    return at ? (size_t)(at - text.ptr) : text.len;
}

static size_t feed_text(const struct marked_family *f, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const size_t object = find_object(f, text);
    size_t i_mark;
    if (object == 0 && text.len > 0) {
        s->step = STEP_HEAD;
        s->i_mark = NO_MARK;
        return 0;
    }
    const bool before_object = object < text.len;
    text.len = object;
    if (before_object && a->n_calls > 0 && tool_text_hold(s, text))
        return object;
    const size_t n = tool_text_feed(&f->text, s, text, end || before_object, a, &i_mark);
    if (i_mark == SIZE_MAX)
        return n;
    if (i_mark >= f->n_opens) {
        s->said = false;
        return n;
    }
    s->step = STEP_HEAD;
    s->i_mark = (uint32_t)i_mark;
    if (f->kept && strcmp(f->text.marks[i_mark], f->kept) == 0) {
        tool_text_refuse(s, f->kept, a);
        s->i_mark = NO_MARK;
    }
    return n;
}

/* Handles text that begins like a call and is not a call. The text becomes content with its
 * marker, as in vLLM. An object becomes content as a whole. */
static void refuse_call(const struct marked_family *f, struct parser_state *s, struct answer *a)
{
    const bool object = s->i_mark == NO_MARK && f->anywhere && !s->in_list;
    tool_text_refuse(s, s->i_mark != NO_MARK ? f->text.marks[s->i_mark] : NULL, a);
    s->step = object ? STEP_OBJECT : STEP_TEXT;
    s->json = (struct json_scan){0};
}

/* Begins a call. `id` is empty when the model gave no id. */
static void begin_call(struct parser_state *s, struct str name, struct str id, bool object,
                       struct answer *a)
{
    s->i_call = id.len > 0 ? answer_call_of_id(a, name, id) : answer_call(a, name);
    s->n_blanks = 0;
    s->in_object = object;
    s->step = STEP_ARGUMENTS;
    s->json = (struct json_scan){0};
    s->literal = (struct literal_scan){0};
    s->arguments = (struct literal_arguments){0};
}

static bool starts_with(struct str s, const char *start)
{
    size_t n = strlen(start);
    return s.len >= n && memcmp(s.ptr, start, n) == 0;
}

static bool is_name_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.' || c == '/';
}

/* Returns the name in the text before the arguments. Returns an empty text when that text is not
 * the beginning of a call. */
static struct str name_in_head(const struct marked_family *f, struct str head)
{
    head = parser_skip(head, json_skip_space(head, 0));
    if (f->prefix && starts_with(head, f->prefix))
        head = parser_skip(head, strlen(f->prefix));
    struct str name = {head.ptr, 0};
    while (name.len < head.len && is_name_byte(head.ptr[name.len]))
        name.len++;
    head = parser_skip(head, name.len);
    head = parser_skip(head, json_skip_space(head, 0));
    if (head.len > 0 && !(f->sep && starts_with(head, f->sep)))
        name.len = 0;
    return name;
}

/* Returns the id in a call's beginning with this name, such as functions.f:0 or f:0. Returns an
 * empty text when there is no id. */
static struct str own_id(const struct marked_family *f, struct str head, struct str name)
{
    const size_t n_prefix = f->prefix ? strlen(f->prefix) : 0;
    const size_t at = (size_t)(name.ptr - head.ptr);
    size_t n = at + name.len;
    if (!f->own_id || !starts_with(parser_skip(head, n), f->sep))
        return STR("");
    const bool prefixed = at >= n_prefix && memcmp(name.ptr - n_prefix, f->prefix, n_prefix) == 0;
    const size_t from = prefixed ? at - n_prefix : at;
    n += strlen(f->sep);
    while (n < head.len && isdigit((unsigned char)head.ptr[n]))
        n++;
    return (struct str){head.ptr + from, n - from};
}

/* Returns 1 when the literals begin with a key or are empty, else 0. Returns SIZE_MAX when more
 * text is needed. */
static size_t literals_begin(struct str text)
{
    size_t at = json_skip_space(text, 0), n = at;
    while (n < text.len && is_name_byte(text.ptr[n]))
        n++;
    size_t behind = json_skip_space(text, n);
    if (behind == text.len)
        return SIZE_MAX;
    char c = text.ptr[behind];
    return n > at ? c == '=' || c == ':' : c == ')' || c == '}';
}

/* Handles a name before its arguments. If the family has a list, its bracket was read before. */
static size_t feed_named(const struct marked_family *f, struct parser_state *s, struct str text,
                         bool end, struct answer *a)
{
    size_t n = text.len < NAMED_MAX_HEAD ? text.len : NAMED_MAX_HEAD, begins = 1;
    bool cut = n < NAMED_MAX_HEAD && !end;
    const char *bracket = n > 0 ? memchr(text.ptr, f->bracket ? f->bracket : '{', n) : NULL;
    struct str name = {0}, head = {0};
    if (bracket && f->bracket)
        begins = literals_begin((struct str){bracket + 1, n - 1 - (size_t)(bracket - text.ptr)});
    if ((!bracket || begins == SIZE_MAX) && cut)
        return 0;
    if (bracket && begins == 1)
        head = (struct str){text.ptr, (size_t)(bracket - text.ptr)};
    if (head.len > 0)
        name = name_in_head(f, head);
    if (name.len > 0)
        begin_call(s, name, own_id(f, head, name), false, a);
    else
        refuse_call(f, s, a);
    return name.len > 0 ? (size_t)(bracket - text.ptr) : 0;
}

/* Handles calls with literal arguments. The bracket of a list is consumed when the first call is
 * valid. */
static size_t feed_literal(const struct marked_family *f, struct parser_state *s, struct str text,
                           bool end, struct answer *a)
{
    size_t at = json_skip_space(text, 0);
    bool list = !s->in_list && at < text.len && text.ptr[at] == '[';
    at += list;
    size_t n = feed_named(f, s, parser_skip(text, at), end, a);
    if (s->step != STEP_ARGUMENTS)
        return 0;
    s->in_list = s->in_list || list;
    return at + n;
}

/* Returns the position after white space and the optional word after a mark. Returns SIZE_MAX
 * when more text is needed. */
static size_t skip_word(const struct marked_family *f, const struct parser_state *s,
                        struct str text, bool end)
{
    const size_t at = json_skip_space(text, 0);
    const struct str rest = parser_skip(text, at);
    bool found = false;
    if (at == text.len)
        return end ? at : SIZE_MAX;
    if (!f->word || s->i_mark == NO_MARK || parser_find_marker(rest, f->word, &found) != 0)
        return at;
    if (!found)
        return end ? at : SIZE_MAX;
    const size_t behind = json_skip_space(text, at + strlen(f->word));
    return behind < text.len || end ? behind : SIZE_MAX;
}

/* Handles a call up to its arguments. An object without arguments is a call only after a mark or
 * within a list. Elsewhere such an object is ordinary JSON with a name in it. */
static size_t feed_head(const struct marked_family *f, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    struct json_call call = {0};
    size_t at = skip_word(f, s, text, end);
    if (at > MAX_BLANK && (at < SIZE_MAX || text.len > MAX_BLANK)) {
        refuse_call(f, s, a);
        return 0;
    }
    if (at == SIZE_MAX)
        return 0;
    if (f->bracket)
        return feed_literal(f, s, text, end, a);
    if (f->named && at < text.len && text.ptr[at] != '{' && text.ptr[at] != '[')
        return feed_named(f, s, text, end, a);
    bool list = at < text.len && text.ptr[at] == '[' && !s->in_list;
    if (list)
        at = json_skip_space(text, at + 1);
    if (list && at > (size_t)2 * MAX_BLANK) {
        refuse_call(f, s, a);
        return 0;
    }
    const struct str object = parser_skip(text, at);
    enum json_call_result res =
        f->keyed ? json_keyed_call_parse(&s->head, object, &call)
                 : json_call_parse(&s->head, object, f->name_key ? f->name_key : "name",
                                   argument_keys, &call);
    if (res == JSON_CALL_MORE && !end)
        return 0;
    s->head = (struct json_head){0};
    if (res == JSON_CALL_MORE && f->is_ours)
        return text.len;
    const bool known = s->i_mark != NO_MARK || s->in_list || a->n_calls > 0;
    if (res != JSON_CALL_BEGUN && !(res == JSON_CALL_BARE && known)) {
        refuse_call(f, s, a);
        return 0;
    }
    s->in_list = s->in_list || list;
    begin_call(s, call.name, STR(""), true, a);
    if (res == JSON_CALL_BARE) {
        answer_arguments(a, s->i_call, STR("{}"));
        s->step = STEP_NEXT;
    }
    return at + call.arguments;
}

static size_t feed_arguments(struct parser_state *s, struct str text, struct answer *a)
{
    size_t n = 0;
    enum json_scan_result res = json_scan_feed(&s->json, text, &n);
    answer_arguments(a, s->i_call, (struct str){text.ptr, n});
    if (res == JSON_SCAN_DONE && s->in_object) {
        s->step = STEP_REST;
        /* the scan continues inside the call's object */
        s->json = (struct json_scan){.begun = true, .depth = 1};
    } else if (res != JSON_SCAN_MORE) {
        s->step = STEP_AFTER;
    }
    return n;
}

/* Emits a word at the end of the answer. The word is complete unless the answer was cut off. */
static void give_last_word(const struct marked_family *f, struct parser_state *s, struct str word,
                           struct answer *a)
{
    char text[LITERAL_MAX_WORD + 1];
    size_t n = 0;
    if (a->is_cut || word.len == 0 || word.len >= sizeof text)
        return;
    memcpy(text, word.ptr, word.len);
    text[word.len] = ',';
    (void)literal_scan_feed(&s->literal, (struct str){text, word.len + 1}, f->quote, a, s->i_call,
                            &n);
}

static size_t feed_literals(const struct marked_family *f, struct parser_state *s, struct str text,
                            bool end, struct answer *a)
{
    size_t n = 0;
    const enum literal_result res =
        f->bracket == '(' ? literal_arguments_feed(&s->arguments, text, end, a, s->i_call, &n)
                          : literal_scan_feed(&s->literal, text, f->quote, a, s->i_call, &n);
    if (res != LITERAL_MORE)
        s->step = res == LITERAL_DONE ? STEP_NEXT : STEP_AFTER;
    else if (end && f->bracket != '(')
        give_last_word(f, s, parser_skip(text, n), a);
    return n;
}

static size_t feed_rest(struct parser_state *s, struct str text)
{
    size_t n = 0;
    enum json_scan_result res = json_scan_feed(&s->json, text, &n);
    if (res != JSON_SCAN_MORE)
        s->step = res == JSON_SCAN_DONE ? STEP_NEXT : STEP_AFTER;
    return n;
}

/* Returns the start of the next object, list or name after a call or a list, with or without a
 * comma. Returns SIZE_MAX when more text is needed, and text.len when anything else follows.
 * `at` is the position after white space. */
static size_t find_follower(const struct marked_family *f, struct str text, size_t at)
{
    const bool comma = text.ptr[at] == ',';
    const size_t next = comma ? json_skip_space(text, at + 1) : at;
    if (next == text.len)
        return next - at <= MAX_BLANK ? SIZE_MAX : text.len;
    const char c = text.ptr[next];
    return c == '[' || (f->named ? is_name_byte(c) : c == '{') ? next : text.len;
}

static size_t feed_next(const struct marked_family *f, struct parser_state *s, struct str text,
                        bool end)
{
    const size_t at = json_skip_space(text, 0);
    char more = f->between;
    if (s->in_list)
        more = ',';
    const bool follows = f->follows && !s->in_list, here = at < text.len && at <= MAX_BLANK;
    const size_t next = follows && here ? find_follower(f, text, at) : text.len;
    if (at == text.len && at <= MAX_BLANK && (more || follows))
        return 0;
    if (next == SIZE_MAX && !end)
        return 0;
    s->step = STEP_AFTER;
    if (!here)
        return 0;
    const bool parted = more && text.ptr[at] == more;
    if (next < text.len || parted) {
        s->step = STEP_HEAD;
        s->i_mark = NO_MARK;
        return next < text.len ? next : at + 1;
    }
    if (!s->in_list || text.ptr[at] != ']')
        return 0;
    s->in_list = !f->follows;
    s->step = f->follows ? STEP_NEXT : STEP_AFTER;
    return at + 1;
}

/* Handles an optional closing marker after a call. */
static size_t feed_closes(const struct marked_family *f, struct parser_state *s, struct str text,
                          bool end)
{
    const size_t at = json_skip_space(text, 0);
    const struct str rest = parser_skip(text, at);
    size_t i_close;
    const bool here = parser_find_first(rest, f->closes, &i_close) == 0 && rest.len > 0;
    const bool near = at <= MAX_BLANK;
    if (near && (rest.len == 0 || (here && i_close == SIZE_MAX)) && !end)
        return 0;
    s->step = STEP_TEXT;
    s->said = s->in_list = false;
    return near && here && i_close != SIZE_MAX ? at + strlen(f->closes[i_close]) : 0;
}

/* Handles the text after a call. A call without a closing marker ends where the next call
 * begins. */
static size_t feed_after(const struct marked_family *f, struct parser_state *s, struct str text,
                         bool end)
{
    size_t n = 0, i_mark = SIZE_MAX, n_close = 0;
    bool found = true;
    if (f->closes)
        return feed_closes(f, s, text, end);
    if (f->close) {
        n_close = strlen(f->close);
        n = parser_find_marker(text, f->close, &found);
        size_t next = parser_find_first(text, f->text.marks, &i_mark);
        if (next < n) {
            n = next;
            n_close = 0;
            found = i_mark != SIZE_MAX;
        }
    }
    if (!found)
        return n;
    s->step = STEP_TEXT;
    s->said = s->in_list = false;
    return n + n_close;
}

/* Emits an object as content, up to its end. */
static size_t feed_object(const struct marked_family *f, struct parser_state *s, struct str text,
                          struct answer *a)
{
    size_t at = json_skip_space(text, 0), n = 0;
    enum json_scan_result res = JSON_SCAN_BAD;
    if (at == text.len) {
        answer_content(a, text);
        return text.len;
    }
    if (s->json.begun || text.ptr[at] == f->bare) {
        at = s->json.begun ? 0 : at;
        res = json_scan_feed(&s->json, parser_skip(text, at), &n);
        answer_content(a, (struct str){text.ptr, at + n});
        n += at;
    }
    if (res != JSON_SCAN_MORE)
        s->step = STEP_TEXT;
    return n;
}

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const struct marked_family *f = p->family;
    switch (s->step) {
    case STEP_START:
        return feed_start(f, s, text, end);
    case STEP_TEXT:
        return feed_text(f, s, text, end, a);
    case STEP_HEAD:
        return feed_head(f, s, text, end, a);
    case STEP_ARGUMENTS:
        return f->bracket ? feed_literals(f, s, text, end, a) : feed_arguments(s, text, a);
    case STEP_REST:
        return feed_rest(s, text);
    case STEP_NEXT:
        return feed_next(f, s, text, end);
    case STEP_OBJECT:
        return feed_object(f, s, text, a);
    default:
        return feed_after(f, s, text, end);
    }
}

size_t tool_marked_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}
