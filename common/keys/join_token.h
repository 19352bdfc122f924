#pragma once
/* Encodes and decodes join tokens. A join token is one string: cox1.<base64url of HOST:PORT, the
 * head's public key (or both of its keys), and the worker's key pair>. The functions are pure
 * and may run on any thread. */
#include "common/base/status.h"
#include "common/keys/curve_keys.h"

struct join_token {
    char head[256]; /* address of the head, HOST:PORT, or several with commas */
    char head_public_key[41];
    char other_head_key[41]; /* older key while the head's key is being changed; "" = none */
    struct curve_keys keys;  /* key pair of the joining worker */
};
/* JOIN_TOKEN_MAX_HEADS is the most heads that a token names, each as HOST:PORT, separated by
 * commas. A link accepts as many. The error text says which form is expected. */
#define JOIN_TOKEN_MAX_HEADS 8u
MUST_USE enum status join_token_check_head(const char *head, struct error *err);
MUST_USE enum status join_token_encode(const struct join_token *t, char *out, size_t out_size,
                                       struct error *err);
MUST_USE enum status join_token_decode(const char *text, struct join_token *out, struct error *err);
