#pragma once
/* A large file in ranges of 16 MiB, several at once, into NAME.part; which of them are there is
 * kept in NAME.part.ranges beside it, a byte for each, written after the range's own bytes. The
 * hash follows behind what is whole from the start on, out of the page cache, by whoever has just
 * brought a range; so that at the end little is left to read. A power cut may have kept the byte
 * and lost the range: the hash sees that, and the file comes once more.
 *
 * A server that knows no ranges, or whose file has changed, answers with all of it: then the file
 * comes in one stream (file.c). */
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"

#define PULL_RANGE_BYTES (UINT64_C(16) << 20)

/* Is it large enough for that? */
bool pull_ranges_wanted(const struct pull_file *f);
/* Bytes that lie in folder already. */
uint64_t pull_ranges_have(const struct pull_file *f, const char *folder);

struct pull_ranges;
/* Gone on with where a run before has ended. */
MUST_USE enum status pull_ranges_open(const struct pull_source *source, const struct pull_file *f,
                                      const char *folder, struct pull_progress *progress,
                                      struct pull_ranges **out, struct error *err);
/* The next that nobody has begun; false: there is none (now). To be called by one thread at a time,
 * as the next one. */
bool pull_ranges_next(struct pull_ranges *r, uint32_t *i);
bool pull_ranges_is_taken(struct pull_ranges *r); /* there is no next one */
bool pull_ranges_is_one_stream(const struct pull_ranges *r);
/* Brings it, on any thread. UNSUPPORTED: only one stream helps. */
MUST_USE enum status pull_ranges_fetch(struct pull_ranges *r, const struct pull_source *source,
                                       uint32_t i, struct error *err);
/* When all are here: the right file under its name, OK. AGAIN: it was not right, and all ranges are
 * to come once more; PROTOCOL: a second time. */
MUST_USE enum status pull_ranges_finish(struct pull_ranges *r, const struct pull_source *source,
                                        char *sha256, struct error *err);
/* Drops what was fetched: the file comes in one stream. */
MUST_USE enum status pull_ranges_drop(struct pull_ranges *r, struct error *err);
void pull_ranges_close(struct pull_ranges *r);
