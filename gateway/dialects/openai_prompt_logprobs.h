#pragma once
/* Writes log-probabilities of the prompt's own tokens. */
#include "gateway/prepare/dialect.h"

/* Appends ,"prompt_logprobs":[null,{ID:{…},…},…] when the request asks for them. */
void openai_prompt_logprobs(struct strbuf *out, const struct answer_shape *a,
                            const struct prompt_logprobs *s);
/* Returns true when this delta begins with the prompt's tokens and their log-probabilities
 * (echo). */
bool openai_echoed_prompt_logprobs(const struct answer_shape *a, const struct answer_delta *d);
/* Reads row i, which holds the log-probabilities of the prompt's id i + 1. The row has at most
 * as many entries as `logprobs` asks for. */
void openai_echoed_row(const struct answer_shape *a, const struct answer_delta *d, uint32_t i,
                       struct token_logprobs *out);
