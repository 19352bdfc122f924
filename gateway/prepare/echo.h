#pragma once
/* Makes the prompt the beginning of a completion's text. The functions are pure, and usable on
 * any thread. */
#include "gateway/base/api_error.h"
#include "gateway/generation/prompt.h"
#include "text/text.h"

/* Sets `out->text` to the text of its ids. An incomplete character at the end is left out: the
 * answer's decoder has seen the prompt and writes the character when it is complete. Returns
 * false with the reason in `e`. */
bool echo_text(const struct text_tokenizer *t, bool skip_special, struct prompt *out,
               struct api_error *e);
/* Sets `out->offsets` to the position in `out->text` at which each id begins. Returns false with
 * the reason in `e`. */
bool echo_offsets(const struct text_tokenizer *t, bool skip_special, struct prompt *out,
                  struct api_error *e);
