#include "cli/verify/minisign.h"

#include <stdio.h>
#include <string.h>

#include <sodium.h>

#define UNTRUSTED "untrusted comment: "
#define TRUSTED   "trusted comment: "

enum { ALGORITHM_BYTES = 2, HASH_BYTES = 64 };

void minisign_id_text(const uint8_t id[MINISIGN_ID_BYTES], char out[MINISIGN_ID_TEXT])
{
    for (size_t i = 0; i < MINISIGN_ID_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02X", id[MINISIGN_ID_BYTES - 1 - i]);
}

/* Takes one line off the front of *rest. The line has no line end, neither "\n" nor "\r\n". */
static struct str take_line(struct str *rest)
{
    const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    size_t n = end ? (size_t)(end - rest->ptr) : rest->len, taken = end ? n + 1 : n;
    struct str line = {rest->ptr, n};
    *rest = (struct str){rest->ptr + taken, rest->len - taken};
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    return line;
}

/* Decodes a whole line of base64 that must give exactly n bytes. libsodium takes some bytes that
 * are not ASCII for letters, so these are refused first. */
static bool decode(struct str line, uint8_t *out, size_t n)
{
    size_t got = 0;
    const char *end = NULL;
    for (size_t i = 0; i < line.len; i++)
        if ((unsigned char)line.ptr[i] >= 0x80)
            return false;
    return sodium_base642bin(out, n, line.ptr, line.len, NULL, &got, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           got == n && end == line.ptr + line.len;
}

static enum status not_minisign(struct error *err, const char *name, const char *what)
{
    return error_set(err, STATUS_INVALID,
                     "%s is not a %s of minisign. Give a file that minisign wrote", name, what);
}

enum status minisign_read_key(struct str text, const char *name, struct minisign_key *out,
                              struct error *err)
{
    uint8_t raw[ALGORITHM_BYTES + MINISIGN_ID_BYTES + MINISIGN_KEY_BYTES];
    struct str comment = take_line(&text), line = take_line(&text);
    if (!str_starts(comment, STR(UNTRUSTED)) || !decode(line, raw, sizeof raw) || text.len > 0 ||
        memcmp(raw, "Ed", ALGORITHM_BYTES) != 0)
        return not_minisign(err, name, "public key");
    memcpy(out->id, raw + ALGORITHM_BYTES, sizeof out->id);
    memcpy(out->bytes, raw + ALGORITHM_BYTES + MINISIGN_ID_BYTES, sizeof out->bytes);
    return STATUS_OK;
}

enum status minisign_read_signature(struct str text, const char *name,
                                    struct minisign_signature *out, struct error *err)
{
    uint8_t raw[ALGORITHM_BYTES + MINISIGN_ID_BYTES + MINISIGN_SIGNATURE_BYTES];
    struct str first = take_line(&text), line = take_line(&text), second = take_line(&text),
               global = take_line(&text);
    if (!str_starts(first, STR(UNTRUSTED)) || !str_starts(second, STR(TRUSTED)) || text.len > 0 ||
        !decode(line, raw, sizeof raw) || !decode(global, out->of_comment, sizeof out->of_comment))
        return not_minisign(err, name, "signature");
    out->is_hashed = memcmp(raw, "ED", ALGORITHM_BYTES) == 0;
    if (!out->is_hashed && memcmp(raw, "Ed", ALGORITHM_BYTES) != 0)
        return not_minisign(err, name, "signature");
    out->comment = (struct str){second.ptr + strlen(TRUSTED), second.len - strlen(TRUSTED)};
    if (out->comment.len > MINISIGN_COMMENT_MAX)
        return not_minisign(err, name, "signature");
    memcpy(out->id, raw + ALGORITHM_BYTES, sizeof out->id);
    memcpy(out->of_content, raw + ALGORITHM_BYTES + MINISIGN_ID_BYTES, sizeof out->of_content);
    return STATUS_OK;
}

enum status minisign_check(const struct minisign_key *k, const struct minisign_signature *s,
                           struct str content, struct error *err)
{
    uint8_t hash[HASH_BYTES], all[MINISIGN_SIGNATURE_BYTES + MINISIGN_COMMENT_MAX];
    const uint8_t *signed_bytes = (const uint8_t *)content.ptr;
    size_t n = content.len;
    char made_by[MINISIGN_ID_TEXT], ours[MINISIGN_ID_TEXT];
    if (memcmp(k->id, s->id, sizeof k->id) != 0) {
        minisign_id_text(s->id, made_by);
        minisign_id_text(k->id, ours);
        return error_set(err, STATUS_DENIED, "the signature is by the key %s, not by the key %s",
                         made_by, ours);
    }
    if (s->is_hashed) {
        if (crypto_generichash(hash, sizeof hash, signed_bytes, n, NULL, 0) != 0)
            return error_set(err, STATUS_INTERNAL, "cannot compute BLAKE2b-512");
        signed_bytes = hash;
        n = sizeof hash;
    }
    if (crypto_sign_verify_detached(s->of_content, signed_bytes, n, k->bytes) != 0)
        return error_set(err, STATUS_DENIED, "the signature does not belong to the content");
    if (s->comment.len > MINISIGN_COMMENT_MAX)
        return error_set(err, STATUS_INVALID, "the trusted comment is too long");
    memcpy(all, s->of_content, MINISIGN_SIGNATURE_BYTES);
    if (s->comment.len > 0)
        memcpy(all + MINISIGN_SIGNATURE_BYTES, s->comment.ptr, s->comment.len);
    if (crypto_sign_verify_detached(s->of_comment, all, MINISIGN_SIGNATURE_BYTES + s->comment.len,
                                    k->bytes) != 0)
        return error_set(err, STATUS_DENIED,
                         "the signature does not belong to its trusted comment");
    return STATUS_OK;
}
