#pragma once
/* Parses calls with JSON or literal arguments after a marker: {"name": …, "arguments": {…}}, a
 * list of such objects, or a name followed by its arguments. A `struct marked_family` holds the
 * differences between families. */
#include "gateway/answer/tool_text.h"

struct marked_family {
    struct tool_text text; /* in `marks`: n_opens marks that begin a call, then marks to drop */
    size_t n_opens;
    const char *close; /* mark after a call or a list; text before it is dropped; NULL = none */
    const char *const *closes; /* optional marks after a call or a list; NULL = none */
    const char *kept;          /* mark that stays in the content; NULL = none */
    const char *word;          /* optional word after a mark; NULL = none */
    char bare;     /* text that begins with this byte is a call without a mark; 0 = never */
    bool anywhere; /* with `bare` = '{': any object within text can be a call */
    char between;  /* byte between two objects; 0 = only one object */
    bool follows;  /* true = another call may follow directly or after a comma */
    bool is_ours;  /* a grammar of this server forces the list; an incomplete call is dropped */
    bool named;    /* the name precedes the arguments: [prefix] name [sep …] { */
    const char *prefix, *sep; /* with `named`: texts before and after the name; NULL = none */
    /* the text from the prefix to the number after sep is the call's id, for the template */
    bool own_id;
    bool keyed;           /* the only key of an object is the name of the call: {"name": {…}} */
    const char *name_key; /* key of the call's name in objects; NULL = "name" */
    char bracket;         /* with `named`: opening bracket of literal arguments; 0 = JSON */
    const char *quote;    /* quote of literals (literal_scan.h) */
};

/* Parses the text of a family. For families with `named` and JSON, text that begins with `{` or
 * `[` is still an object or a list. */
size_t tool_marked_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
