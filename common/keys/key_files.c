/* Key files. Each holds one Z85 key and a newline, or PEM that somebody else made. A secret is
 * written to a temporary name with mode 0600 and renamed, so that a crash leaves a whole key or
 * none, and a lock on the folder makes two programs that start at once agree. The public key is
 * derived from the secret, so a .pub file that belongs to another secret is found out. */
#include "common/keys/key_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/keys/pem.h"

enum {
    KEY_BYTES = 32,
    KEY_CHARS = 40,
    PATH_BYTES = 1024,
    KEY_FILE_MAX_BYTES = 16384, /* two certificates */
    AUTHORIZED_MAX_BYTES = 1 << 20,
    AUTHORIZED_MAX_ENTRIES = 4096,
    TOKEN_SUM_BYTES = 4,
    TOKEN_OTHER_BYTES = 1 + KEY_BYTES,
    TOKEN_MAX_BYTES = 3 * KEY_BYTES + 256 + TOKEN_OTHER_BYTES + TOKEN_SUM_BYTES
};

static const char token_prefix[] = "cox1.";
static const enum peer_role key_roles[] = {ROLE_HEAD, ROLE_GATEWAY, ROLE_WORKER, ROLE_OPERATOR};
enum { N_KEY_ROLES = sizeof key_roles / sizeof *key_roles };

/* 40 characters of Z85 that stand for 32 bytes. */
static bool key_decode(struct str text, uint8_t out[KEY_BYTES])
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

enum status keys_generate(struct curve_keys *out, struct error *err)
{
    if (zmq_curve_keypair(out->public_key, out->secret_key) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "libzmq was built without CURVE: %s",
                     zmq_strerror(errno));
}

/* ---- files ---- */

static enum status key_path(char out[PATH_BYTES], const char *dir, const char *name,
                            const char *suffix, struct error *err)
{
    if (snprintf(out, PATH_BYTES, "%s/%s%s", dir, name, suffix) < PATH_BYTES)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "the path of the key folder is too long");
}

static struct str trimmed(struct str s)
{
    static const char blanks[] = " \t\r\n";
    while (s.len && memchr(blanks, s.ptr[s.len - 1], sizeof blanks - 1))
        s.len--;
    while (s.len && memchr(blanks, s.ptr[0], sizeof blanks - 1))
        s = (struct str){s.ptr + 1, s.len - 1};
    return s;
}

/* stamp may be NULL; of a file that is not there it stays as it is. */
static enum status read_text(const char *path, struct strbuf *out, struct key_file_stamp *stamp,
                             struct error *err)
{
    char chunk[4096];
    ssize_t n = -1;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would have it wait for ever */
    if (fd < 0)
        return error_set(err,
                         errno == ENOENT   ? STATUS_NOT_FOUND
                         : errno == EACCES ? STATUS_DENIED
                                           : STATUS_IO,
                         "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return error_set(err, STATUS_INVALID, "%s: not a regular file", path);
    }
    if (stamp)
        *stamp = key_file_stamp_of(&st);
    while ((n = read(fd, chunk, sizeof chunk)) > 0 && strbuf_append(out, chunk, (size_t)n)) {
    }
    int e = errno;
    close(fd);
    sodium_memzero(chunk, sizeof chunk);
    if (out->failed)
        return error_set(err, STATUS_LIMIT, "%s: too large for a file of keys", path);
    return n < 0 ? error_set(err, STATUS_IO, "%s: %s", path, strerror(e)) : STATUS_OK;
}

/* Up to max lines of a key each; the first is the newest. */
static enum status parse_keys(struct str text, const char *path, char (*out)[KEY_CHARS + 1],
                              uint32_t max, uint32_t *n, struct error *err)
{
    uint8_t raw[KEY_BYTES];
    struct str rest = trimmed(text);
    bool ok = rest.len > 0;
    for (*n = 0; ok && rest.len; rest = trimmed(rest)) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t len = end ? (size_t)(end - rest.ptr) : rest.len;
        struct str key = trimmed((struct str){rest.ptr, len});
        ok = *n < max && key_decode(key, raw);
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
                     "%s: not a key: 40 characters of Z85 are wanted%s, or PEM of an Ed25519 or "
                     "X25519 key",
                     path, max > 1 ? ", or two lines of them" : "");
}

/* The same from PEM: a .key file's one secret (max 1), or the public keys of a .pub file. */
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

/* max: 1 for a secret, PUBLIC_KEYS_MAX for a .pub file. is_pem may be NULL. */
static enum status read_keys(const char *path, char (*out)[KEY_CHARS + 1], uint32_t max,
                             uint32_t *n, bool *is_pem, struct key_file_stamp *stamp,
                             struct error *err)
{
    struct strbuf text;
    strbuf_init(&text, KEY_FILE_MAX_BYTES);
    enum status s = read_text(path, &text, stamp, err);
    bool pem = s == STATUS_OK && key_pem_is(strbuf_str(&text));
    if (is_pem)
        *is_pem = pem;
    if (s == STATUS_NOT_FOUND)
        s = error_set(
            err, s,
            "%s: there is no such key; `cox keys --keys-dir DIR` makes them, once for all "
            "machines of a cluster",
            path);
    if (s == STATUS_OK)
        s = (pem ? parse_pem : parse_keys)(strbuf_str(&text), path, out, max, n, err);
    if (text.ptr)
        sodium_memzero(text.ptr, text.len);
    strbuf_fini(&text);
    return s;
}

static enum status read_secret(const char *path, char out[KEY_CHARS + 1], bool *is_pem,
                               struct error *err)
{
    uint32_t n;
    char key[1][KEY_CHARS + 1];
    enum status s = read_keys(path, key, 1, &n, is_pem, NULL, err);
    if (s == STATUS_OK)
        memcpy(out, key[0], sizeof key[0]);
    sodium_memzero(key, sizeof key);
    return s;
}

/* Whole or not at all: temporary name, fsync, rename. */
static enum status write_text(const char *path, struct str text, mode_t mode, struct error *err)
{
    char temporary[PATH_BYTES + 8];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    unlink(temporary); /* of a run that was killed; the folder is locked */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return error_set(err, STATUS_IO, "%s: %s", temporary, strerror(errno));
    bool ok = write(fd, text.ptr, text.len) == (ssize_t)text.len && fsync(fd) == 0;
    ok = close(fd) == 0 && ok && rename(temporary, path) == 0;
    if (ok)
        return STATUS_OK;
    enum status s = error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    (void)unlink(temporary); /* it may have half a key in it */
    return s;
}

static enum status write_key(const char *path, const char *key, mode_t mode, struct error *err)
{
    char line[KEY_CHARS + 2];
    snprintf(line, sizeof line, "%s\n", key);
    enum status s = write_text(path, (struct str){line, KEY_CHARS + 1}, mode, err);
    sodium_memzero(line, sizeof line);
    return s;
}

/* mkdir -p, the last one 0700. */
static enum status make_folder(const char *dir, struct error *err)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s", dir) >= PATH_BYTES || !*dir)
        return error_set(err, STATUS_INVALID, "the path of the key folder is empty or too long");
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0755); /* a failure shows at the last one */
            *p = '/';
        }
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "key folder %s: %s: name one that can be made here (--keys-dir)", dir,
                     strerror(errno));
}

static enum status make_pair(const char *dir, enum peer_role role, struct error *err)
{
    char secret_path[PATH_BYTES], public_path[PATH_BYTES];
    struct public_keys have;
    struct curve_keys keys;
    bool is_pem = false;
    TRY(key_path(secret_path, dir, peer_role_name(role), ".key", err));
    TRY(key_path(public_path, dir, peer_role_name(role), ".pub", err));
    enum status s = read_secret(secret_path, keys.secret_key, &is_pem, err);
    if (s == STATUS_NOT_FOUND) {
        TRY(keys_generate(&keys, err));
        s = write_key(secret_path, keys.secret_key, 0600, err);
    } else if (s == STATUS_OK) {
        zmq_curve_public(keys.public_key, keys.secret_key);
    }
    bool is_known = s == STATUS_OK && keys_load_publics(dir, role, &have, NULL) == STATUS_OK &&
                    strcmp(have.keys[0], keys.public_key) == 0;
    if (s == STATUS_OK && is_pem && access(public_path, F_OK) == 0)
        s = keys_load(dir, role, &keys, err); /* theirs who made it, right or wrong */
    else if (s == STATUS_OK && !is_known)
        s = write_key(public_path, keys.public_key, 0644, err);
    sodium_memzero(keys.secret_key, sizeof keys.secret_key);
    return s;
}

/* Adds our own roles' keys to DIR/authorized; lines that are there stay as they are. */
static enum status make_authorized(const char *dir, struct error *err)
{
    char path[PATH_BYTES], key[KEY_CHARS + 1];
    struct strbuf text;
    struct authorized have = {0};
    TRY(key_path(path, dir, "authorized", "", err));
    strbuf_init(&text, AUTHORIZED_MAX_BYTES);
    enum status s = authorized_load(path, &have, err);
    if (s == STATUS_OK)
        s = read_text(path, &text, NULL, err);
    else if (s == STATUS_NOT_FOUND)
        s = STATUS_OK;
    size_t before = text.len;
    if (text.len && text.ptr[text.len - 1] != '\n')
        strbuf_append_c(&text, "\n");
    for (int i = 0; i < N_KEY_ROLES && s == STATUS_OK; i++) {
        bool known = key_roles[i] == ROLE_HEAD;
        if (!known)
            s = keys_load_public(dir, key_roles[i], key, err);
        for (uint32_t j = 0; j < have.n_entries && !known && s == STATUS_OK; j++)
            known = have.entries[j].role == key_roles[i] &&
                    strcmp(have.entries[j].public_key, key) == 0;
        if (!known && s == STATUS_OK)
            strbuf_printf(&text, "%s %s\n", peer_role_name(key_roles[i]), key);
    }
    if (s == STATUS_OK && text.len > before)
        s = write_text(path, strbuf_str(&text), 0600, err);
    authorized_fini(&have);
    strbuf_fini(&text);
    return s;
}

/* Closing *fd gives the lock back. */
static enum status lock_folder(const char *dir, int *fd, struct error *err)
{
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0 && flock(*fd, LOCK_EX) == 0)
        return STATUS_OK;
    int e = errno;
    if (*fd >= 0)
        close(*fd);
    return error_set(err, STATUS_IO, "key folder %s: %s", dir, strerror(e));
}

enum status keys_make_dir(const char *dir, struct error *err)
{
    int fd = -1;
    TRY(make_folder(dir, err));
    TRY(lock_folder(dir, &fd, err));
    enum status s = STATUS_OK;
    for (int i = 0; i < N_KEY_ROLES && s == STATUS_OK; i++)
        s = make_pair(dir, key_roles[i], err);
    if (s == STATUS_OK)
        s = make_authorized(dir, err);
    close(fd); /* and the lock */
    return s;
}

enum status keys_load(const char *dir, enum peer_role role, struct curve_keys *out,
                      struct error *err)
{
    char path[PATH_BYTES];
    struct public_keys publics;
    struct stat st;
    TRY(key_path(path, dir, peer_role_name(role), ".key", err));
    enum status s = read_secret(path, out->secret_key, NULL, err);
    if (s == STATUS_NOT_FOUND)
        return error_set(
            err, s, "%s: no such file; `cox keys --keys-dir %s` makes a cluster's keys", path, dir);
    TRY(s);
    /* a Kubernetes secret is read through its group; anybody else has no business here */
    if (stat(path, &st) == 0 && (st.st_mode & 0007))
        log_warn("key_readable_by_all", "path=%s mode=%o", log_quote(path),
                 (unsigned)st.st_mode & 0777);
    zmq_curve_public(out->public_key, out->secret_key);
    s = keys_load_publics(dir, role, &publics, err);
    if (s == STATUS_NOT_FOUND)
        return STATUS_OK;
    bool is_there = false; /* as the second one while keys_rotate is between two files */
    for (uint32_t i = 0; s == STATUS_OK && i < publics.n; i++)
        is_there |= strcmp(publics.keys[i], out->public_key) == 0;
    if (s == STATUS_OK && !is_there)
        s = error_set(err, STATUS_INVALID,
                      "%s: does not belong to the .pub file beside it; remove the wrong one", path);
    return s;
}

enum status keys_load_publics(const char *dir, enum peer_role role, struct public_keys *out,
                              struct error *err)
{
    char path[PATH_BYTES];
    *out = (struct public_keys){0};
    TRY(key_path(path, dir, peer_role_name(role), ".pub", err));
    return read_keys(path, out->keys, PUBLIC_KEYS_MAX, &out->n, NULL, NULL, err);
}

enum status keys_load_public(const char *dir, enum peer_role role, char out[41], struct error *err)
{
    struct public_keys k;
    enum status s = keys_load_publics(dir, role, &k, err);
    memcpy(out, k.keys[0], sizeof k.keys[0]);
    return s;
}

/* ---- who may connect ---- */

static enum peer_role role_from(struct str name)
{
    for (int i = 0; i < N_KEY_ROLES; i++)
        if (str_eq_c(name, peer_role_name(key_roles[i])))
            return key_roles[i];
    return ROLE_NONE;
}

static enum status add_entry(struct authorized *out, enum peer_role role, const char *key,
                             const char *path, struct error *err)
{
    if (out->n_entries == AUTHORIZED_MAX_ENTRIES)
        return error_set(err, STATUS_LIMIT, "%s: more than %d keys", path, AUTHORIZED_MAX_ENTRIES);
    if ((out->n_entries & (out->n_entries - 1)) == 0)
        out->entries = mem_realloc(out->entries, (out->n_entries ? out->n_entries * 2 : 1) *
                                                     sizeof *out->entries);
    out->entries[out->n_entries].role = role;
    memcpy(out->entries[out->n_entries].public_key, key, KEY_CHARS);
    out->entries[out->n_entries++].public_key[KEY_CHARS] = '\0';
    return STATUS_OK;
}

/* A name in the folder of authorized, and of nothing outside of it. */
static bool file_name_is_plain(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              (i > 0 && c == '.') || c == '-' || c == '_'))
            return false;
    }
    return name.len > 0 && name.len < AUTHORIZED_NAME_BYTES;
}

/* "role @NAME": all keys of the file NAME beside path. */
static enum status add_file(struct authorized *out, enum peer_role role, struct str name,
                            const char *path, struct error *err)
{
    char file[PATH_BYTES];
    struct public_keys k = {0};
    const char *slash = strrchr(path, '/');
    if (!file_name_is_plain(name))
        return error_set(err, STATUS_INVALID,
                         "\"@\" wants the name of a file in the same folder: at most %u letters, "
                         "digits, \".\", \"-\" and \"_\"",
                         AUTHORIZED_NAME_BYTES - 1);
    if (out->n_files == AUTHORIZED_FILES_MAX)
        return error_set(err, STATUS_LIMIT, "more than %u files", AUTHORIZED_FILES_MAX - 1);
    if (snprintf(file, sizeof file, "%.*s" STR_FMT, slash ? (int)(slash + 1 - path) : 0, path,
                 STR_ARG(name)) >= PATH_BYTES)
        return error_set(err, STATUS_INVALID, "the path of the key folder is too long");
    struct authorized_file *f = &out->files[out->n_files++];
    memcpy(f->name, name.ptr, name.len);
    f->name[name.len] = '\0';
    f->stamp = KEY_FILE_GONE;
    enum status s = read_keys(file, k.keys, PUBLIC_KEYS_MAX, &k.n, NULL, &f->stamp, err);
    if (s == STATUS_NOT_FOUND) /* authorized itself is there */
        s = error_set(err, STATUS_INVALID, "%s: there is no such file", file);
    for (uint32_t i = 0; s == STATUS_OK && i < k.n; i++)
        s = add_entry(out, role, k.keys[i], path, err);
    return s;
}

/* One line: "role key", "role @file", a comment, or blank. */
static enum status parse_line(struct str line, struct authorized *out, const char *path,
                              size_t i_line, struct error *err)
{
    uint8_t raw[KEY_BYTES];
    line = trimmed(line);
    if (line.len == 0 || line.ptr[0] == '#')
        return STATUS_OK;
    size_t n = 0;
    while (n < line.len && line.ptr[n] != ' ' && line.ptr[n] != '\t')
        n++;
    enum peer_role role = role_from((struct str){line.ptr, n});
    struct str key = trimmed((struct str){line.ptr + n, line.len - n});
    if (role == ROLE_NONE || role == ROLE_HEAD)
        return error_set(err, STATUS_INVALID,
                         "%s:%zu: a line is \"gateway|worker|operator PUBLIC-KEY\", or @FILE for "
                         "the key",
                         path, i_line);
    bool is_key = key_decode(key, raw); /* may begin with "@", too */
    if (!is_key && key.len && key.ptr[0] == '@') {
        enum status s = add_file(out, role, (struct str){key.ptr + 1, key.len - 1}, path, err);
        return s == STATUS_OK ? s : error_prefix(err, s, "%s:%zu", path, i_line);
    }
    if (!is_key)
        return error_set(err, STATUS_INVALID, "%s:%zu: not a public key of 40 Z85 characters", path,
                         i_line);
    return add_entry(out, role, key.ptr, path, err);
}

enum status authorized_load(const char *path, struct authorized *out, struct error *err)
{
    struct strbuf text;
    *out = (struct authorized){.n_files = 1};
    out->files[0].stamp = KEY_FILE_GONE;
    strbuf_init(&text, AUTHORIZED_MAX_BYTES);
    enum status s = read_text(path, &text, &out->files[0].stamp, err);
    struct str rest = strbuf_str(&text);
    for (size_t i_line = 1; s == STATUS_OK && rest.len; i_line++) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n = end ? (size_t)(end - rest.ptr) : rest.len, skip = n + (end != NULL);
        s = parse_line((struct str){rest.ptr, n}, out, path, i_line, err);
        rest = (struct str){rest.ptr + skip, rest.len - skip};
    }
    if (s != STATUS_OK) {
        mem_free(out->entries);
        out->entries = NULL;
        out->n_entries = 0;
    }
    strbuf_fini(&text);
    return s;
}

bool authorized_has(const struct authorized *a, enum peer_role role, const char *public_key)
{
    for (uint32_t i = 0; i < a->n_entries; i++)
        if (a->entries[i].role == role && strcmp(a->entries[i].public_key, public_key) == 0)
            return true;
    return false;
}

void authorized_fini(struct authorized *a)
{
    mem_free(a->entries);
    *a = (struct authorized){0};
}

/* ---- changing keys ---- */

/* DIR/authorized with one more line (add), or without the lines of a role's key. All other lines
 * stay as people wrote them, and so do those that name a file: what it holds changes there. */
static enum status edit_authorized(const char *dir, enum peer_role role, const char *key, bool add,
                                   struct error *err)
{
    char path[PATH_BYTES];
    struct strbuf text, out;
    struct authorized known = {0};
    TRY(key_path(path, dir, "authorized", "", err));
    TRY(authorized_load(path, &known, err)); /* what has an error is a person's to mend first */
    authorized_fini(&known);
    strbuf_init(&text, AUTHORIZED_MAX_BYTES);
    strbuf_init(&out, AUTHORIZED_MAX_BYTES);
    enum status s = read_text(path, &text, NULL, err);
    struct str rest = strbuf_str(&text);
    while (s == STATUS_OK && rest.len) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n = end ? (size_t)(end - rest.ptr) : rest.len;
        struct authorized line = {0};
        s = parse_line((struct str){rest.ptr, n}, &line, path, 1, err);
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
        s = write_text(path, strbuf_str(&out), 0600, err);
    strbuf_fini(&text);
    strbuf_fini(&out);
    return s;
}

/* A change by us would leave PEM and our own lines side by side, and who made the one would put it
 * back. */
static enum status refuse_pem(const char *dir, enum peer_role role, struct error *err)
{
    char path[PATH_BYTES], key[KEY_CHARS + 1];
    bool is_pem = false;
    TRY(key_path(path, dir, peer_role_name(role), ".key", err));
    enum status s = read_secret(path, key, &is_pem, err);
    sodium_memzero(key, sizeof key);
    if (s == STATUS_OK && is_pem)
        s = error_set(err, STATUS_UNSUPPORTED,
                      "%s: is PEM, and changed by who made it: a new key and certificate, with the "
                      "old certificate as the second one of the .pub file until all have the new "
                      "one",
                      path);
    return s;
}

static enum status rotate_locked(const char *dir, enum peer_role role, struct error *err)
{
    char path[PATH_BYTES], lines[2 * (KEY_CHARS + 1) + 1];
    struct public_keys old;
    struct curve_keys now, next;
    TRY(refuse_pem(dir, role, err));
    TRY(keys_load(dir, role, &now, err));
    sodium_memzero(now.secret_key, sizeof now.secret_key);
    TRY(keys_load_publics(dir, role, &old, err));
    if (old.n > 1)
        return error_set(err, STATUS_EXISTS,
                         "%s/%s.pub has two keys: the change before this one is not at its end; "
                         "`cox keys --keys-dir %s --retire %s` ends it",
                         dir, peer_role_name(role), dir, peer_role_name(role));
    TRY(keys_generate(&next, err));
    /* Admitted before anybody can have it; public before secret, so that each file that a program
     * reads meanwhile belongs to the other. */
    enum status s = STATUS_OK;
    if (role != ROLE_HEAD)
        s = edit_authorized(dir, role, next.public_key, true, err);
    snprintf(lines, sizeof lines, "%s\n%s\n", next.public_key, old.keys[0]);
    if (s == STATUS_OK)
        s = key_path(path, dir, peer_role_name(role), ".pub", err);
    if (s == STATUS_OK)
        s = write_text(path, str_from(lines), 0644, err);
    if (s == STATUS_OK)
        s = key_path(path, dir, peer_role_name(role), ".key", err);
    if (s == STATUS_OK)
        s = write_key(path, next.secret_key, 0600, err);
    sodium_memzero(&next, sizeof next);
    return s;
}

static enum status retire_locked(const char *dir, enum peer_role role, struct error *err)
{
    char path[PATH_BYTES];
    struct public_keys publics;
    struct curve_keys now;
    TRY(refuse_pem(dir, role, err));
    TRY(keys_load(dir, role, &now, err));
    sodium_memzero(now.secret_key, sizeof now.secret_key);
    TRY(keys_load_publics(dir, role, &publics, err));
    if (publics.n < 2)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s/%s.pub has one key: there is none to retire; `--rotate %s` makes a "
                         "new one first",
                         dir, peer_role_name(role), peer_role_name(role));
    if (strcmp(publics.keys[0], now.public_key) != 0)
        return error_set(err, STATUS_INVALID,
                         "%s/%s.key is still the old key: the rotation was cut off; `cox keys "
                         "--keys-dir %s` puts the .pub file right, then rotate again",
                         dir, peer_role_name(role), dir);
    if (role != ROLE_HEAD)
        TRY(edit_authorized(dir, role, publics.keys[1], false, err));
    TRY(key_path(path, dir, peer_role_name(role), ".pub", err));
    return write_key(path, publics.keys[0], 0644, err);
}

enum status keys_rotate(const char *dir, enum peer_role role, struct error *err)
{
    int fd;
    TRY(lock_folder(dir, &fd, err));
    enum status s = rotate_locked(dir, role, err);
    close(fd);
    return s;
}

enum status keys_retire(const char *dir, enum peer_role role, struct error *err)
{
    int fd;
    TRY(lock_folder(dir, &fd, err));
    enum status s = retire_locked(dir, role, err);
    close(fd);
    return s;
}

void keys_fingerprint(const char *public_key, char out[KEYS_FINGERPRINT_BYTES])
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)public_key, strlen(public_key), NULL, 0);
    sodium_bin2hex(out, KEYS_FINGERPRINT_BYTES, hash, (KEYS_FINGERPRINT_BYTES - 1) / 2);
}

/* ---- join token ---- */

static void token_sum(const uint8_t *bytes, size_t n, uint8_t out[TOKEN_SUM_BYTES])
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, bytes, n, NULL, 0);
    memcpy(out, hash, TOKEN_SUM_BYTES); /* against typing errors, not against people */
}

static bool address_is_valid(struct str head)
{
    uint64_t port;
    size_t colon = head.len;
    for (size_t i = 0; i < head.len; i++) {
        if ((unsigned char)head.ptr[i] <= ' ' || (unsigned char)head.ptr[i] >= 0x7F)
            return false;
        if (head.ptr[i] == ':')
            colon = i;
    }
    return colon > 0 && colon < head.len && head.len < 256 &&
           str_to_u64((struct str){head.ptr + colon + 1, head.len - colon - 1}, &port) ==
               STATUS_OK &&
           port > 0 && port < 65536;
}

/* HOST:PORT, or those of several heads with commas. */
static bool head_is_valid(struct str head)
{
    const char *comma;
    if (head.len >= 256)
        return false;
    while ((comma = memchr(head.ptr, ',', head.len)) != NULL) {
        size_t n = (size_t)(comma - head.ptr);
        if (!address_is_valid((struct str){head.ptr, n}))
            return false;
        head = (struct str){comma + 1, head.len - n - 1};
    }
    return address_is_valid(head);
}

enum status join_token_check_head(const char *head, struct error *err)
{
    uint32_t n = 1;
    const char *scheme = strstr(head, "://");
    for (const char *p = head; *p; p++)
        n += *p == ',';
    if (scheme)
        return error_set(
            err, STATUS_INVALID,
            "a join token needs HOST:PORT of the head without a scheme, as in \"%.200s\", "
            "not \"%.200s\"",
            scheme + 3, head);
    if (n > JOIN_TOKEN_MAX_HEADS)
        return error_set(err, STATUS_INVALID,
                         "a join token takes %u addresses of heads, not %u: of the one that serves "
                         "and those that wait",
                         JOIN_TOKEN_MAX_HEADS, n);
    if (!head_is_valid(str_from(head)))
        return error_set(err, STATUS_INVALID,
                         "a join token needs HOST:PORT of the head, not \"%.200s\" (of several "
                         "heads HOST:PORT,HOST:PORT, less than 256 characters)",
                         head);
    return STATUS_OK;
}

static enum status token_has_no_key(uint8_t raw[TOKEN_MAX_BYTES], struct error *err)
{
    sodium_memzero(raw, TOKEN_MAX_BYTES);
    return error_set(err, STATUS_INVALID, "a join token needs keys of 40 Z85 characters");
}

/* bytes: head's public key, our public key, our secret key, HOST:PORT, checksum. A second key of
 * the head stands behind the address and a 0: who knows none of it calls such a token damaged. */
enum status join_token_encode(const struct join_token *t, char *out, size_t out_size,
                              struct error *err)
{
    uint8_t raw[TOKEN_MAX_BYTES];
    struct str head = str_from(t->head);
    const size_t prefix = sizeof token_prefix - 1;
    TRY(join_token_check_head(t->head, err));
    if (!key_decode(str_from(t->head_public_key), raw) ||
        !key_decode(str_from(t->keys.public_key), raw + KEY_BYTES) ||
        !key_decode(str_from(t->keys.secret_key), raw + 2ul * KEY_BYTES))
        return token_has_no_key(raw, err);
    size_t n = 3ul * KEY_BYTES;
    memcpy(raw + n, head.ptr, head.len);
    n += head.len;
    if (t->other_head_key[0]) {
        raw[n] = 0;
        if (!key_decode(str_from(t->other_head_key), raw + n + 1))
            return token_has_no_key(raw, err);
        n += TOKEN_OTHER_BYTES;
    }
    token_sum(raw, n, raw + n);
    n += TOKEN_SUM_BYTES;
    enum status s = STATUS_OK;
    if (out_size < prefix + sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING))
        s = error_set(err, STATUS_LIMIT, "no room for a join token in %zu bytes", out_size);
    else {
        memcpy(out, token_prefix, prefix);
        sodium_bin2base64(out + prefix, out_size - prefix, raw, n,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    }
    sodium_memzero(raw, sizeof raw);
    return s;
}

static bool token_parse(const uint8_t *raw, size_t n, struct join_token *out)
{
    uint8_t sum[TOKEN_SUM_BYTES];
    char derived[KEY_CHARS + 1];
    if (n <= 3 * KEY_BYTES + TOKEN_SUM_BYTES)
        return false;
    n -= TOKEN_SUM_BYTES;
    token_sum(raw, n, sum);
    struct str head = {(const char *)raw + 3ul * KEY_BYTES, n - 3ul * KEY_BYTES};
    const char *other = memchr(head.ptr, 0, head.len);
    if (other && head.ptr + head.len - other != TOKEN_OTHER_BYTES)
        return false;
    head.len = other ? (size_t)(other - head.ptr) : head.len;
    if (memcmp(sum, raw + n, sizeof sum) != 0 || !head_is_valid(head))
        return false;
    memcpy(out->head, head.ptr, head.len);
    out->head[head.len] = '\0';
    zmq_z85_encode(out->head_public_key, raw, KEY_BYTES);
    if (other)
        zmq_z85_encode(out->other_head_key, (const uint8_t *)other + 1, KEY_BYTES);
    zmq_z85_encode(out->keys.public_key, raw + KEY_BYTES, KEY_BYTES);
    zmq_z85_encode(out->keys.secret_key, raw + 2ul * KEY_BYTES, KEY_BYTES);
    return zmq_curve_public(derived, out->keys.secret_key) == 0 &&
           strcmp(derived, out->keys.public_key) == 0;
}

/* libsodium 1.0.18 takes some bytes above 127 for letters: the alphabet is checked here. */
static bool base64_alphabet_only(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return true;
}

enum status join_token_decode(const char *text, struct join_token *out, struct error *err)
{
    uint8_t raw[TOKEN_MAX_BYTES];
    size_t n = 0;
    const char *end = NULL;
    struct str t = trimmed(str_from(text));
    *out = (struct join_token){0};
    bool ok = str_starts(t, STR("cox1."));
    if (ok) {
        const size_t prefix = sizeof token_prefix - 1;
        ok = base64_alphabet_only((struct str){t.ptr + prefix, t.len - prefix}) &&
             sodium_base642bin(raw, sizeof raw, t.ptr + prefix, t.len - prefix, NULL, &n, &end,
                               sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0 &&
             end == t.ptr + t.len && token_parse(raw, n, out);
    }
    sodium_memzero(raw, sizeof raw);
    if (ok)
        return STATUS_OK;
    *out = (struct join_token){0};
    return error_set(err, STATUS_INVALID,
                     "not a join token, or damaged on the way: copy the whole line that `cox "
                     "join-token` prints (it starts with cox1.)");
}
