#pragma once
/* The steps that a file in one stream (file.c) and a file in ranges (ranges.c) share: paths, and
 * the hashes that say whether it is the right one. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/base/str.h"
#include "common/keys/digest.h"

/* FOLDER/NAME with end behind, of PATH_MAX bytes. */
MUST_USE enum status pull_part_path(const char *folder, const char *name, const char *end,
                                    char *out, struct error *err);
bool pull_part_has_size(const char *path, uint64_t n_bytes);
/* The folders of a name that has some. */
MUST_USE enum status pull_part_parents(const char *folder, const char *path, struct error *err);
/* By errno; of a full disk what to do about it. */
enum status pull_part_error(const char *path, struct error *err);
/* All of piece at that place of fd, which is path. */
MUST_USE enum status pull_part_write(int fd, const char *path, struct str piece, uint64_t at,
                                     struct error *err);
/* False: this process was stopped for so long that its files are another's. */
bool pull_part_may_write(const struct pull_file *f, struct pull_lock *lock, struct error *err);

struct pull_digests {
    struct digest *sha256, *git; /* git: NULL when no id is known */
};
/* Frees what was there. */
MUST_USE enum status pull_digests_start(struct pull_digests *d, const struct pull_file *f,
                                        struct error *err);
MUST_USE bool pull_digests_add(struct pull_digests *d, const void *bytes, size_t n);
/* The bytes [*at, end) of fd; *at goes with them. CLOSED: stopped. */
MUST_USE enum status pull_digests_read(struct pull_digests *d, const struct fetch_net *net, int fd,
                                       const char *path, uint64_t *at, uint64_t end,
                                       struct error *err);
/* Are they f's? sha256 gets what was found. */
bool pull_digests_end(struct pull_digests *d, const struct pull_file *f, char *sha256);
void pull_digests_free(struct pull_digests *d);
/* Are path's bytes those that f's hashes stand for? PROTOCOL: no; CLOSED: stopped. */
MUST_USE enum status pull_file_check(const struct fetch_net *net, const struct pull_file *f,
                                     const char *path, struct error *err);
/* The SHA-256 of a file here; CLOSED when stopped. */
MUST_USE enum status pull_file_hash(const struct fetch_net *net, const char *path, char *sha256,
                                    struct error *err);
