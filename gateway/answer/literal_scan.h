#pragma once
/* Turns arguments in literal syntax into JSON while they arrive: Python's f(a='x', b=[True]),
 * and FunctionGemma's {a:<escape>x<escape>,b:[true]}. The functions are pure except for their
 * output to the answer. The depth and the text held back are bounded. */
#include "gateway/answer/literal_state.h"

#define LITERAL_MAX_DEPTH 32u
#define LITERAL_MAX_WORD  128u /* most bytes of a number or a word */

struct answer;

enum literal_result {
    /* the arguments are not complete; the rest is fed again with the following text */
    LITERAL_MORE,
    LITERAL_DONE, /* the arguments are complete and end at *used bytes */
    LITERAL_BAD,  /* the byte at *used is not allowed at that position */
};

/* Feeds all unconsumed text of the arguments. `text` begins with the bracket around them: `(` or
 * `{`. `quote` is the text around strings, which have no escapes then; NULL = Python's quotes. */
enum literal_result literal_scan_feed(struct literal_scan *s, struct str text, const char *quote,
                                      struct answer *a, uint32_t i_call, size_t *used);

/* Reads a whole list or map and appends it as JSON, with the same rules for words and quotes as
 * `literal_scan_feed`. Returns false and leaves `out` unchanged when the text is neither a list
 * nor a map. */
bool literal_scan_read(struct str text, struct strbuf *out);

/* `literal_give_text` writes `text` as the inside of a JSON string. `literal_give_word` writes a
 * number, true, false or null unchanged, and any other word as a string. */
void literal_give_text(struct answer *a, uint32_t i_call, struct str text);
void literal_give_word(struct answer *a, uint32_t i_call, struct str word);
/* Writes the character of a Python escape. Returns the number of consumed bytes; 0 = the escape
 * may continue. */
size_t literal_give_escape(struct answer *a, uint32_t i_call, struct str text);
