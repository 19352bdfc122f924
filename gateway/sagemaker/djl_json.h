#pragma once
/* Writes DJL's answers to bodies with `inputs`. */
#include "gateway/prepare/dialect.h"

void djl_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_delta *d);
void djl_whole(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
               uint32_t n, const struct answer_usage *u);
void djl_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_usage *u);
/* `djl_pieces` splits a text into the parts of its tokens. A token without visible bytes (a
 * hidden special token, half a character, a token after a stop string) has an empty part. The
 * last token has all remaining text. All parts together are the text. */
struct djl_pieces {
    struct str text;
    size_t given, matched;
};
struct djl_pieces djl_pieces_of(const struct answer_delta *d);
struct str djl_next_piece(struct djl_pieces *p, const struct answer_shape *a, uint32_t id,
                          bool last);
/* Appends "generated_text":…, after the prompt's text when the request asks for it. `said` is
 * the text that was emitted before. */
void djl_generated(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
                   struct str said);
