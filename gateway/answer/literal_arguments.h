#pragma once
/* The arguments of a call in Python's syntax, (a='x', b=[True], c=0x10), turned into JSON while
 * they arrive. Strings are given out as they arrive. Other values are given out at their end,
 * read by literal_read.h, or as a string of their own text when that fails. The output is JSON
 * whenever the call is complete. Pure except for its output to the answer; the text that it
 * holds back is bounded. */
#include "gateway/answer/literal_scan.h"

/* `text` begins with the bracket. `end` means that nothing follows; an incomplete value is given
 * out as far as it goes. */
enum literal_result literal_arguments_feed(struct literal_arguments *s, struct str text, bool end,
                                           struct answer *a, uint32_t i_call, size_t *used);
