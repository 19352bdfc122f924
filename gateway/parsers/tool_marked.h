#pragma once
/* Calls with JSON or literal arguments after a marker: {"name": …, "arguments": {…}}, a list of
 * such objects, or a name followed by its arguments. A `struct marked_family` holds what differs
 * between families. */
#include "gateway/answer/tool_text.h"

struct marked_family {
    struct tool_text text; /* `marks`: n_opens marks that begin a call, then marks to drop */
    size_t n_opens;
    const char *close; /* mark after a call or a list; text before it is dropped; NULL = none */
    const char *const *closes; /* optional marks after a call or a list; NULL = none */
    const char *kept;          /* mark that stays in the content; NULL = none */
    const char *word;          /* optional word after a mark; NULL = none */
    char bare;     /* text that begins with this byte is a call without a mark; 0 = never */
    bool anywhere; /* with `bare` {: any object within text can be a call */
    char between;  /* byte between two objects; 0 = only one object */
    bool follows;  /* another call may follow directly or after a comma */
    bool is_ours;  /* this server's grammar makes the list; an incomplete call is dropped */
    bool named;    /* the name comes before the arguments: [prefix] name [sep …] { */
    const char *prefix, *sep; /* with `named`; NULL = none */
    bool own_id; /* prefix, name, sep and its number are the call's id, which the template needs */
    bool keyed;  /* {"name": {…}}: the only key of an object is the name */
    const char *name_key; /* key of the name in objects; NULL = "name" */
    char bracket;         /* with `named`: opening bracket of literal arguments; 0 = JSON */
    const char *quote;    /* quote of literals (literal_scan.h) */
};

/* For families with `named` and JSON, text that begins with `{` or `[` is still an object or a
 * list. */
size_t tool_marked_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
