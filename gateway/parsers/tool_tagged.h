#pragma once
/* Parses calls with one tag per argument and plain text in it:
 *   <tool_call> <function=f> <parameter=key> value </parameter> </function> </tool_call>
 * The request's tools define the type of a value (tool_types.h). The value is text when the
 * parameter is a string or unknown. Otherwise it is a number, a word, a list or an object, or
 * text when none of these fits. With several types the first type that fits is used, so the
 * value is held until only one type fits. */
#include "gateway/answer/tool_text.h"

struct tagged_family {
    struct tool_text text; /* in `marks`: opening marks, and name_mark if there is one */
    const char *name_mark; /* text before a name, with or without an opening mark; NULL = none */
    bool seeks;            /* any text may precede name_mark; false = only white space */
    /* text directly after a name, followed by more text up to name_end; or NULL */
    const char *name_close;
    const char *name_end; /* text after a name; NULL = the first byte that no name has */
    /* Marks within a call, NULL-terminated. The mark [0] precedes a key, and all others end the
     * call. */
    const char *const *inner;
    const char *key_end;
    const char *value; /* text before the value; NULL = none */
    const char *value_end;
    /* mark at the end of all calls; in `inner` too, when calls are not grouped */
    const char *close;
    bool trim;         /* true = drop one newline at either end of a value */
    bool strips;       /* true = drop all white space at either end of a value */
    bool cdata;        /* true = a value may be between <![CDATA[ and ]]> */
    bool may_lack_end; /* value_end may be missing: the next key or the call's end ends the value */
    /* text between key_end and value that marks a string when the tool states no type; or NULL */
    const char *says;
    bool says_always; /* true = `says` applies even when the tool states a type */
    bool says_else;   /* true = a value without any stated type is text; false = its form decides */
    /* true = one argument "arguments" or "input" may hold all arguments, as an object */
    bool unwraps;
};

size_t tool_tagged_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
