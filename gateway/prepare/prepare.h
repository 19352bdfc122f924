#pragma once
/* From a body's bytes to what is submitted: parse, check, render, tokenize, and the context length.
 * One pure call, so that it runs inline for small bodies, on a thread of the pool for long ones,
 * and under the fuzzer. */
#include "gateway/prepare/dialect.h"

void prepare_request(const struct prepare_model *m, const struct dialect *d, struct str body,
                     struct prepared *out);
