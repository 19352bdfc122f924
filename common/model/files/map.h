#pragma once
/* Maps a whole file, read-only. Bytes are read when they are accessed, and pages can be released
 * while the page cache keeps them. Only regular files are accepted, since opening a FIFO would
 * wait for ever. The mapping is private and never written. The mapping is immutable, so any
 * thread may read it. */
#include <stdint.h>

#include "common/base/status.h"

/* `file_stamp` tells two files, or two states of one file, apart: device, inode, size, and the
 * times in ns of the last changes of content and of properties. Zeros: the bytes have no file. */
struct file_stamp {
    uint64_t device, inode, n_bytes, modified_ns, changed_ns;
};
struct file_map {
    const uint8_t *bytes; /* first byte of the mapping; NULL = nothing is mapped */
    size_t n_bytes;
    struct file_stamp stamp; /* state of the file at its opening */
};

/* Maps the file. An empty file gives no bytes. Returns STATUS_NOT_FOUND, _DENIED, _IO or
 * _INVALID, with the path and the reason. */
MUST_USE enum status file_map_open(const char *path, struct file_map *out, struct error *err);
void file_map_close(struct file_map *m); /* the struct may be all zero */
/* Opens a regular file for reading. The caller closes *fd. */
MUST_USE enum status file_open_regular(const char *path, int *fd, uint64_t *n_bytes,
                                       struct error *err);
