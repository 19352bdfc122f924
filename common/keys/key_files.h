#pragma once
/* CURVE key pairs (Z85, 40 characters + NUL) and the folder they live in:
 *   DIR/head.key DIR/head.pub  DIR/gateway.key …  one pair per role; files 0600, folder 0700.
 *   DIR/authorized: "role public-key" lines, or "role @FILE" for all keys of a .pub file beside it;
 *   the ZAP handler admits exactly these.
 * Instead of Z85 a .key may be a PEM private key and a .pub PEM certificates or public keys
 * (common/keys/pem.h), as in a Secret that Helm made. What is only read may be links, of
 * another owner, read through a group; a secret that everybody may read is told of in the log.
 * A join token is one string: cox1.<base64url of host:port, head public key (or its two), worker
 * key pair>. */
#include "common/base/status.h"
#include "common/keys/api_keys.h"
#include "proto/messages.h"

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

MUST_USE enum status keys_generate(struct curve_keys *out, struct error *err);
/* Makes what is missing: head, gateway, worker, operator pairs and authorized. Idempotent. PEM
 * files are never written over. */
MUST_USE enum status keys_make_dir(const char *dir, struct error *err);
MUST_USE enum status keys_load(const char *dir, enum peer_role role, struct curve_keys *out,
                               struct error *err);
MUST_USE enum status keys_load_public(const char *dir, enum peer_role role, char out[41],
                                      struct error *err); /* the newest */
MUST_USE enum status keys_load_publics(const char *dir, enum peer_role role,
                                       struct public_keys *out, struct error *err);
/* A new pair for a role, beside the old key, which stays in the .pub file's second line and in
 * authorized until keys_retire takes it off. STATUS_EXISTS: that is still to be done;
 * STATUS_UNSUPPORTED, of both: the key is PEM, and somebody else's to change. */
MUST_USE enum status keys_rotate(const char *dir, enum peer_role role, struct error *err);
/* STATUS_NOT_FOUND: there is no old key. */
MUST_USE enum status keys_retire(const char *dir, enum peer_role role, struct error *err);

/* 16 hex digits that tell one public key from another, for logs and for others to read. */
#define KEYS_FINGERPRINT_BYTES 17u
void keys_fingerprint(const char *public_key, char out[KEYS_FINGERPRINT_BYTES]);

#define AUTHORIZED_FILES_MAX  9u  /* authorized itself and eight that it names */
#define AUTHORIZED_NAME_BYTES 39u /* with "@" shorter than a key, which may begin with one */
struct authorized {
    struct {
        enum peer_role role;
        char public_key[41];
    } * entries;
    uint32_t n_entries, n_files;
    struct authorized_file {
        char name[AUTHORIZED_NAME_BYTES]; /* of the first, which is authorized, empty */
        struct key_file_stamp stamp;      /* as it was read */
    } files[AUTHORIZED_FILES_MAX];
};
/* Not OK: no entries, but all files up to the error, for who waits for them to be mended. */
MUST_USE enum status authorized_load(const char *path, struct authorized *out, struct error *err);
bool authorized_has(const struct authorized *a, enum peer_role role, const char *public_key);
void authorized_fini(struct authorized *a);

struct join_token {
    char head[256]; /* HOST:PORT */
    char head_public_key[41];
    char other_head_key[41]; /* "": none; the one before it, while that is being changed */
    struct curve_keys keys;  /* the joining worker's */
};
/* What a token may say of the head: HOST:PORT, or those of at most JOIN_TOKEN_MAX_HEADS with commas
 * (as many as a link takes). The error says what to write. */
#define JOIN_TOKEN_MAX_HEADS 8u
MUST_USE enum status join_token_check_head(const char *head, struct error *err);
MUST_USE enum status join_token_encode(const struct join_token *t, char *out, size_t out_size,
                                       struct error *err);
MUST_USE enum status join_token_decode(const char *text, struct join_token *out, struct error *err);
