#pragma once
/* The list of those who may connect: DIR/authorized has "role public-key" lines, or "role @FILE"
 * for all keys of a .pub file beside it; the ZAP handler admits exactly these. Plain data: its
 * owner decides which thread reads it. */
#include "common/base/str.h"
#include "common/keys/file_watch.h"
#include "proto/messages.h"

enum { AUTHORIZED_MAX_BYTES = 1 << 20 };
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
/* One line: "role key", "role @file", a comment, or blank. path and i_line are for the error. */
MUST_USE enum status authorized_parse_line(struct str line, struct authorized *out,
                                           const char *path, size_t i_line, struct error *err);
bool authorized_has(const struct authorized *a, enum peer_role role, const char *public_key);
void authorized_fini(struct authorized *a);
