/* Parses MiniMax M3's calls: arguments are elements in tags, possibly nested, each tag after a
 * marker.
 * `parser_run` feeds all unconsumed text. A call is held until its end, because a repeated
 * element becomes a list. Then its elements are read into a tree and written as JSON by the
 * tool's schema.
 * The tree lives only during `give_arguments`. Depth is bounded by MAX_DEPTH; deeper text stays
 * unchanged. `s->i_wrapper` counts the bytes of the held call that were searched, so no byte is
 * searched twice. */
#include "gateway/parsers/tool_elements.h"

#include <string.h>

#include "gateway/answer/answer.h"
#include "gateway/answer/literal_scan.h"
#include "gateway/answer/tool_text.h"
#include "gateway/answer/tool_types.h"

#define NS "]<]minimax[>["

/* `STEP_TEXT` is in content, and `STEP_SEEK` before a call or the end of all calls. `STEP_NAME`
 * is at a call's name. `STEP_BODY` is in the arguments. `s->i_wrapper` bytes of the arguments
 * were searched. */
enum { STEP_TEXT, STEP_SEEK, STEP_NAME, STEP_BODY };
enum { MAX_NAME = 256, MAX_DEPTH = 32 };

static const char *const opens[] = {NS "<tool_call>", NULL};
static const char *const next[] = {NS "<invoke name=", NS "</tool_call>", NULL};
static const char end_of_call[] = NS "</invoke>";

/* ---- elements: a text, or {"named": {name: [element …]}, "all": [element …]} ---- */

static bool starts_with(struct str s, const char *start)
{
    const size_t n = strlen(start);
    return s.len >= n && memcmp(s.ptr, start, n) == 0;
}

/* Returns the name in <name> at the start of text, after the marker. Returns an empty text when
 * there is no such tag. */
static struct str read_tag(struct str text)
{
    const char *end = text.len > 1 ? memchr(text.ptr, '>', text.len) : NULL;
    if (!end || text.ptr[0] != '<' || text.ptr[1] == '/' || end - text.ptr > MAX_NAME)
        return STR("");
    return (struct str){text.ptr + 1, (size_t)(end - text.ptr) - 1};
}

static void add_child(json_t *node, struct str name, json_t *child)
{
    json_t *named = json_object_get(node, "named");
    json_t *list = json_object_getn(named, name.ptr, name.len);
    if (!list) {
        list = json_array();
        json_object_setn_new_nocheck(named, name.ptr, name.len, list);
    }
    json_array_append(list, child);
    json_array_append_new(json_object_get(node, "all"), child);
}

static json_t *new_node(void)
{
    return json_pack("{s:{}, s:[]}", "named", "all");
}

/* Reads an element that is nested too deep. Returns its text unchanged, up to its closing tag. */
static json_t *read_raw(struct str *text, struct str name)
{
    size_t at = 0;
    for (uint32_t depth = 1;;) {
        bool found;
        const size_t n = at + parser_find_marker(parser_skip(*text, at), NS, &found);
        if (!found)
            return NULL;
        at = n + strlen(NS);
        const struct str rest = parser_skip(*text, at);
        const size_t slash = starts_with(rest, "</");
        const bool same = rest.len > name.len + 1 + slash && rest.ptr[0] == '<' &&
                          memcmp(rest.ptr + 1 + slash, name.ptr, name.len) == 0 &&
                          rest.ptr[name.len + 1 + slash] == '>';
        if (same && (depth = slash ? depth - 1 : depth + 1) == 0) {
            json_t *all = json_stringn_nocheck(n > 0 ? text->ptr : "", n);
            *text = parser_skip(rest, name.len + 3);
            return all;
        }
    }
}

/* Reads one element after its marker. Returns a new reference and moves `text` past the element.
 * Returns NULL when the element is malformed or incomplete. */
static json_t *read_element(struct str *text, struct str *name, uint32_t depth)
{
    *name = read_tag(*text);
    if (name->len == 0)
        return NULL;
    struct str rest = parser_skip(*text, name->len + 2);
    if (depth == MAX_DEPTH) {
        json_t *raw = read_raw(&rest, *name);
        *text = rest;
        return raw;
    }
    json_t *node = NULL, *own = json_stringn_nocheck("", 0);
    struct strbuf body;
    bool found = true, ok = false;
    strbuf_init(&body, 0);
    while (found) {
        const size_t n = parser_find_marker(rest, NS, &found);
        strbuf_append_str(&body, (struct str){rest.ptr, n});
        rest = parser_skip(rest, found ? n + strlen(NS) : rest.len);
        const bool closes = starts_with(rest, "</") && rest.len > name->len + 2 &&
                            memcmp(rest.ptr + 2, name->ptr, name->len) == 0 &&
                            rest.ptr[name->len + 2] == '>';
        if (!found || closes) {
            ok = found;
            rest = ok ? parser_skip(rest, name->len + 3) : rest;
            break;
        }
        struct str child_name;
        json_t *child = read_element(&rest, &child_name, depth + 1);
        if (!child)
            break;
        node = node ? node : new_node();
        add_child(node, child_name, child);
    }
    const struct str said = strbuf_str(&body);
    json_decref(own);
    own = json_stringn_nocheck(said.len ? said.ptr : "", said.len);
    if (node && json_skip_space(said, 0) < said.len)
        add_child(node, STR("$text"), json_incref(own));
    strbuf_fini(&body);
    *text = rest;
    if (!ok) {
        json_decref(node);
        node = NULL;
    } else if (!node) {
        node = json_incref(own);
    }
    json_decref(own);
    return node;
}

/* ---- writing JSON ---- */

struct writer {
    struct answer *a;
    const json_t *root; /* schema of the tool */
    uint32_t i_call;
};

static void put(const struct writer *w, struct str text)
{
    answer_arguments(w->a, w->i_call, text);
}

static void put_element(const struct writer *w, const json_t *element, const json_t *schema);

static void put_list(const struct writer *w, const json_t *list, const json_t *schema)
{
    put(w, STR("["));
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i > 0)
            put(w, STR(", "));
        put_element(w, json_array_get(list, i), schema);
    }
    put(w, STR("]"));
}

/* Writes an object. A name that occurs more than once becomes a list. */
static void put_object(const struct writer *w, const json_t *named, const json_t *schema)
{
    const char *key;
    json_t *list;
    bool first = true;
    put(w, STR("{"));
    json_object_foreach((json_t *)named, key, list)
    {
        json_t *own = tool_property_of(w->root, schema, str_from(key));
        put(w, first ? STR("\"") : STR(", \""));
        literal_give_text(w->a, w->i_call, str_from(key));
        put(w, STR("\": "));
        if (json_array_size(list) == 1)
            put_element(w, json_array_get(list, 0), own);
        else
            put_list(w, list, own);
        json_decref(own);
        first = false;
    }
    put(w, STR("}"));
}

static void put_element(const struct writer *w, const json_t *element, const json_t *schema)
{
    const uint32_t types = tool_types_of_schema(w->root, schema);
    const bool is_list = types & TOOL_ARRAY, is_map = types & TOOL_OBJECT;
    if (!json_is_string(element)) {
        json_t *items = is_list ? tool_items_of(w->root, schema) : NULL;
        if (is_list)
            put_list(w, json_object_get(element, "all"), items);
        else
            put_object(w, json_object_get(element, "named"), schema);
        json_decref(items);
        return;
    }
    const struct str text = {json_string_value(element), json_string_length(element)};
    if ((is_list || is_map) && !(types & TOOL_STRING) && json_skip_space(text, 0) == text.len)
        put(w, is_list ? STR("[]") : STR("{}"));
    else
        tool_value_give(w->a, w->i_call, types ? types : TOOL_STRING, text);
}

/* ---- steps ---- */

static const json_t *parameters_of(const struct answer *a, struct str name)
{
    for (size_t i = 0; i < json_array_size(a->rules->tool_list); i++) {
        const json_t *tool = json_array_get(a->rules->tool_list, i);
        const json_t *f = json_object_get(tool, "function");
        const char *own = json_string_value(json_object_get(f, "name"));
        if (own && str_eq_c(name, own))
            return json_object_get(f, "parameters");
    }
    return NULL;
}

/* Writes the arguments of a call, as far as they have arrived. */
static void give_arguments(struct parser_state *s, struct str body, struct answer *a)
{
    const json_t *tool = json_array_get(a->rules->tool_list, s->i_mark);
    const json_t *root = json_object_get(json_object_get(tool, "function"), "parameters");
    const struct writer w = {a, root, s->i_call};
    json_t *all = new_node();
    while ((body = parser_skip(body, json_skip_space(body, 0))), starts_with(body, NS)) {
        struct str name;
        body = parser_skip(body, strlen(NS));
        json_t *element = read_element(&body, &name, 1);
        if (!element)
            break;
        add_child(all, name, element);
    }
    put_object(&w, json_object_get(all, "named"), root);
    json_decref(all);
}

static uint32_t find_tool(const struct answer *a, struct str name)
{
    const json_t *parameters = parameters_of(a, name);
    for (size_t i = 0; parameters && i < json_array_size(a->rules->tool_list); i++) {
        const json_t *f = json_object_get(json_array_get(a->rules->tool_list, i), "function");
        if (json_object_get(f, "parameters") == parameters)
            return (uint32_t)i;
    }
    return UINT32_MAX;
}

/* Reads the name of a call: "f"> or 'f'> or f>. */
static size_t feed_name(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    const struct str within = {text.ptr, text.len < MAX_NAME ? text.len : MAX_NAME};
    const char *close = within.len ? memchr(within.ptr, '>', within.len) : NULL;
    if (!close && !end && text.len < MAX_NAME)
        return 0;
    struct str name = {text.ptr, close ? (size_t)(close - text.ptr) : 0};
    const size_t n = name.len;
    if (n >= 2 && (name.ptr[0] == '"' || name.ptr[0] == '\'') && name.ptr[n - 1] == name.ptr[0])
        name = (struct str){name.ptr + 1, n - 2};
    s->step = STEP_SEEK;
    if (name.len == 0)
        return 0;
    s->i_call = answer_call(a, name);
    s->i_mark = find_tool(a, name);
    s->i_wrapper = 0;
    s->step = STEP_BODY;
    return n + 1;
}

static size_t feed_body(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    bool found;
    const size_t at =
        s->i_wrapper + parser_find_marker(parser_skip(text, s->i_wrapper), end_of_call, &found);
    if (!found && !end) {
        s->i_wrapper = (uint32_t)at;
        return 0;
    }
    give_arguments(s, (struct str){text.ptr, found ? at : text.len}, a);
    s->step = STEP_SEEK;
    return found ? at + strlen(end_of_call) : text.len;
}

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    static const struct tool_text content = {.marks = opens, .last = true};
    size_t i_found = SIZE_MAX, n;
    (void)p;
    switch (s->step) {
    case STEP_TEXT:
        n = tool_text_feed(&content, s, text, end, a, &i_found);
        if (i_found != SIZE_MAX)
            s->step = STEP_SEEK;
        return n;
    case STEP_SEEK:
        n = parser_find_first(text, next, &i_found);
        if (i_found == SIZE_MAX)
            return n;
        s->step = i_found == 0 ? STEP_NAME : STEP_TEXT;
        s->said = false;
        return n + strlen(next[i_found]);
    case STEP_NAME:
        return feed_name(s, text, end, a);
    default:
        return feed_body(s, text, end, a);
    }
}

static size_t feed(const struct answer_parser *p, struct parser_state *s, struct str text, bool end,
                   struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}

static const char *const markers[] = {NS, NULL};

const struct answer_parser tool_parser_minimax_m3 = {
    .name = "minimax_m3", .markers = markers, .feed = feed};
