#pragma once
/* A prompt as the beginning of its completion's text. Pure; any thread. */
#include "gateway/base/api_error.h"
#include "gateway/generation/prompt.h"
#include "text/text.h"

/* Sets out->text to what its ids say. Bytes at their end that are no whole character yet are left
 * out: the answer's decoder has seen the prompt and gives them out, with what completes them.
 * False: e says why. */
bool echo_text(const struct text_tokenizer *t, bool skip_special, struct prompt *out,
               struct api_error *e);
/* Sets out->offsets: where in out->text each id begins. False: e says why. */
bool echo_offsets(const struct text_tokenizer *t, bool skip_special, struct prompt *out,
                  struct api_error *e);
