#pragma once
/* Declares the functions that a file in one stream (file.c) and a file in ranges (ranges.c)
 * share. The functions are about paths, writes, and the hashes that tell whether the file is
 * right. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/base/str.h"
#include "common/keys/digest.h"

/* Writes FOLDER/NAME followed by `end` to `out`, which has PATH_MAX bytes. */
MUST_USE enum status pull_part_path(const char *folder, const char *name, const char *end,
                                    char *out, struct error *err);
bool pull_part_has_size(const char *path, uint64_t n_bytes);
/* Makes the folders above `path`, for a name that contains folders. */
MUST_USE enum status pull_part_parents(const char *folder, const char *path, struct error *err);
/* Makes the error for the current errno. When the disk is full, the text says how to free space. */
enum status pull_part_error(const char *path, struct error *err);
/* Writes all bytes of the piece to `fd` at offset `at`. `path` is the name of the file for error
 * texts. */
MUST_USE enum status pull_part_write(int fd, const char *path, struct str piece, uint64_t at,
                                     struct error *err);
/* Returns false when another process has taken over the files because this process was stopped
 * for too long. */
bool pull_part_may_write(const struct pull_file *f, struct pull_lock *lock, struct error *err);

struct pull_digests {
    struct digest *sha256, *git; /* git: NULL when the git id is unknown */
};
/* Starts new hashes and frees earlier ones. */
MUST_USE enum status pull_digests_start(struct pull_digests *d, const struct pull_file *f,
                                        struct error *err);
MUST_USE bool pull_digests_add(struct pull_digests *d, const void *bytes, size_t n);
/* Hashes the bytes [*at, end) of fd and advances *at. STATUS_CLOSED: a signal stopped the fetch. */
MUST_USE enum status pull_digests_read(struct pull_digests *d, const struct fetch_net *net, int fd,
                                       const char *path, uint64_t *at, uint64_t end,
                                       struct error *err);
/* Returns true when the hashes match those of file `f`. sha256 receives the computed hash. */
bool pull_digests_end(struct pull_digests *d, const struct pull_file *f, char *sha256);
void pull_digests_free(struct pull_digests *d);
/* Checks a whole file against the hashes of file `f`. STATUS_PROTOCOL: the file differs.
 * STATUS_CLOSED: a signal stopped the check. */
MUST_USE enum status pull_file_check(const struct fetch_net *net, const struct pull_file *f,
                                     const char *path, struct error *err);
/* Computes the SHA-256 of a file. STATUS_CLOSED: a signal stopped the computation. */
MUST_USE enum status pull_file_hash(const struct fetch_net *net, const char *path, char *sha256,
                                    struct error *err);
