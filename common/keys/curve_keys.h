#pragma once
/* Holds CurveZMQ keys as text: 40 characters of Z85 and a NUL, which encode 32 bytes. The
 * structs are plain data. */
#include <stdint.h>

enum { KEY_BYTES = 32, KEY_CHARS = 40 };

/* PUBLIC_KEYS_MAX is the most keys of a .pub file, which has one line (or PEM block) a key.
 * During a change of keys (keys_rotate) the second key is the old one. */
#define PUBLIC_KEYS_MAX 2u
struct public_keys {
    uint32_t n;
    char keys[PUBLIC_KEYS_MAX][41]; /* the keys; zeroed from n on */
};

struct curve_keys {
    char public_key[41], secret_key[41];
};
