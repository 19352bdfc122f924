/* Creates the folder of a cluster's keys. A lock on the folder makes two programs that start at
 * the same time use the same keys. */
#include "common/keys/key_folder.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/keys/authorized.h"
#include "common/keys/key_files.h"
#include "common/keys/key_text.h"

/* Creates the folder and its parents. The folder itself has mode 0700. */
static enum status make_folder(const char *dir, struct error *err)
{
    char path[KEY_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s", dir) >= KEY_PATH_BYTES || !*dir)
        return error_set(
            err, STATUS_INVALID,
            "the path of the key folder is empty or too long. Set --keys-dir to another path");
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0755); /* an error is not checked here, because the last mkdir reports it */
            *p = '/';
        }
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "cannot create the key folder %s: %s. Choose another folder with --keys-dir",
                     dir, strerror(errno));
}

static enum status make_pair(const char *dir, enum peer_role role, struct error *err)
{
    char secret_path[KEY_PATH_BYTES], public_path[KEY_PATH_BYTES];
    struct public_keys have;
    struct curve_keys keys;
    bool is_pem = false;
    TRY(key_text_path(secret_path, dir, peer_role_name(role), ".key", err));
    TRY(key_text_path(public_path, dir, peer_role_name(role), ".pub", err));
    enum status s = key_text_read_secret(secret_path, keys.secret_key, &is_pem, err);
    if (s == STATUS_NOT_FOUND) {
        TRY(keys_generate(&keys, err));
        s = key_text_write_key(secret_path, keys.secret_key, 0600, err);
    } else if (s == STATUS_OK) {
        zmq_curve_public(keys.public_key, keys.secret_key);
    }
    bool is_known = s == STATUS_OK && keys_load_publics(dir, role, &have, NULL) == STATUS_OK &&
                    strcmp(have.keys[0], keys.public_key) == 0;
    if (s == STATUS_OK && is_pem && access(public_path, F_OK) == 0)
        /* another tool made these files, so they are only checked */
        s = keys_load(dir, role, &keys, err);
    else if (s == STATUS_OK && !is_known)
        s = key_text_write_key(public_path, keys.public_key, 0644, err);
    sodium_memzero(keys.secret_key, sizeof keys.secret_key);
    return s;
}

/* Adds the keys of our own roles to DIR/authorized. Existing lines stay unchanged. */
static enum status make_authorized(const char *dir, struct error *err)
{
    char path[KEY_PATH_BYTES], key[KEY_CHARS + 1];
    struct strbuf text;
    struct authorized have = {0};
    TRY(key_text_path(path, dir, "authorized", "", err));
    strbuf_init(&text, AUTHORIZED_MAX_BYTES);
    enum status s = authorized_load(path, &have, err);
    if (s == STATUS_OK)
        s = key_text_read(path, &text, NULL, err);
    else if (s == STATUS_NOT_FOUND)
        s = STATUS_OK;
    size_t before = text.len;
    if (text.len && text.ptr[text.len - 1] != '\n')
        strbuf_append_c(&text, "\n");
    for (int i = 0; i < KEYS_N_ROLES && s == STATUS_OK; i++) {
        bool known = keys_roles[i] == ROLE_HEAD;
        if (!known)
            s = keys_load_public(dir, keys_roles[i], key, err);
        for (uint32_t j = 0; j < have.n_entries && !known && s == STATUS_OK; j++)
            known = have.entries[j].role == keys_roles[i] &&
                    strcmp(have.entries[j].public_key, key) == 0;
        if (!known && s == STATUS_OK)
            strbuf_printf(&text, "%s %s\n", peer_role_name(keys_roles[i]), key);
    }
    if (s == STATUS_OK && text.len > before)
        s = key_text_write(path, strbuf_str(&text), 0600, err);
    authorized_fini(&have);
    strbuf_fini(&text);
    return s;
}

enum status keys_make_dir(const char *dir, struct error *err)
{
    int fd = -1;
    TRY(make_folder(dir, err));
    TRY(key_text_lock_folder(dir, &fd, err));
    enum status s = STATUS_OK;
    for (int i = 0; i < KEYS_N_ROLES && s == STATUS_OK; i++)
        s = make_pair(dir, keys_roles[i], err);
    if (s == STATUS_OK)
        s = make_authorized(dir, err);
    close(fd); /* the close also releases the lock */
    return s;
}
