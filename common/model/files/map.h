#pragma once
/* A whole file mapped read only: nothing is read before it is touched, and what was touched can be
 * let go of while the page cache keeps it. Files that are no regular ones are refused (opening a
 * FIFO would wait for ever). The mapping is private and never written. Immutable: any thread. */
#include <stdint.h>

#include "common/base/status.h"

struct file_map {
    const uint8_t *bytes; /* NULL: nothing is mapped */
    size_t n_bytes;
};

/* An empty file gives no bytes. NOT_FOUND, DENIED, IO or INVALID, with path and reason. */
MUST_USE enum status file_map_open(const char *path, struct file_map *out, struct error *err);
void file_map_close(struct file_map *m); /* a zeroed one is fine */
/* Opens a regular file for reading; *fd is the caller's to close. */
MUST_USE enum status file_open_regular(const char *path, int *fd, uint64_t *n_bytes,
                                       struct error *err);
