#pragma once
/* Calls whose arguments come one by one between tags, as plain text:
 *
 *   <tool_call> <function=f> <parameter=key> value </parameter> </function> </tool_call>
 *
 * What a value is, the request's tools say (tool_types.h): text where the parameter is a string, or
 * unknown; else a number, a word, a list or an object, and text where it is none of these. Of
 * several types it is the first that it can be, and so held until it can be only one of them. */
#include "gateway/answer/tool_text.h"

struct tagged_family {
    struct tool_text text;    /* marks: what opens, and name_mark where there is one */
    const char *name_mark;    /* before a name, behind what opens or by itself; NULL: nothing is */
    bool seeks;               /* anything may stand before name_mark; else only white space */
    const char *name_close;   /* at once behind a name, and more up to name_end; NULL: nothing is */
    const char *name_end;     /* behind a name; NULL: what is no part of one */
    const char *const *inner; /* [0] before a key, the others, NULL at the end: the call is over */
    const char *key_end;
    const char *value; /* before the value; NULL: nothing */
    const char *value_end;
    const char *close; /* of all calls; one of inner, where calls are one by one */
    bool trim;         /* a newline at either end of a value is the tags' */
    bool strips;       /* so is all white space */
    bool cdata;        /* <![CDATA[ and ]]> may be around a value */
    bool may_lack_end; /* value_end may be left out: the value ends at the next key or call's end */
    const char *says;  /* between key_end and value: a text, where the tool says no type; or NULL */
    bool says_always;  /* also where the tool says a type */
    bool says_else;    /* where neither says a type it is a text, else what it looks like */
    bool unwraps;      /* one argument "arguments" or "input" may hold all of them, as an object */
};

size_t tool_tagged_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
