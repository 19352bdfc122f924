#pragma once
/* Keeps the API keys of a program that forwards requests to the gateways. Keys are read and
 * compared as SHA-256 digests, so that neither the length of a key nor the position of a match
 * can be measured. */
#include "common/base/str.h"
#include "common/config/config.h"
#include "common/keys/file_watch.h"

enum { KEY_DIGEST_BYTES = 32, KEY_LINE_BYTES = 8192 };

/* Computes the digest of a key as written in options and files: KEY or sha256:HEX. Returns false
 * when HEX does not have 64 digits. */
bool key_digest(struct str configured, uint8_t out[KEY_DIGEST_BYTES]);
/* Computes the digest of a key as a client sends it, in any form. */
void key_digest_sent(struct str key, uint8_t out[KEY_DIGEST_BYTES]);
/* Returns the key that a request sends, or an empty str. `authorization` is "Bearer KEY". `bare`
 * is a header with the key alone. It is used when `authorization` is empty or an AWS signature. */
struct str key_sent(struct str authorization, struct str bare);
/* Returns the next word of a file's line, or an empty str at the end of the line. */
struct str key_next_word(const char **at);

/* `api_keys` holds all keys of --api-key and --api-key-file, without their tenants and limits. A
 * program that forwards requests to gateways uses it, and the gateways check the rest. Only the
 * loop thread uses it. */
struct api_keys {
    uint8_t (*digests)[KEY_DIGEST_BYTES];
    uint32_t n;
    const struct option_list *flags; /* keys of --api-key, borrowed like `file` */
    const char *file;                /* path of --api-key-file; NULL = no file */
    struct key_file_watch watch;
};
MUST_USE enum status api_keys_init(struct api_keys *k, const struct option_list *flags,
                                   const char *file, struct error *err);
void api_keys_fini(struct api_keys *k);
/* Reads the file again if it has changed. On an error the old keys stay. */
MUST_USE enum status api_keys_look(struct api_keys *k, bool *changed, struct error *err);
/* Returns true when the request sends a known key. The function compares all keys, each in
 * constant time. */
bool api_keys_know(const struct api_keys *k, struct str authorization, struct str bare);
