#pragma once
/* Extracts one member of a Python wheel (a zip file), piece by piece. The wheel is hostile:
 * offsets and sizes are checked against the file, and no more bytes come out than the directory
 * says, at most max_bytes. common/model/files/zip.h reads model files and refuses compressed
 * ones. */
#include <stdint.h>

#include "common/base/str.h"

/* When on_piece returns false, the extraction ends with STATUS_CLOSED. CRC and size are checked
 * at the end. */
MUST_USE enum status wheel_extract(const char *path, const char *member, uint64_t max_bytes,
                                   bool (*on_piece)(void *ctx, struct str piece), void *ctx,
                                   struct error *err);
