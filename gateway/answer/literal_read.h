#pragma once
/* Reads a whole Python literal and writes it as JSON. The input is what ast.literal_eval
 * accepts, and the output is what json.dumps writes. Tuples and sets become lists. 0x10 becomes
 * 16, 1_000 becomes 1000, and .5 becomes 0.5. Strings may be raw, triple-quoted, or several in a
 * row. JSON's true, false and null are accepted too. The functions are pure, and their depth is
 * bounded. */
#include "common/base/str.h"

#define LITERAL_READ_MAX_DEPTH 256u

/* Reads `text` as a literal and appends its JSON to `out`. Returns false and leaves `out`
 * unchanged when `text` is not a literal of this kind. */
bool literal_read(struct str text, struct strbuf *out);

struct literal_end { /* position in a value; all zero at the beginning of the value */
    /* `quote`: quote of the current string, 0 = none; `was`: quote of the last string */
    char quote, was;
    bool triple, escaped;
    uint32_t n_run; /* number of equal quotes in a row */
    uint32_t depth; /* number of open brackets */
};

/* Returns the position of the first of the bytes `ends` outside of strings and brackets. Returns
 * text.len when there is no such byte yet. `e` keeps the state for the following text. */
size_t literal_find_end(struct literal_end *e, struct str text, const char *ends);
