#pragma once
/* Defines the positions of the literal readers within the arguments of a call. Both structs are
 * part of a parser's state (answer_parser.h). Only literal_scan.c and literal_arguments.c use
 * the fields. */
#include "gateway/answer/literal_read.h"

struct literal_scan { /* state of literal_scan.c; all zero at the start */
    /* bit d is set when the open bracket at depth d belongs to a map, which has keys */
    uint32_t maps;
    uint32_t depth;
    char quote;             /* quote of the current string; 0 = outside */
    bool comma, key, value; /* position: after a comma, before a key, after a value */
};

struct literal_arguments { /* state of literal_arguments.c; all zero at the start */
    uint32_t step;
    char quote;    /* quote of the current string */
    bool triple;   /* the string has triple quotes */
    bool odd;      /* a quote inside the string did not end it */
    bool any;      /* at least one argument was read */
    char sep;      /* separator after keys, = or : */
    size_t n_seen; /* scanned bytes of a held value */
    struct literal_end value;
};
