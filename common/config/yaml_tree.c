/* Parses a YAML document into a tree of nodes, and appends a node as JSON.
 *
 * Data flow: the caller gives the text and an arena. libyaml turns the text into events. read_node
 * reads the event at hand and calls itself for the children of a map or a list. The nodes and
 * copies of all texts are put on the arena, so the tree does not borrow the caller's text.
 *
 * Invariants: struct reader holds one event at a time, and next() deletes it. libyaml's memory is
 * freed before yaml_tree_parse returns, in case of a failure too. YAML_TREE_DEPTH_MAX bounds the
 * recursion. YAML_TREE_NODES_MAX and the text's length, which the caller has bounded, limit the
 * memory. On failure `*at` is the place of the fault. */
#include "common/config/yaml_tree.h"

#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t yaml;
    yaml_event_t event; /* the current event; deleted by next() */
    struct arena *arena;
    struct yaml_mark *at;
    struct error *err;
    uint32_t n_nodes;
};

static struct yaml_mark mark_of(yaml_mark_t m)
{
    return (struct yaml_mark){(uint32_t)m.line + 1, (uint32_t)m.column + 1};
}

static enum status next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->yaml, &r->event))
        return STATUS_OK;
    memset(&r->event, 0, sizeof r->event);
    *r->at = mark_of(r->yaml.problem_mark);
    return error_set(r->err, STATUS_INVALID, "the file is not valid YAML: %s%s%s",
                     r->yaml.problem ? r->yaml.problem : "?", r->yaml.context ? " " : "",
                     r->yaml.context ? r->yaml.context : "");
}

static enum status complain(struct reader *r, const char *what)
{
    *r->at = mark_of(r->event.start_mark);
    return error_set(r->err, STATUS_INVALID, "%s", what);
}

static enum status new_node(struct reader *r, enum yaml_kind kind, struct yaml_node **out)
{
    struct yaml_node *n = arena_try_array(r->arena, 1, sizeof *n);
    if (!n || r->n_nodes++ == YAML_TREE_NODES_MAX)
        return complain(r, "the file has too many values; split it into several files");
    n->kind = kind;
    n->at = mark_of(r->event.start_mark);
    *out = n;
    return STATUS_OK;
}

static enum status read_text(struct reader *r, struct yaml_node **out)
{
    const char *value = (const char *)r->event.data.scalar.value;
    size_t len = r->event.data.scalar.length;
    if (r->event.data.scalar.anchor || r->event.data.scalar.tag)
        return complain(r, "anchors (&x) and tags (!x) are not supported; write only the value");
    if (memchr(value, '\0', len))
        return complain(r, "the text contains a NUL character; remove it");
    char *copy = arena_try_alloc(r->arena, len + 1);
    if (!copy)
        return complain(r, "the text is too long; shorten it");
    memcpy(copy, value, len + 1);
    TRY(new_node(r, YAML_KIND_TEXT, out));
    (*out)->text = copy;
    (*out)->is_plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return STATUS_OK;
}

static enum status read_node(struct reader *r, uint32_t depth, struct yaml_node **out);

static enum status read_key(struct reader *r, const struct yaml_node *map, struct yaml_node **key)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return complain(r, "expected a key here, as plain text");
    for (const struct yaml_node *c = map->first; c; c = c->next)
        if (strcmp(c->key->text, (const char *)r->event.data.scalar.value) == 0) {
            *r->at = mark_of(r->event.start_mark);
            return error_set(r->err, STATUS_INVALID,
                             "\"%.60s\" is already set in line %u. Remove one of the two",
                             c->key->text, c->key->at.line);
        }
    TRY(read_text(r, key));
    return next(r);
}

static enum status read_children(struct reader *r, struct yaml_node *parent, uint32_t depth)
{
    bool is_map = parent->kind == YAML_KIND_MAP;
    yaml_event_type_t end = is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    struct yaml_node **last = &parent->first;
    for (;;) {
        struct yaml_node *key = NULL;
        TRY(next(r));
        if (r->event.type == end)
            return STATUS_OK;
        if (is_map)
            TRY(read_key(r, parent, &key));
        struct yaml_node *child = NULL;
        TRY(read_node(r, depth + 1, &child));
        child->key = key;
        *last = child;
        last = &child->next;
        parent->n++;
    }
}

static enum status read_node(struct reader *r, uint32_t depth, struct yaml_node **out)
{
    bool is_map = r->event.type == YAML_MAPPING_START_EVENT;
    if (r->event.type == YAML_SCALAR_EVENT)
        return read_text(r, out);
    if (r->event.type == YAML_ALIAS_EVENT)
        return complain(r, "aliases (*x) are not supported; write the value itself");
    if (!is_map && r->event.type != YAML_SEQUENCE_START_EVENT)
        return complain(r, "expected a value here");
    if (is_map ? r->event.data.mapping_start.anchor || r->event.data.mapping_start.tag
               : r->event.data.sequence_start.anchor || r->event.data.sequence_start.tag)
        return complain(r, "anchors (&x) and tags (!x) are not supported; write only the value");
    if (depth == YAML_TREE_DEPTH_MAX)
        return complain(r, "this value is nested too deeply; use fewer levels");
    TRY(new_node(r, is_map ? YAML_KIND_MAP : YAML_KIND_LIST, out));
    return read_children(r, *out, depth);
}

static enum status read_document(struct reader *r, struct yaml_node **root)
{
    do
        TRY(next(r));
    while (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_START_EVENT);
    if (r->event.type == YAML_STREAM_END_EVENT)
        return STATUS_OK;
    TRY(read_node(r, 0, root));
    TRY(next(r)); /* next() moves past the end of the document */
    TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return complain(r, "the file has more than one YAML document; keep only one");
    return STATUS_OK;
}

enum status yaml_tree_parse(struct str text, struct arena *arena, struct yaml_node **root,
                            struct yaml_mark *at, struct error *err)
{
    struct reader r = {.arena = arena, .at = at, .err = err};
    *root = NULL;
    *at = (struct yaml_mark){1, 1};
    if (!yaml_parser_initialize(&r.yaml))
        return error_set(err, STATUS_NO_MEMORY,
                         "cannot read the file: there is not enough memory for the YAML parser");
    yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text.ptr, text.len);
    enum status s = read_document(&r, root);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.yaml);
    return s;
}

bool yaml_node_is_null(const struct yaml_node *n)
{
    return n->kind == YAML_KIND_TEXT && n->is_plain &&
           (!n->text[0] || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}

static const char *digits(const char *s)
{
    while (*s >= '0' && *s <= '9')
        s++;
    return s;
}

/* Returns true when the text is a number in JSON's form. YAML has other forms of numbers, which
 * become texts. */
static bool is_json_number(const char *s)
{
    s += *s == '-';
    const char *end = digits(s);
    if (end == s || (end - s > 1 && *s == '0'))
        return false;
    if (*end == '.') {
        s = end + 1;
        end = digits(s);
        if (end == s)
            return false;
    }
    if (*end == 'e' || *end == 'E') {
        s = end + 1;
        s += *s == '+' || *s == '-';
        end = digits(s);
        if (end == s)
            return false;
    }
    return *end == '\0';
}

static void append_text(const struct yaml_node *n, struct strbuf *out)
{
    bool is_word = n->is_plain && (strcmp(n->text, "true") == 0 || strcmp(n->text, "false") == 0 ||
                                   is_json_number(n->text));
    if (yaml_node_is_null(n))
        strbuf_append_c(out, "null");
    else if (is_word)
        strbuf_append_c(out, n->text);
    else
        strbuf_append_json(out, str_from(n->text));
}

void yaml_node_append_json(const struct yaml_node *n, struct strbuf *out)
{
    if (n->kind == YAML_KIND_TEXT) {
        append_text(n, out);
        return;
    }
    strbuf_append_c(out, n->kind == YAML_KIND_MAP ? "{" : "[");
    for (const struct yaml_node *c = n->first; c; c = c->next) {
        strbuf_append_c(out, c == n->first ? "" : ",");
        if (c->key) {
            strbuf_append_json(out, str_from(c->key->text));
            strbuf_append_c(out, ":");
        }
        yaml_node_append_json(c, out);
    }
    strbuf_append_c(out, n->kind == YAML_KIND_MAP ? "}" : "]");
}
