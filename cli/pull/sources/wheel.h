#pragma once
/* One member of a Python wheel (a zip), inflated piece by piece. The wheel is hostile: places and
 * sizes are checked against the file, and no more comes out than the directory says, which has a
 * bound of the caller's. common/model/files/zip.h reads model files, and refuses whatever is
 * compressed.
 */
#include <stdint.h>

#include "common/base/str.h"

/* on_piece: false ends it, with CLOSED. CRC and size are checked at the end. */
MUST_USE enum status wheel_extract(const char *path, const char *member, uint64_t max_bytes,
                                   bool (*on_piece)(void *ctx, struct str piece), void *ctx,
                                   struct error *err);
