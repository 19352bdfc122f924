#pragma once
/* application/vnd.amazon.eventstream, in which AWS sends streams: messages of a prelude (lengths
 * and their CRC), headers, a payload and a CRC of all. Whoever has read a message with a wrong sum
 * closes the connection. Pure; any thread. */
#include "common/base/str.h"

#define EVENT_STREAM_TYPE "application/vnd.amazon.eventstream"

enum { EVENT_STREAM_MAX_PAYLOAD = 64 << 10 }; /* of one message; readers take up to 16 MiB */

/* Bytes of the model's answer, as PayloadPart events: several where they are many. */
void event_stream_payload(struct strbuf *out, struct str bytes);
/* The end of a stream that failed: type as AWS names it ("ModelStreamError"), json its members. */
void event_stream_exception(struct strbuf *out, const char *type, struct str json);
/* The CRC-32 of zlib and Ethernet. */
uint32_t event_stream_crc(uint32_t crc, struct str bytes);
