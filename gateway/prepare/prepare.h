#pragma once
/* Turns a body's bytes into a request that can be submitted: parse, check, render, tokenize,
 * check the context length. This is one pure call, so it runs inline for small bodies, on a pool
 * thread for long bodies, and in the fuzzer. */
#include "gateway/prepare/dialect.h"

void prepare_request(const struct prepare_model *m, const struct dialect *d, struct str body,
                     struct prepared *out);
