#pragma once
/* Keys of CurveZMQ as text: 40 characters of Z85 and a zero, which stand for 32 bytes. Plain data.
 */
#include <stdint.h>

enum { KEY_BYTES = 32, KEY_CHARS = 40 };

/* A .pub file has a line (or PEM block) for a key; a second one is of the key before it, while it
 * is being changed (keys_rotate). */
#define PUBLIC_KEYS_MAX 2u
struct public_keys {
    uint32_t n;
    char keys[PUBLIC_KEYS_MAX][41]; /* zeroed behind n */
};

struct curve_keys {
    char public_key[41], secret_key[41];
};
