#pragma once
/* The arguments of a call as Python writes them, (a='x', b=[True], c=0x10), made JSON while they
 * come: a string as it comes, another value when it has ended, by literal_read.h, and as a string
 * of its own text where that reads nothing. What is given is JSON whenever the call is complete.
 * Pure but for what it gives to the answer; what it holds back is bounded. */
#include "gateway/answer/literal_read.h"
#include "gateway/answer/literal_scan.h"

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

/* text begins with the bracket. end: nothing follows, and what is held is given as far as it is
 * there. */
enum literal_result literal_arguments_feed(struct literal_arguments *s, struct str text, bool end,
                                           struct answer *a, uint32_t i_call, size_t *used);
