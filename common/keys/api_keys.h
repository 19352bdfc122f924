#pragma once
/* API keys, as whatever stands in front of the cluster reads and compares them: as SHA-256 digests,
 * so that neither a key's length nor the position of a match shows. */
#include "common/base/str.h"
#include "common/config/config.h"
#include "common/keys/file_watch.h"

enum { KEY_DIGEST_BYTES = 32, KEY_LINE_BYTES = 8192 };

/* The digest of a key as options and files have it: KEY or sha256:HEX. False: HEX is not 64 digits.
 */
bool key_digest(struct str configured, uint8_t out[KEY_DIGEST_BYTES]);
/* The digest of a key as it is sent, whatever it looks like. */
void key_digest_sent(struct str key, uint8_t out[KEY_DIGEST_BYTES]);
/* The key that a request sends: authorization is "Bearer KEY"; bare, a header that has the key
 * alone, counts where the other is empty or an AWS signature. Empty: none. */
struct str key_sent(struct str authorization, struct str bare);
/* The next word of a file's line; empty at its end. */
struct str key_next_word(const char **at);

/* The keys of those who may ask at all: those of --api-key and --api-key-file, without their
 * tenants and bounds, for a front whose gateways decide the rest. Loop thread only. */
struct api_keys {
    uint8_t (*digests)[KEY_DIGEST_BYTES];
    uint32_t n;
    const struct option_list *flags; /* borrowed, with file */
    const char *file;                /* NULL: none */
    struct key_file_watch watch;
};
MUST_USE enum status api_keys_init(struct api_keys *k, const struct option_list *flags,
                                   const char *file, struct error *err);
void api_keys_fini(struct api_keys *k);
/* Reads the file again if it is another one. Not OK: it has an error; the keys stay as they were.
 */
MUST_USE enum status api_keys_look(struct api_keys *k, bool *changed, struct error *err);
/* Is what the request sends one of them? All are compared, each in constant time. */
bool api_keys_know(const struct api_keys *k, struct str authorization, struct str bare);
