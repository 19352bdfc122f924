/* Reads and writes the text of one key file. A secret is written to a temporary file with mode
 * 0600, which is then renamed, so that a crash leaves a complete key or none. */
#include "common/keys/key_text.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/keys/pem.h"

enum { KEY_FILE_MAX_BYTES = 16384 /* most bytes of a key file; two certificates fit */ };

/* Decodes 40 characters of Z85 into 32 bytes. */
bool key_text_decode(struct str text, uint8_t out[KEY_BYTES])
{
    char z[KEY_CHARS + 1];
    if (text.len != KEY_CHARS || memchr(text.ptr, '\0', text.len))
        return false;
    memcpy(z, text.ptr, KEY_CHARS);
    z[KEY_CHARS] = '\0';
    bool ok = zmq_z85_decode(out, z) != NULL;
    sodium_memzero(z, sizeof z);
    return ok;
}

enum status key_text_path(char out[KEY_PATH_BYTES], const char *dir, const char *name,
                          const char *suffix, struct error *err)
{
    if (snprintf(out, KEY_PATH_BYTES, "%s/%s%s", dir, name, suffix) < KEY_PATH_BYTES)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "the path of the key folder is too long. Use a shorter path (--keys-dir)");
}

/* Reads a key file as text. `stamp` may be NULL; a missing file leaves it unchanged. */
enum status key_text_read(const char *path, struct strbuf *out, struct key_file_stamp *stamp,
                          struct error *err)
{
    char chunk[4096];
    ssize_t n = -1;
    struct stat st;
    /* O_NONBLOCK is set, because otherwise a FIFO would block the open */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err,
                         errno == ENOENT   ? STATUS_NOT_FOUND
                         : errno == EACCES ? STATUS_DENIED
                                           : STATUS_IO,
                         "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return error_set(err, STATUS_INVALID,
                         "the key file %s is not a regular file. Give a regular file", path);
    }
    if (stamp)
        *stamp = key_file_stamp_of(&st);
    while ((n = read(fd, chunk, sizeof chunk)) > 0 && strbuf_append(out, chunk, (size_t)n)) {
    }
    int e = errno;
    close(fd);
    sodium_memzero(chunk, sizeof chunk);
    if (out->failed)
        return error_set(err, STATUS_LIMIT,
                         "%s is too large for a key file. Give the file of a key", path);
    return n < 0 ? error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(e)) : STATUS_OK;
}

/* Reads up to `max` lines with one key each. The first key is the newest. */
static enum status parse_keys(struct str text, const char *path, char (*out)[KEY_CHARS + 1],
                              uint32_t max, uint32_t *n, struct error *err)
{
    uint8_t raw[KEY_BYTES];
    struct str rest = str_trim(text, KEY_BLANKS);
    bool ok = rest.len > 0;
    for (*n = 0; ok && rest.len; rest = str_trim(rest, KEY_BLANKS)) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t len = end ? (size_t)(end - rest.ptr) : rest.len;
        struct str key = str_trim((struct str){rest.ptr, len}, KEY_BLANKS);
        ok = *n < max && key_text_decode(key, raw);
        if (ok) {
            memcpy(out[*n], key.ptr, KEY_CHARS);
            out[(*n)++][KEY_CHARS] = '\0';
        }
        rest = (struct str){rest.ptr + len, rest.len - len};
    }
    sodium_memzero(raw, sizeof raw);
    if (ok)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "%s does not contain a key. It must contain 40 Z85 characters%s, or the PEM "
                     "of an Ed25519 or X25519 key",
                     path, max > 1 ? " (or two such lines)" : "");
}

/* Parses PEM: the secret of a .key file (max 1), or the public keys of a .pub file. */
static enum status parse_pem(struct str text, const char *path, char (*out)[KEY_CHARS + 1],
                             uint32_t max, uint32_t *n, struct error *err)
{
    uint8_t raw[PUBLIC_KEYS_MAX][KEY_BYTES] = {0};
    enum status s;
    *n = 1;
    if (max == 1)
        s = key_pem_secret(text, path, raw[0], err);
    else
        s = key_pem_publics(text, path, raw, PUBLIC_KEYS_MAX, n, err);
    for (uint32_t i = 0; s == STATUS_OK && i < *n; i++)
        zmq_z85_encode(out[i], raw[i], KEY_BYTES);
    sodium_memzero(raw, sizeof raw);
    return s;
}

/* Reads the keys of a file. `max` is 1 for a secret, PUBLIC_KEYS_MAX for a .pub file. `is_pem`
 * and `stamp` may be NULL. */
enum status key_text_read_keys(const char *path, char (*out)[KEY_CHARS + 1], uint32_t max,
                               uint32_t *n, bool *is_pem, struct key_file_stamp *stamp,
                               struct error *err)
{
    struct strbuf text;
    strbuf_init(&text, KEY_FILE_MAX_BYTES);
    enum status s = key_text_read(path, &text, stamp, err);
    bool pem = s == STATUS_OK && key_pem_is(strbuf_str(&text));
    if (is_pem)
        *is_pem = pem;
    if (s == STATUS_NOT_FOUND)
        s = error_set(err, s,
                      "the key file %s does not exist. Run `cox keys --keys-dir DIR` once to make "
                      "the keys for all machines of a cluster",
                      path);
    if (s == STATUS_OK)
        s = (pem ? parse_pem : parse_keys)(strbuf_str(&text), path, out, max, n, err);
    if (text.ptr)
        sodium_memzero(text.ptr, text.len);
    strbuf_fini(&text);
    return s;
}

enum status key_text_read_secret(const char *path, char out[KEY_CHARS + 1], bool *is_pem,
                                 struct error *err)
{
    uint32_t n;
    char key[1][KEY_CHARS + 1];
    enum status s = key_text_read_keys(path, key, 1, &n, is_pem, NULL, err);
    if (s == STATUS_OK)
        memcpy(out, key[0], sizeof key[0]);
    sodium_memzero(key, sizeof key);
    return s;
}

/* Writes a temporary file, syncs and renames it, so that the new content appears whole or not at
 * all. */
enum status key_text_write(const char *path, struct str text, mode_t mode, struct error *err)
{
    char temporary[KEY_PATH_BYTES + 8];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    /* a killed run may have left this file; no other program uses it while the folder is locked */
    unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot create %s: %s", temporary, strerror(errno));
    bool ok = write(fd, text.ptr, text.len) == (ssize_t)text.len && fsync(fd) == 0;
    ok = close(fd) == 0 && ok && rename(temporary, path) == 0;
    if (ok)
        return STATUS_OK;
    enum status s = error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(errno));
    (void)unlink(temporary); /* the temporary file may contain half a key */
    return s;
}

enum status key_text_write_key(const char *path, const char *key, mode_t mode, struct error *err)
{
    char line[KEY_CHARS + 2];
    snprintf(line, sizeof line, "%s\n", key);
    enum status s = key_text_write(path, (struct str){line, KEY_CHARS + 1}, mode, err);
    sodium_memzero(line, sizeof line);
    return s;
}

/* Locks a folder of keys; closing *fd releases the lock. */
enum status key_text_lock_folder(const char *dir, int *fd, struct error *err)
{
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0 && flock(*fd, LOCK_EX) == 0)
        return STATUS_OK;
    int e = errno;
    if (*fd >= 0)
        close(*fd);
    return error_set(err, STATUS_IO, "cannot lock the key folder %s: %s", dir, strerror(e));
}
