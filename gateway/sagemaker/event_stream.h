#pragma once
/* Writes application/vnd.amazon.eventstream, AWS's format of streams. A message has a prelude
 * (lengths and their CRC), headers, a payload and a CRC of everything. A reader that finds a
 * wrong CRC closes the connection. The functions are pure, and usable on any thread. */
#include "common/base/str.h"

#define EVENT_STREAM_TYPE "application/vnd.amazon.eventstream"

/* most bytes of one message; readers accept up to 16 MiB */
enum { EVENT_STREAM_MAX_PAYLOAD = 64 << 10 };

/* Appends bytes of the model's answer as one or more PayloadPart events. */
void event_stream_payload(struct strbuf *out, struct str bytes);
/* Appends the end of a failed stream. `type` is AWS's name ("ModelStreamError"), and `json` has
 * the members of the error. */
void event_stream_exception(struct strbuf *out, const char *type, struct str json);
/* Returns the CRC-32 (that of zlib and Ethernet) of the bytes before and of `bytes`. `crc` is
 * the CRC of the bytes before; 0 = there are none. */
uint32_t event_stream_crc(uint32_t crc, struct str bytes);
