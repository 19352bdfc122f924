#pragma once
/* A zip archive (zip64 too) of stored members, as torch.save writes it, made for hostile files:
 * every offset and length is checked at open, and nothing is ever inflated. Refused by name are
 * compressed and encrypted members, members that overlap or leave the file, two of one name,
 * several disks, and what stands behind the archive's end. Checksums are not computed: that would
 * read all of a file of which a rank needs its part. Names and data point into the bytes, which are
 * borrowed until close. Immutable: any thread. Format: PKWARE's APPNOTE.TXT. */
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct zip_member {
    struct str name;
    const uint8_t *data; /* may be unaligned */
    uint64_t n_bytes;
};

struct zip;
/* name is for error texts. STATUS_INVALID, or STATUS_UNSUPPORTED for what other archives may have.
 */
MUST_USE enum status zip_open_memory(const void *bytes, size_t n, const char *name,
                                     struct zip **out, struct error *err);
void zip_close(struct zip *z); /* NULL is fine */
uint64_t zip_n_members(const struct zip *z);
const struct zip_member *zip_member_at(const struct zip *z, uint64_t i); /* as they lie; or NULL */
const struct zip_member *zip_find(const struct zip *z, struct str name); /* NULL: none */
/* The bytes of the directory (names, places, sizes, checksums) and of what ends the archive. */
struct str zip_directory(const struct zip *z);
