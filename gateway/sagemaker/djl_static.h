#pragma once
/* Declares the writers of answers to static batches (DJL's STATIC form). */
#include "gateway/prepare/dialect.h"

void djl_static_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                      const struct answer_delta *d);
void djl_static_whole(struct strbuf *out, const struct answer_shape *a,
                      const struct answer_delta *d, uint32_t n, const struct answer_usage *u);
void djl_static_error(struct strbuf *out, const struct api_error *e, bool in_stream);
