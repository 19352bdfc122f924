#pragma once
/* Maps parts that several messages share: sampling parameters and log-probabilities. The file is
 * private to proto/codec. */
#include "proto/codec/wire.h"
#include "proto/messages.h"

struct Cox__Sampling;
struct Cox__LogprobRow;
struct Cox__Sampling *wire_put_sampling(struct wire *w, const struct sampling_params *s);
void wire_get_sampling(struct wire *w, const struct Cox__Sampling *p, struct sampling_params *s);
struct Cox__LogprobRow **wire_put_rows(struct wire *w, const struct logprob_row *rows, uint32_t n);
const struct logprob_row *wire_get_rows(struct wire *w, struct Cox__LogprobRow *const *p, size_t n);
