#pragma once
/* A whole literal of Python as JSON: what ast.literal_eval reads, as json.dumps would write it. A
 * tuple and a set are lists, 0x10 is 16, 1_000 is 1000, .5 is 0.5; strings may be raw, in triple
 * quotes, and one behind the other. JSON's true, false and null are words as well. Pure; bounded in
 * depth. */
#include "common/base/str.h"

#define LITERAL_READ_MAX_DEPTH 256u

/* Appends the JSON to out. False: text is no such literal, and out is as it was. */
bool literal_read(struct str text, struct strbuf *out);

struct literal_end { /* zero at the beginning of a value */
    char quote, was; /* of the string that it is in, 0: none; of the last one */
    bool triple, escaped;
    uint32_t n_run; /* quotes of one kind, one behind the other */
    uint32_t depth; /* brackets that are open */
};

/* Where, outside of strings and brackets, one of the bytes of `ends` stands; text.len: nowhere yet,
 * and e knows how what follows is to be read. */
size_t literal_find_end(struct literal_end *e, struct str text, const char *ends);
