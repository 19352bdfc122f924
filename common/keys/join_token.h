#pragma once
/* A join token is one string: cox1.<base64url of host:port, head public key (or its two), worker
 * key pair>. Pure functions. */
#include "common/base/status.h"
#include "common/keys/curve_keys.h"

struct join_token {
    char head[256]; /* HOST:PORT */
    char head_public_key[41];
    char other_head_key[41]; /* "": none; the one before it, while that is being changed */
    struct curve_keys keys;  /* the joining worker's */
};
/* A token may say HOST:PORT of the head, or those of at most JOIN_TOKEN_MAX_HEADS heads with commas
 * (as many as a link takes). The error says what to write. */
#define JOIN_TOKEN_MAX_HEADS 8u
MUST_USE enum status join_token_check_head(const char *head, struct error *err);
MUST_USE enum status join_token_encode(const struct join_token *t, char *out, size_t out_size,
                                       struct error *err);
MUST_USE enum status join_token_decode(const char *text, struct join_token *out, struct error *err);
