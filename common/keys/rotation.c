/* Changes the key of a role. Each file is replaced whole, in an order that keeps the files
 * consistent for a program that reads them at the same time. */
#include "common/keys/rotation.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/keys/authorized.h"
#include "common/keys/key_text.h"

/* Adds a line for the key to DIR/authorized (`add`), or removes the key's lines. All other lines
 * stay as they were written. Lines that name a file stay as well, because the change happens in
 * that file. */
static enum status edit_authorized(const char *dir, enum peer_role role, const char *key, bool add,
                                   struct error *err)
{
    char path[KEY_PATH_BYTES];
    struct strbuf text, out;
    struct authorized known = {0};
    TRY(key_text_path(path, dir, "authorized", "", err));
    /* a faulty file ends the change here, because a person must correct it first */
    TRY(authorized_load(path, &known, err));
    authorized_fini(&known);
    strbuf_init(&text, AUTHORIZED_MAX_BYTES);
    strbuf_init(&out, AUTHORIZED_MAX_BYTES);
    enum status s = key_text_read(path, &text, NULL, err);
    struct str rest = strbuf_str(&text);
    while (s == STATUS_OK && rest.len) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n = end ? (size_t)(end - rest.ptr) : rest.len;
        struct authorized line = {0};
        s = authorized_parse_line((struct str){rest.ptr, n}, &line, path, 1, err);
        if (s == STATUS_OK && (line.n_files || !authorized_has(&line, role, key))) {
            strbuf_append(&out, rest.ptr, n);
            strbuf_append_c(&out, "\n");
        }
        authorized_fini(&line);
        rest = (struct str){rest.ptr + n + (end != NULL), rest.len - n - (end != NULL)};
    }
    if (add)
        strbuf_printf(&out, "%s %s\n", peer_role_name(role), key);
    if (s == STATUS_OK)
        s = key_text_write(path, strbuf_str(&out), 0600, err);
    strbuf_fini(&text);
    strbuf_fini(&out);
    return s;
}

/* Refuses to change PEM files. A change would mix PEM with our own lines, and the tool that made
 * the PEM would undo it. */
static enum status refuse_pem(const char *dir, enum peer_role role, struct error *err)
{
    char path[KEY_PATH_BYTES], key[KEY_CHARS + 1];
    bool is_pem = false;
    TRY(key_text_path(path, dir, peer_role_name(role), ".key", err));
    enum status s = key_text_read_secret(path, key, &is_pem, err);
    sodium_memzero(key, sizeof key);
    if (s == STATUS_OK && is_pem)
        s = error_set(err, STATUS_UNSUPPORTED,
                      "cannot rotate the PEM key %s: the authority that issued it must do that. "
                      "Install its new key and certificate, and keep the old certificate as the "
                      "second one of the .pub file until every process has the new one",
                      path);
    return s;
}

static enum status rotate_locked(const char *dir, enum peer_role role, struct error *err)
{
    char path[KEY_PATH_BYTES], lines[2 * (KEY_CHARS + 1) + 1];
    struct public_keys old;
    struct curve_keys now, next;
    TRY(refuse_pem(dir, role, err));
    TRY(keys_load(dir, role, &now, err));
    sodium_memzero(now.secret_key, sizeof now.secret_key);
    TRY(keys_load_publics(dir, role, &old, err));
    if (old.n > 1)
        return error_set(err, STATUS_EXISTS,
                         "%s/%s.pub has two keys: a key rotation is already in progress. Finish it "
                         "with `cox keys --keys-dir %s --retire %s` first",
                         dir, peer_role_name(role), dir, peer_role_name(role));
    TRY(keys_generate(&next, err));
    /* The key is authorized before any program can have it. The public file is written before
     * the secret file. So the files always match for a reader. */
    enum status s = STATUS_OK;
    if (role != ROLE_HEAD)
        s = edit_authorized(dir, role, next.public_key, true, err);
    snprintf(lines, sizeof lines, "%s\n%s\n", next.public_key, old.keys[0]);
    if (s == STATUS_OK)
        s = key_text_path(path, dir, peer_role_name(role), ".pub", err);
    if (s == STATUS_OK)
        s = key_text_write(path, str_from(lines), 0644, err);
    if (s == STATUS_OK)
        s = key_text_path(path, dir, peer_role_name(role), ".key", err);
    if (s == STATUS_OK)
        s = key_text_write_key(path, next.secret_key, 0600, err);
    sodium_memzero(&next, sizeof next);
    return s;
}

static enum status retire_locked(const char *dir, enum peer_role role, struct error *err)
{
    char path[KEY_PATH_BYTES];
    struct public_keys publics;
    struct curve_keys now;
    TRY(refuse_pem(dir, role, err));
    TRY(keys_load(dir, role, &now, err));
    sodium_memzero(now.secret_key, sizeof now.secret_key);
    TRY(keys_load_publics(dir, role, &publics, err));
    if (publics.n < 2)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s/%s.pub has only one key, so no key can be retired. Make a new key "
                         "with `--rotate %s` first",
                         dir, peer_role_name(role), peer_role_name(role));
    if (strcmp(publics.keys[0], now.public_key) != 0)
        return error_set(err, STATUS_INVALID,
                         "%s/%s.key is still the old key: the rotation was interrupted. Run `cox "
                         "keys --keys-dir %s` to repair the .pub file, then rotate again",
                         dir, peer_role_name(role), dir);
    if (role != ROLE_HEAD)
        TRY(edit_authorized(dir, role, publics.keys[1], false, err));
    TRY(key_text_path(path, dir, peer_role_name(role), ".pub", err));
    return key_text_write_key(path, publics.keys[0], 0644, err);
}

enum status keys_rotate(const char *dir, enum peer_role role, struct error *err)
{
    int fd;
    TRY(key_text_lock_folder(dir, &fd, err));
    enum status s = rotate_locked(dir, role, err);
    close(fd);
    return s;
}

enum status keys_retire(const char *dir, enum peer_role role, struct error *err)
{
    int fd;
    TRY(key_text_lock_folder(dir, &fd, err));
    enum status s = retire_locked(dir, role, err);
    close(fd);
    return s;
}
