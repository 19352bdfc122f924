#pragma once
/* Log-probabilities of the prompt's own tokens. */
#include "gateway/prepare/dialect.h"

/* ,"prompt_logprobs":[null,{ID:{…},…},…] where they were asked for. */
void openai_prompt_logprobs(struct strbuf *out, const struct answer_shape *a,
                            const struct prompt_logprobs *s);
/* Does this delta begin with the prompt's own tokens and their log-probabilities (echo)? */
bool openai_echoed_prompt_logprobs(const struct answer_shape *a, const struct answer_delta *d);
/* Row i of those, of the prompt's id i + 1: its entries, at most as many as logprobs asks for. */
void openai_echoed_row(const struct answer_shape *a, const struct answer_delta *d, uint32_t i,
                       struct token_logprobs *out);
