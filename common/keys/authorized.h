#pragma once
/* Lists the peers that may connect. DIR/authorized has lines "role public-key", or "role @FILE"
 * for all keys of a .pub file in the same folder. The ZAP handler admits exactly these keys. The
 * list is plain data, and its owner decides which thread reads it. */
#include "common/base/str.h"
#include "common/keys/file_watch.h"
#include "proto/messages.h"

enum { AUTHORIZED_MAX_BYTES = 1 << 20 };
/* AUTHORIZED_FILES_MAX counts `authorized` itself and up to eight files that it names. */
#define AUTHORIZED_FILES_MAX 9u
/* size of a file's name; shorter than a key, so a name and a key cannot be confused */
#define AUTHORIZED_NAME_BYTES 39u
struct authorized {
    struct {
        enum peer_role role;
        char public_key[41];
    } * entries;
    uint32_t n_entries, n_files;
    struct authorized_file {
        /* name of the file; "" for the first file, `authorized` itself */
        char name[AUTHORIZED_NAME_BYTES];
        struct key_file_stamp stamp; /* state of the file when it was read */
    } files[AUTHORIZED_FILES_MAX];
};
/* Reads DIR/authorized. On an error `out` has no entries, but it lists all files up to the
 * error, so that the caller can watch them for a correction. */
MUST_USE enum status authorized_load(const char *path, struct authorized *out, struct error *err);
/* Parses one line of `authorized`: "role key", "role @file", a comment, or a blank line. `path`
 * and `i_line` are for the error text. */
MUST_USE enum status authorized_parse_line(struct str line, struct authorized *out,
                                           const char *path, size_t i_line, struct error *err);
bool authorized_has(const struct authorized *a, enum peer_role role, const char *public_key);
void authorized_fini(struct authorized *a);
