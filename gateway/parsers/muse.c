/* Parses the messages of Muse. Each message has a header that names the recipient, and a body:
 *   to=self<|message|>…<|eom|><|start|>assistant to=f<|message|><atem:function_calls>
 *   <atem:invoke name="f"><atem:parameter name="a">1</atem:parameter></atem:invoke>
 *   </atem:function_calls><|eom|><|start|>assistant to=user<|message|>…<|eot|>
 * The prompt ends in <|start|>assistant. The recipient decides whether a body is reasoning,
 * content or calls. A call in any other body is text. The next header ends a body too, because
 * models forget the <|eom|>.
 * Invariants: each step consumes text, waits, or switches to a step that does not return before
 * it has consumed. A byte that may begin a mark or a header is never emitted. */
#include "gateway/parsers/muse.h"

#include <ctype.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/answer/answer.h"
#include "gateway/answer/literal_scan.h"
#include "gateway/answer/tool_types.h"

#define MESSAGE   "<|message|>"
#define ENDS      MESSAGE, "<|eom|>", "<|eot|>", "<|start|>"
#define CALLS     "<atem:function_calls>"
#define CALLS_END "</atem:function_calls>"
#define INVOKE    "<atem:invoke"
#define PARAMETER "<atem:parameter"
#define TO        "to="

enum {
    STEP_BEGIN,   /* position: start of the answer, at a header or at text without a header */
    STEP_HEADER,  /* position: before the next <|message|> */
    STEP_UNKNOWN, /* position: in text without a header */
    STEP_REASONING,
    STEP_CONTENT,
    STEP_DROPPED,
    STEP_CALLS,  /* position: between two calls */
    STEP_CALL,   /* position: in a call, between its parameters */
    STEP_STRING, /* position: in a string value */
    STEP_VALUE,  /* position: in a value that is not a string, before the value's end */
};
enum { MAX_BLANKS = 64, MAX_NAME = 256, MAX_TAG = 1024, NO_TOOL = UINT32_MAX };
/* These indexes name the first four marks of each list, and `I_OWN` the first mark after them.
 * The other marks differ from list to list. */
enum { I_MESSAGE, I_EOM, I_EOT, I_START, I_OWN };

struct muse_family {
    /* older models: a missing recipient means the user, and an unknown recipient is a tool */
    bool glimmer;
};

static size_t tool_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);

/* ---- marks and headers ---- */

static bool is_name_byte(char c)
{
    return c != '<' && !isspace((unsigned char)c);
}

/* Returns the start of the to=NAME that ends at n, or n when there is none. With `open`, text
 * may follow, so a partial to=NAME counts too. At most MAX_NAME bytes of a name are searched. */
static size_t addressee_before(struct str text, size_t n, bool open)
{
    static const size_t n_to = sizeof TO - 1;
    size_t from = n;
    while (from > 0 && n - from < MAX_NAME + n_to && is_name_byte(text.ptr[from - 1]))
        from--;
    for (size_t at = from; at + n_to < n; at++)
        if (memcmp(text.ptr + at, TO, n_to) == 0)
            return at;
    for (size_t k = n_to; open && k > 0; k--)
        if (n - from >= k && memcmp(text.ptr + n - k, TO, k) == 0)
            return n - k;
    return n;
}

/* Returns the position of the first mark. For <|message|> the position is the start of its
 * header. When `i_found` is SIZE_MAX there is no mark, and text from the returned position on
 * may become a mark. */
static size_t find_mark(struct str text, const char *const *marks, size_t *i_found)
{
    const size_t n = parser_find_first(text, marks, i_found);
    if (*i_found == SIZE_MAX || *i_found == I_MESSAGE)
        return addressee_before(text, n, *i_found == SIZE_MAX && n == text.len);
    return n;
}

static uint32_t step_of(const struct muse_family *f, struct str name)
{
    if (str_eq_c(name, "self") || (name.len == 0 && !f->glimmer))
        return STEP_REASONING;
    if (name.len == 0 || str_eq_c(name, "user") || (!f->glimmer && str_eq_c(name, "commentary")))
        return STEP_CONTENT;
    return !f->glimmer && str_eq_c(name, "developer") ? STEP_DROPPED : STEP_CALLS;
}

/* Returns true for the parser that reads calls. A tool parser parses everything. A reasoning
 * parser before such a tool parser keeps the framing in its output. A reasoning parser alone
 * treats calls as text. */
static bool is_tool_parser(const struct answer_parser *p)
{
    return p && p->feed == tool_feed;
}

static bool keeps_framing(const struct answer_parser *p, const struct answer *a)
{
    return !is_tool_parser(p) && is_tool_parser(a->rules->tools);
}

static void give_content(const struct answer_parser *p, struct str text, struct answer *a)
{
    if (is_tool_parser(p))
        answer_content(a, text);
    else
        answer_past_reasoning(a, text);
}

/* Begins the body after `header`, which is to=NAME<|message|>. */
static void enter(const struct answer_parser *p, struct parser_state *s, struct str header,
                  struct str name, struct answer *a)
{
    s->step = step_of(p->family, name);
    if (is_tool_parser(p))
        return;
    if (s->step == STEP_REASONING)
        answer_reasoning_again(a);
    else if (keeps_framing(p, a) && s->step != STEP_DROPPED)
        answer_past_reasoning(a, header);
    if (s->step == STEP_CALLS)
        s->step = STEP_CONTENT;
}

/* Leaves a body, after its mark or at the next header. */
static size_t leave(struct parser_state *s, size_t n, size_t i_found, const char *const *marks)
{
    s->step = STEP_HEADER;
    s->n_seen = 0;
    s->in_list = false;
    return i_found == I_MESSAGE ? n : n + strlen(marks[i_found]);
}

/* ---- outside calls ---- */

static size_t feed_header(const struct answer_parser *p, struct parser_state *s, struct str text,
                          struct answer *a)
{
    static const char *const marks[] = {MESSAGE, NULL};
    size_t i_found;
    const size_t n = parser_find_first(text, marks, &i_found);
    const size_t at = addressee_before(text, n, i_found == SIZE_MAX && n == text.len);
    if (i_found == SIZE_MAX)
        return at;
    const struct str name = parser_skip((struct str){text.ptr, n}, at < n ? at + strlen(TO) : n);
    const size_t used = n + strlen(MESSAGE);
    enter(p, s, (struct str){text.ptr + at, used - at}, name, a);
    return used;
}

static size_t feed_begin(struct parser_state *s, struct str text, bool end)
{
    static const char *const marks[] = {MESSAGE, "<|start|>", TO, NULL};
    size_t i_found, n = json_skip_space(text, 0);
    const struct str word = parser_skip(text, n < MAX_BLANKS ? n : 0);
    n = parser_find_first(word, marks, &i_found);
    bool may = n == 0 || (word.len > 0 && json_skip_space(word, 0) == word.len);
    /* ordinary text may begin with to= too, but in a header <|message|> follows the name */
    if (may && i_found == 2) {
        for (n = strlen(TO); n < word.len && n < MAX_NAME && is_name_byte(word.ptr[n]);)
            n++;
        may = parser_find_first(parser_skip(word, n), marks, &i_found) == 0 && n < MAX_NAME &&
              (i_found == I_MESSAGE || i_found == SIZE_MAX);
    }
    if (may && i_found == SIZE_MAX && !end && text.len < MAX_BLANKS + MAX_NAME)
        return 0;
    s->step = may && i_found != SIZE_MAX ? STEP_HEADER : STEP_UNKNOWN;
    return 0;
}

/* Handles a message's body without calls. */
static size_t feed_body(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    static const char *const marks[] = {ENDS, NULL};
    size_t i_found, n = find_mark(text, marks, &i_found);
    if (end && i_found == SIZE_MAX)
        n = text.len;
    if (s->step == STEP_REASONING)
        answer_reasoning(a, (struct str){text.ptr, n});
    else if (s->step != STEP_DROPPED)
        give_content(p, (struct str){text.ptr, n}, a);
    if (i_found == SIZE_MAX)
        return n;
    if (keeps_framing(p, a) && (s->step == STEP_CONTENT || s->step == STEP_UNKNOWN))
        answer_past_reasoning(a, str_from(marks[I_EOM]));
    return leave(s, n, i_found, marks);
}

/* Handles text without a header, for a tool parser. Calls are recognised in such text too. */
static size_t feed_unknown(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    static const char *const marks[] = {ENDS, CALLS, INVOKE, NULL};
    size_t i_found, n = find_mark(text, marks, &i_found);
    if (end && i_found == SIZE_MAX)
        n = text.len;
    answer_content(a, (struct str){text.ptr, n});
    if (i_found == SIZE_MAX)
        return n;
    if (i_found < I_OWN)
        return leave(s, n, i_found, marks);
    s->step = STEP_CALLS;
    s->in_list = true; /* text may continue after the calls */
    return n;
}

/* ---- calls ---- */

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns the position after name=" in a tag. name=" must precede the tag's end and the next
 * tag. Returns 0 when name=" is missing. With `more`, it may still arrive. `n` is the end of the
 * tag's own name. */
static size_t find_name(struct str text, size_t n, bool *more)
{
    static const char key[] = "name=\"";
    struct str head = {text.ptr, n};
    bool found;
    while (head.len < text.len && text.ptr[head.len] != '<' && text.ptr[head.len] != '>')
        head.len++;
    *more = *more && head.len == text.len;
    if (head.len > n && is_word_byte(text.ptr[n]))
        *more = false;
    if (head.len == n || is_word_byte(text.ptr[n]))
        return 0;
    do
        n += parser_find_marker(parser_skip(head, n), key, &found) + found;
    while (found && is_word_byte(text.ptr[n - 2]));
    return found ? n - 1 + strlen(key) : 0;
}

/* Reads the attribute name="…" of the tag at the start of `text`, whose own name has n bytes.
 * Returns the end of the tag. Returns 0 when the text is not such a tag. With `more`, it may
 * still become such a tag. */
static size_t read_tag(struct str text, size_t n, bool end, struct str *name, bool *more)
{
    static const char *const marks[] = {ENDS, NULL};
    size_t i_mark;
    *more = text.len < MAX_TAG && !end;
    if (text.len > MAX_TAG)
        text.len = MAX_TAG;
    bool more_head = *more;
    const size_t from = find_name(text, n, &more_head);
    if (from == 0) {
        *more = more_head;
        return 0;
    }
    struct str rest = parser_skip(text, from);
    rest.len = parser_find_first(rest, marks, &i_mark);
    *more = *more && i_mark == SIZE_MAX;
    const char *quote = rest.len > 0 ? memchr(rest.ptr, '"', rest.len) : NULL;
    if (!quote)
        return 0;
    *name = (struct str){rest.ptr, (size_t)(quote - rest.ptr)};
    const char *close = memchr(quote, '>', rest.len - name->len);
    *more = *more && !close;
    return close && name->len > 0 ? (size_t)(close - text.ptr) + 1 : 0;
}

static uint32_t find_tool(const struct answer *a, struct str name)
{
    for (size_t i = 0; i < json_array_size(a->rules->tool_list); i++) {
        const json_t *f = json_object_get(json_array_get(a->rules->tool_list, i), "function");
        const char *own = json_string_value(json_object_get(f, "name"));
        if (own && str_eq_c(name, own))
            return (uint32_t)i;
    }
    return NO_TOOL;
}

/* Returns the tool's name. The template shows a tool f as f.*, and models write f.f. */
static struct str own_name(const struct answer *a, struct str name)
{
    const size_t half = name.len / 2;
    const struct str head = {name.ptr, half};
    const bool doubled = name.len % 2 == 1 && name.ptr[half] == '.' &&
                         memcmp(name.ptr, name.ptr + half + 1, half) == 0;
    return doubled && find_tool(a, name) == NO_TOOL && find_tool(a, head) != NO_TOOL ? head : name;
}

static size_t feed_calls(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    static const char *const marks[] = {ENDS, CALLS_END, INVOKE, NULL};
    struct str name;
    bool more;
    size_t i_found, n = find_mark(text, marks, &i_found);
    if (i_found < I_OWN)
        return leave(s, n, i_found, marks);
    if (i_found == I_OWN && s->in_list)
        s->step = STEP_UNKNOWN;
    if (i_found == I_OWN)
        return n + strlen(CALLS_END);
    if (i_found == SIZE_MAX || n > 0)
        return n;
    n = read_tag(text, strlen(INVOKE), end, &name, &more);
    if (n == 0)
        return more ? 0 : strlen(INVOKE);
    name = own_name(a, name);
    s->i_wrapper = find_tool(a, name);
    s->i_call = answer_call(a, name);
    answer_arguments(a, s->i_call, STR("{"));
    s->in_object = false; /* no parameter was read yet */
    s->step = STEP_CALL;
    return n;
}

/* Ends a call. A call without an end tag stays open at the end of the body. */
static size_t end_call(struct parser_state *s, size_t n, size_t i_found, const char *const *marks)
{
    if (i_found < I_OWN)
        return leave(s, n, i_found, marks);
    s->step = STEP_CALLS;
    s->n_seen = 0;
    return n + strlen(marks[i_found]);
}

static size_t feed_call(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    static const char *const marks[] = {ENDS, "</atem:invoke>", PARAMETER, NULL};
    struct str key;
    bool more;
    size_t i_found, n = find_mark(text, marks, &i_found);
    if (i_found == I_OWN)
        answer_arguments(a, s->i_call, STR("}"));
    if (i_found <= I_OWN)
        return end_call(s, n, i_found, marks);
    if (i_found == SIZE_MAX || n > 0)
        return n;
    n = read_tag(text, strlen(PARAMETER), end, &key, &more);
    if (n == 0)
        return more ? 0 : strlen(PARAMETER);
    const json_t *tool = json_array_get(a->rules->tool_list, s->i_wrapper);
    s->types = tool_types_of(json_object_get(json_object_get(tool, "function"), "parameters"), key);
    s->step = s->types == TOOL_STRING ? STEP_STRING : STEP_VALUE;
    s->n_seen = 0;
    answer_arguments(a, s->i_call, s->in_object ? STR(", \"") : STR("\""));
    literal_give_text(a, s->i_call, key);
    answer_arguments(a, s->i_call, s->step == STEP_STRING ? STR("\": \"") : STR("\": "));
    s->in_object = true;
    return n;
}

static void give_value(struct answer *a, uint32_t i_call, uint32_t types, struct str value)
{
    if (types == 0 && json_text_is_whole(value))
        answer_arguments(a, i_call, value);
    else
        tool_value_give(a, i_call, types ? types : TOOL_STRING, value);
}

/* Handles a value. A string is emitted as it arrives. Any other value is emitted at its end,
 * when its type is known. When the answer ends within a value, the available part is emitted. */
static size_t feed_value(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    static const char *const marks[] = {ENDS, "</atem:invoke>", "</atem:parameter>", NULL};
    enum { I_CLOSE = I_OWN + 1 };
    const bool is_string = s->step == STEP_STRING;
    size_t i_found, n = s->n_seen + find_mark(parser_skip(text, s->n_seen), marks, &i_found);
    if (end && i_found == SIZE_MAX)
        n = text.len;
    if (i_found == SIZE_MAX && !end && !is_string) {
        s->n_seen = n;
        return 0;
    }
    const struct str value = {text.ptr, n};
    if (is_string)
        literal_give_text(a, s->i_call, value);
    else if (i_found == I_CLOSE)
        give_value(a, s->i_call, s->types, value);
    else
        answer_arguments(a, s->i_call, value);
    if (i_found == SIZE_MAX) {
        s->n_seen = 0;
        return n;
    }
    if (i_found != I_CLOSE)
        return end_call(s, n, i_found, marks);
    if (is_string)
        answer_arguments(a, s->i_call, STR("\""));
    s->step = STEP_CALL;
    s->n_seen = 0;
    return n + strlen(marks[I_CLOSE]);
}

/* ---- the parsers ---- */

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    switch (s->step) {
    case STEP_BEGIN:
        return feed_begin(s, text, end);
    case STEP_HEADER:
        return feed_header(p, s, text, a);
    case STEP_UNKNOWN:
        return is_tool_parser(p) ? feed_unknown(s, text, end, a) : feed_body(p, s, text, end, a);
    case STEP_CALLS:
        return feed_calls(s, text, end, a);
    case STEP_CALL:
        return feed_call(s, text, end, a);
    case STEP_STRING:
    case STEP_VALUE:
        return feed_value(s, text, end, a);
    default:
        return feed_body(p, s, text, end, a);
    }
}

/* Sets the first step. The prompt may have begun a message, and the client may have begun an
 * answer. */
static void muse_init(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                      struct str continued)
{
    const size_t n_mark = strlen(MESSAGE);
    const size_t n = prompt.len > n_mark ? prompt.len - n_mark : 0;
    if (continued.len > 0) {
        s->step = STEP_CONTENT;
    } else if (n > 0 && memcmp(prompt.ptr + n, MESSAGE, n_mark) == 0) {
        const size_t at = addressee_before(prompt, n, false);
        s->step = step_of(p->family,
                          at < n ? (struct str){prompt.ptr + at + strlen(TO), n - at - strlen(TO)}
                                 : STR(""));
        if (s->step == STEP_CALLS && !is_tool_parser(p))
            s->step = STEP_CONTENT;
    }
}

static size_t tool_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}

static size_t reasoning_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                             bool end, struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}

static const char *const markers[] = {ENDS, NULL};
static const struct muse_family muse = {0}, glimmer = {.glimmer = true};

#define READER(n, f, kind)                                                                         \
    {                                                                                              \
        .name = n, .markers = markers, .init = muse_init, .feed = kind##_feed, .family = f         \
    }
const struct answer_parser reasoning_parser_muse = READER("muse", &muse, reasoning);
const struct answer_parser tool_parser_muse = READER("muse", &muse, tool);
const struct answer_parser reasoning_parser_muse_spark = READER("musespark1x", &muse, reasoning);
const struct answer_parser tool_parser_muse_spark = READER("musespark1x", &muse, tool);
const struct answer_parser reasoning_parser_muse_glimmer =
    READER("muse_glimmer", &glimmer, reasoning);
const struct answer_parser tool_parser_muse_glimmer = READER("muse_glimmer", &glimmer, tool);
