#pragma once
/* Calls whose arguments come one by one between tags, as plain text:
 *
 *   <tool_call> <function=f> <parameter=key> value </parameter> </function> </tool_call>
 *
 * What a value is, the request's tools say (tool_types.h): text where the parameter is a string, or
 * unknown; else a number, a word, a list or an object, and text where it is none of these. Of
 * several types it is the first that it can be, and so held until it can be only one of them. */
#include "gateway/answer_parser.h"

struct tagged_family {
    const char *const *marks; /* [0] opens, [1], where there is one, comes before a name; NULL */
    const char *name_end;     /* NULL: what is no part of a name */
    const char *const *inner; /* [0] before a key, the others, NULL at the end: the call is over */
    const char *key_end;
    const char *value; /* before the value; NULL: nothing */
    const char *value_end;
    const char *close; /* of all calls; one of inner, where calls are one by one */
    bool trim;         /* a newline at either end of a value is the tags' */
    bool may_lack_end; /* value_end may be left out: the value ends at one of inner, too */
    bool says_string;  /* between key_end and value is "true": a text, whatever the tool says */
    bool unwraps;      /* one argument "arguments" or "input" may hold all of them, as an object */
};

size_t tool_tagged_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a);
