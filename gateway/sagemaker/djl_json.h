#pragma once
/* The writers of the answers to `inputs`. */
#include "gateway/prepare/dialect.h"

void djl_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_delta *d);
void djl_whole(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
               uint32_t n, const struct answer_usage *u);
void djl_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_usage *u);
/* `djl_pieces` tells which part of a text each of its tokens brought. A token whose bytes are not
 * there (a special one that is not shown, half a character, one behind a stop string) has none, the
 * last one has all that is left: joined they are the text. */
struct djl_pieces {
    struct str text;
    size_t given, matched;
};
struct djl_pieces djl_pieces_of(const struct answer_delta *d);
struct str djl_next_piece(struct djl_pieces *p, const struct answer_shape *a, uint32_t id,
                          bool last);
/* "generated_text":…, behind the prompt where that is asked for. said: what was given before. */
void djl_generated(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
                   struct str said);
