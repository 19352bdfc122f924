#pragma once
/* Opens and hashes files below a folder. No symbolic link below the folder is followed, so a path
 * cannot leave it, and opening a FIFO or a device does not block. The functions may run on any
 * thread. */
#include <stdint.h>

#include "common/base/str.h"
#include "common/keys/digest.h"

/* BELOW_FILE_MAX bounds a file in bytes. The largest file of a package is NVIDIA's libcublasLt,
 * which has less than 1 GiB. */
#define BELOW_FILE_MAX ((int64_t)8 << 30)

/* Opens the regular file `path`, which has no "." or "..", below the open folder `root`. Returns
 * the descriptor. Returns -1 and sets errno: ENOENT = no such file, ELOOP = the file or one of its
 * folders is a symbolic link, EISDIR = not a regular file, EFBIG = larger than BELOW_FILE_MAX. */
int below_open(int root, struct str path);
/* Returns the sentence for one of these values of errno. */
const char *below_reason(int os_error);
/* Appends at most `max` bytes of an open file to *out. */
MUST_USE enum status below_read(int fd, size_t max, struct strbuf *out, struct error *err);
/* Computes the SHA-256 of an open file. With `is_gzip` it is that of the unpacked content. */
MUST_USE enum status below_sha256(int fd, bool is_gzip, char hex[DIGEST_HEX_MAX],
                                  struct error *err);
