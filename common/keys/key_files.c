/* Reads CURVE key pairs. The public key is derived from the secret key, so that a .pub file of
 * another secret is detected. */
#include "common/keys/key_files.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#include "common/base/log.h"
#include "common/keys/key_text.h"

const enum peer_role keys_roles[KEYS_N_ROLES] = {ROLE_HEAD, ROLE_GATEWAY, ROLE_WORKER,
                                                 ROLE_OPERATOR};

enum status keys_generate(struct curve_keys *out, struct error *err)
{
    if (zmq_curve_keypair(out->public_key, out->secret_key) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "cannot make keys, because libzmq was built without CURVE: %s",
                     zmq_strerror(errno));
}

enum status keys_load(const char *dir, enum peer_role role, struct curve_keys *out,
                      struct error *err)
{
    char path[KEY_PATH_BYTES];
    struct public_keys publics;
    struct stat st;
    TRY(key_text_path(path, dir, peer_role_name(role), ".key", err));
    enum status s = key_text_read_secret(path, out->secret_key, NULL, err);
    if (s == STATUS_NOT_FOUND)
        return error_set(err, s,
                         "the key file %s does not exist. Run `cox keys --keys-dir %s` to make the "
                         "keys of a cluster",
                         path, dir);
    TRY(s);
    /* A Kubernetes Secret is readable through its group, but other users must have no access to
     * a key file. */
    if (stat(path, &st) == 0 && (st.st_mode & 0007))
        log_warn("key_readable_by_all", "path=%s mode=%o", log_quote(path),
                 (unsigned)st.st_mode & 0777);
    zmq_curve_public(out->public_key, out->secret_key);
    s = keys_load_publics(dir, role, &publics, err);
    if (s == STATUS_NOT_FOUND)
        return STATUS_OK;
    /* the second key is checked too, because a rotation may have written only one of the two
     * files */
    bool is_there = false;
    for (uint32_t i = 0; s == STATUS_OK && i < publics.n; i++)
        is_there |= strcmp(publics.keys[i], out->public_key) == 0;
    if (s == STATUS_OK && !is_there)
        s = error_set(
            err, STATUS_INVALID,
            "the secret key %s does not match the .pub file beside it. Remove the wrong file",
            path);
    return s;
}

enum status keys_load_publics(const char *dir, enum peer_role role, struct public_keys *out,
                              struct error *err)
{
    char path[KEY_PATH_BYTES];
    *out = (struct public_keys){0};
    TRY(key_text_path(path, dir, peer_role_name(role), ".pub", err));
    return key_text_read_keys(path, out->keys, PUBLIC_KEYS_MAX, &out->n, NULL, NULL, err);
}

enum status keys_load_public(const char *dir, enum peer_role role, char out[41], struct error *err)
{
    struct public_keys k;
    enum status s = keys_load_publics(dir, role, &k, err);
    memcpy(out, k.keys[0], sizeof k.keys[0]);
    return s;
}

void keys_fingerprint(const char *public_key, char out[KEYS_FINGERPRINT_BYTES])
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)public_key, strlen(public_key), NULL, 0);
    sodium_bin2hex(out, KEYS_FINGERPRINT_BYTES, hash, (KEYS_FINGERPRINT_BYTES - 1) / 2);
}
