#pragma once
/* Reads public keys and signatures in the format of minisign (Ed25519) and checks a signature.
 * Both kinds of signatures are accepted: "Ed" signs the file, "ED" signs its BLAKE2b-512. The
 * functions are pure and may run on any thread after sodium_init. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

enum {
    MINISIGN_ID_BYTES = 8,
    MINISIGN_KEY_BYTES = 32,
    MINISIGN_SIGNATURE_BYTES = 64,
    MINISIGN_COMMENT_MAX = 8192, /* maximum bytes of a trusted comment, as in minisign */
    MINISIGN_FILE_MAX = 32768,   /* maximum bytes of a key or signature file */
    MINISIGN_ID_TEXT = 17        /* size of an id in hexadecimal digits with the NUL */
};

struct minisign_key {
    uint8_t id[MINISIGN_ID_BYTES], bytes[MINISIGN_KEY_BYTES];
};

struct minisign_signature {
    uint8_t id[MINISIGN_ID_BYTES];
    uint8_t of_content[MINISIGN_SIGNATURE_BYTES]; /* signs the file or its hash */
    uint8_t of_comment[MINISIGN_SIGNATURE_BYTES]; /* signs of_content and the trusted comment */
    bool is_hashed;                               /* true = "ED" */
    struct str comment; /* trusted comment; borrowed from the text of the signature file */
};

/* `name` is the file's name for error texts. */
MUST_USE enum status minisign_read_key(struct str text, const char *name, struct minisign_key *out,
                                       struct error *err);
MUST_USE enum status minisign_read_signature(struct str text, const char *name,
                                             struct minisign_signature *out, struct error *err);
/* Returns STATUS_DENIED when the signature is by another key, or when the content or the trusted
 * comment is not what was signed. */
MUST_USE enum status minisign_check(const struct minisign_key *k,
                                    const struct minisign_signature *s, struct str content,
                                    struct error *err);
/* Writes an id as minisign prints it: 16 capital hexadecimal digits, the last byte first. */
void minisign_id_text(const uint8_t id[MINISIGN_ID_BYTES], char out[MINISIGN_ID_TEXT]);
