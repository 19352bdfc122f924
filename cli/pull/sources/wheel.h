#pragma once
/* Extracts one member of a Python wheel (a zip file), piece by piece. The wheel is not trusted:
 * offsets and sizes are checked against the file. The output has no more bytes than the
 * directory says, and at most max_bytes. common/model/files/zip.h reads model files and refuses
 * compressed members. */
#include <stdint.h>

#include "common/base/str.h"

/* Extracts the member. When on_piece returns false, the extraction ends with STATUS_CLOSED. CRC
 * and size are checked at the end. */
MUST_USE enum status wheel_extract(const char *path, const char *member, uint64_t max_bytes,
                                   bool (*on_piece)(void *ctx, struct str piece), void *ctx,
                                   struct error *err);
