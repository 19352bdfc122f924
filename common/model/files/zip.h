#pragma once
/* Reads a zip archive (also zip64) of stored members, as torch.save writes it, safe for
 * untrusted files. Every offset and length is checked at open, and nothing is decompressed. The
 * error names the feature that is refused. These are compressed or encrypted members, members
 * that overlap or extend beyond the file, a repeated name, several disks, and bytes after the
 * archive's end. Checksums are not computed, because a rank needs only its part of the file.
 * Names and data point into the bytes, which are borrowed until close. The object is immutable,
 * so any thread may use it. Format: PKWARE's APPNOTE.TXT. */
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct zip_member {
    struct str name;
    const uint8_t *data; /* first byte of the member's data; may be unaligned */
    uint64_t n_bytes;
};

struct zip;
/* Opens an archive. `name` is for error texts. Returns STATUS_INVALID for a damaged archive, and
 * STATUS_UNSUPPORTED for a valid archive with other features. */
MUST_USE enum status zip_open_memory(const void *bytes, size_t n, const char *name,
                                     struct zip **out, struct error *err);
void zip_close(struct zip *z); /* z may be NULL */
uint64_t zip_n_members(const struct zip *z);
/* Returns a member by its index, or NULL beyond the last. Members are sorted by position. */
const struct zip_member *zip_member_at(const struct zip *z, uint64_t i);
/* Finds a member by its name. Returns NULL when there is no such member. */
const struct zip_member *zip_find(const struct zip *z, struct str name);
/* Returns the bytes of the directory (names, offsets, sizes, checksums) and of the archive's end
 * records. */
struct str zip_directory(const struct zip *z);
