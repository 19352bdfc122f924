#pragma once
/* The readers of literals remember here where they stand in the arguments of a call. Both structs
 * are parts of a parser's state (answer_parser.h); only literal_scan.c and literal_arguments.c look
 * into them. */
#include "gateway/answer/literal_read.h"

struct literal_scan { /* zero to begin */
    uint32_t maps;    /* bit d: what is open at depth d has keys */
    uint32_t depth;
    char quote;             /* of the string that it is in; 0: none */
    bool comma, key, value; /* a comma came; a key is next; a value came */
};

struct literal_arguments { /* zero to begin */
    uint32_t step;
    char quote;    /* of the string that it is in */
    bool triple;   /* three of them */
    bool odd;      /* a quote stood in the string that did not end it */
    bool any;      /* an argument came */
    char sep;      /* behind keys */
    size_t n_seen; /* of a value that is held */
    struct literal_end value;
};
