#pragma once
/* Turns the arguments of a call in Python's syntax, (a='x', b=[True], c=0x10), into JSON while
 * they arrive. Strings are emitted as they arrive. Other values are emitted at their end: read
 * by literal_read.h, or as a string of their own text when that fails. The output is JSON
 * whenever the call is complete. The functions are pure except for their output to the answer.
 * The text that they hold back is bounded. */
#include "gateway/answer/literal_scan.h"

/* Feeds all unconsumed text of the arguments. `text` begins with the bracket. `end` means that
 * no more text follows: the available part of an incomplete value is emitted. */
enum literal_result literal_arguments_feed(struct literal_arguments *s, struct str text, bool end,
                                           struct answer *a, uint32_t i_call, size_t *used);
