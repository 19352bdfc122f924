#pragma once
/* Encodes and decodes frames. One ZeroMQ message part is a fixed 32-byte little-endian header,
 * then a protobuf body:
 *   0 'C' 'X' | 2 u8 major | 3 u8 minor | 4 u16 type | 6 u16 zero | 8 u64 session | 16 u64 seq |
 *   24 u32 body bytes | 28 u32 zero
 * The header has the same layout in every version, so that a frame of another major version is
 * refused by name before anything is parsed. Decoding checks sizes first and counts after that,
 * and copies into plain structs on the arena. A hostile body costs at most the arena's limit.
 * All functions are pure and may run on any thread. */
#include "common/base/arena.h"
#include "proto/limits.h"
#include "proto/messages.h"

struct frame_header {
    uint8_t major, minor;
    enum msg_type type;
    uint64_t session, seq;
    uint32_t body_bytes;
};

/* Parses the header of a frame. Returns STATUS_VERSION for another major version (`out` is
 * filled in), or STATUS_PROTOCOL for a malformed header. */
MUST_USE enum status frame_parse_header(struct str frame, struct frame_header *out,
                                        struct error *err);
/* Decodes the body of a frame whose header was accepted. */
MUST_USE enum status codec_decode(struct str frame, const struct frame_header *header,
                                  struct arena *arena, struct msg *out, struct error *err);
/* Appends a whole frame to `out`. The caller reuses `out`, so there is no malloc in the steady
 * state. `scratch` holds the generated structs while they are packed, and the call resets it. */
MUST_USE enum status codec_encode(const struct msg *m, uint64_t session, uint64_t seq,
                                  struct arena *scratch, struct strbuf *out);
/* Makes a deep copy of a message on an arena, for a message that must outlive its frame. */
MUST_USE enum status msg_copy(const struct msg *m, struct arena *arena, struct msg *out);
