#pragma once
/* Calls with one tag per argument and plain text in it:
 *   <tool_call> <function=f> <parameter=key> value </parameter> </function> </tool_call>
 * The request's tools define the type of a value (tool_types.h). It is text when the parameter
 * is a string or unknown. Otherwise it is a number, a word, a list or an object, or text when
 * none of these fits. With several types the first that fits is used, so the value is held until
 * only one fits. */
#include "gateway/answer/tool_text.h"

struct tagged_family {
    struct tool_text text;  /* `marks`: opening marks, and name_mark if there is one */
    const char *name_mark;  /* before a name, with or without an opening mark; NULL = none */
    bool seeks;             /* any text may precede name_mark; false = only white space */
    const char *name_close; /* directly after a name, followed by more up to name_end; or NULL */
    const char *name_end;   /* after a name; NULL = the first byte that no name has */
    /* [0] comes before a key; the others (NULL-terminated) end the call */
    const char *const *inner;
    const char *key_end;
    const char *value; /* before the value; NULL = none */
    const char *value_end;
    const char *close; /* end of all calls; in `inner` too, when calls are not grouped */
    bool trim;         /* drop one newline at either end of a value */
    bool strips;       /* drop all white space at either end of a value */
    bool cdata;        /* a value may be in <![CDATA[ and ]]> */
    bool may_lack_end; /* value_end may be missing: the next key or the call's end ends the value */
    /* text between key_end and value that marks a string if the tool states no type; or NULL */
    const char *says;
    bool says_always; /* `says` applies even when the tool states a type */
    bool says_else;   /* without any stated type the value is text; false = its form decides */
    bool unwraps;     /* one argument "arguments" or "input" may hold all of them, as an object */
};

size_t tool_tagged_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
