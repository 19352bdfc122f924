#pragma once
/* Whether grammars compile: what does not is a 400, and not a stream that ends in a worker. What
 * did is remembered by its hash, for a while. The vocabulary is made at the first grammar. Any
 * thread. */
#include "gateway/api_error.h"
#include "proto/messages.h"
#include "text/text.h"

struct grammar_check;
struct grammar_check *grammar_check_new(const struct text_tokenizer *t); /* borrowed */
void grammar_check_free(struct grammar_check *c);                        /* NULL is fine */
/* Whether it compiles; why says why it does not. */
bool grammar_compiles(struct grammar_check *c, enum grammar_kind kind, struct str source,
                      char why[TEXT_ERR_MAX]);
/* False: e names the field, with llguidance's words. Takes as long as compiling, milliseconds as a
 * rule, and the first time as long as the vocabulary: seconds. */
bool grammar_check(struct grammar_check *c, enum grammar_kind kind, struct str source,
                   const char *field, struct api_error *e);
