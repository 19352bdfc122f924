#pragma once
/* Arguments that are written as literals, made JSON while they come: Python's f(a='x', b=[True]),
 * and FunctionGemma's {a:<escape>x<escape>,b:[true]}. Pure but for what it gives to the answer;
 * bounded in depth, and in what it holds back. */
#include "gateway/answer/literal_state.h"

#define LITERAL_MAX_DEPTH 32u
#define LITERAL_MAX_WORD  128u /* bytes of a number or a word */

struct answer;

enum literal_result {
    LITERAL_MORE, /* the rest comes again, with what follows */
    LITERAL_DONE, /* *used bytes belong to the arguments */
    LITERAL_BAD,  /* at *used is what cannot follow */
};

/* text begins with the bracket around the arguments: `(` or `{`. quote: what strings lie between,
 * without escapes in them; NULL: Python's quotes. */
enum literal_result literal_scan_feed(struct literal_scan *s, struct str text, const char *quote,
                                      struct answer *a, uint32_t i_call, size_t *used);

/* The whole of a list or a map as JSON, words and quotes within strings as they are there too.
 * False: it is not one, and out is as it was. */
bool literal_scan_read(struct str text, struct strbuf *out);

/* Arguments: text as the inside of a JSON string; a word as a number, true, false, null or else a
 * string. */
void literal_give_text(struct answer *a, uint32_t i_call, struct str text);
void literal_give_word(struct answer *a, uint32_t i_call, struct str word);
/* A backslash and what it stands for in Python. Bytes done with; 0: it may go on. */
size_t literal_give_escape(struct answer *a, uint32_t i_call, struct str text);
