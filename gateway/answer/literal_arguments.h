#pragma once
/* The arguments of a call as Python writes them, (a='x', b=[True], c=0x10), made JSON while they
 * come: a string as it comes, another value when it has ended, by literal_read.h, and as a string
 * of its own text where that reads nothing. What is given is JSON whenever the call is complete.
 * Pure but for what it gives to the answer; what it holds back is bounded. */
#include "gateway/answer/literal_scan.h"

/* text begins with the bracket. end: nothing follows, and what is held is given as far as it is
 * there. */
enum literal_result literal_arguments_feed(struct literal_arguments *s, struct str text, bool end,
                                           struct answer *a, uint32_t i_call, size_t *used);
