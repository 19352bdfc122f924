#pragma once
/* Calls whose arguments are JSON or literals, behind a marker: {"name": …, "arguments": {…}}, a
 * list of such objects, or the name and then its arguments. What families differ in is a struct
 * marked_family.
 */
#include "gateway/answer/tool_text.h"

struct marked_family {
    struct tool_text text; /* marks: n_opens that each begin a call, then what is dropped around */
    size_t n_opens;
    const char *close; /* behind a call or a list; what precedes it is dropped. NULL: nothing */
    const char *const *closes; /* any of them may follow a call or a list; NULL: none */
    const char *kept;          /* a mark that stays in the content; NULL: none does */
    const char *word;          /* may follow a mark; NULL: nothing */
    char bare;     /* text that begins with this byte is a call without a marker; 0: it is not */
    bool anywhere; /* with bare {: an object in the midst of text is a call, too, if it is one */
    char between;  /* behind this byte another object may follow; 0: it may not */
    bool follows;  /* another may follow at once, or behind a comma */
    bool is_ours;  /* a grammar of this server's makes the list: what breaks off is nobody's text */
    bool named; /* the name comes before the arguments, not in an object: [prefix] name [sep …] { */
    const char *prefix, *sep; /* with named; NULL: there is none */
    bool own_id; /* prefix, name and sep with its number are the call's id: the template wants it */
    bool keyed;  /* {"name": {…}}: the one key of an object is the name */
    const char *name_key; /* of objects; NULL: "name" */
    char bracket;      /* with named: arguments are literals that begin with it; 0: they are JSON */
    const char *quote; /* of literals (literal_scan.h) */
};

/* Of JSON with names before it, too, `{` or `[` begins an object or a list. */
size_t tool_marked_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
