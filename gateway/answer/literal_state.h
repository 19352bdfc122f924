#pragma once
/* Positions of the readers of literals within the arguments of a call. Both structs are part of
 * a parser's state (answer_parser.h). Only literal_scan.c and literal_arguments.c use their
 * fields. */
#include "gateway/answer/literal_read.h"

struct literal_scan { /* state of literal_scan.c; zero at the start */
    uint32_t maps;    /* bit d: the bracket open at depth d has keys */
    uint32_t depth;
    char quote;             /* quote of the current string; 0 = outside */
    bool comma, key, value; /* after a comma; before a key; after a value */
};

struct literal_arguments { /* state of literal_arguments.c; zero at the start */
    uint32_t step;
    char quote;    /* quote of the current string */
    bool triple;   /* the string has triple quotes */
    bool odd;      /* a quote inside the string did not end it */
    bool any;      /* an argument was read */
    char sep;      /* separator after keys, = or : */
    size_t n_seen; /* scanned bytes of a held value */
    struct literal_end value;
};
