#pragma once
/* Fetches a large file in ranges of 16 MiB, several at once, into NAME.part. NAME.part.ranges
 * has one byte for each range, and the byte is written after the range's data.
 * The hash covers the complete ranges from the file's start on. A thread that has just fetched a
 * range hashes the range from the page cache, so that few bytes must be read at the end. After a
 * power cut the byte of a lost range may be set. The hash then does not match, and the file is
 * fetched again.
 *
 * A server that supports no ranges, or whose file has changed, answers with the whole file. The
 * file is then fetched in one stream (file.c). */
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"

#define PULL_RANGE_BYTES (UINT64_C(16) << 20)

/* Returns true when the file is large enough for ranges. */
bool pull_ranges_wanted(const struct pull_file *f);
/* Returns how many bytes of the file are in `folder` already. */
uint64_t pull_ranges_have(const struct pull_file *f, const char *folder);

struct pull_ranges;
/* Opens the file and continues where an earlier run has ended. */
MUST_USE enum status pull_ranges_open(const struct pull_source *source, const struct pull_file *f,
                                      const char *folder, struct pull_progress *progress,
                                      struct pull_ranges **out, struct error *err);
/* Finds the next range that no thread has begun; false = there is no such range now. Only one
 * thread at a time may call this function and pull_ranges_is_taken. */
bool pull_ranges_next(struct pull_ranges *r, uint32_t *i);
bool pull_ranges_is_taken(struct pull_ranges *r); /* Returns true when no range is left to begin. */
bool pull_ranges_is_one_stream(const struct pull_ranges *r);
/* Fetches range i, on any thread. STATUS_UNSUPPORTED: the file must be fetched in one stream. */
MUST_USE enum status pull_ranges_fetch(struct pull_ranges *r, const struct pull_source *source,
                                       uint32_t i, struct error *err);
/* Completes the file when all ranges are fetched.
 * STATUS_OK: the file's hash is right, and the file has its final name. STATUS_AGAIN: the file's
 * hash was wrong. All ranges must be fetched again. STATUS_PROTOCOL: the file's hash was wrong a
 * second time. */
MUST_USE enum status pull_ranges_finish(struct pull_ranges *r, const struct pull_source *source,
                                        char *sha256, struct error *err);
/* Drops the fetched bytes, since the file will be fetched in one stream. */
MUST_USE enum status pull_ranges_drop(struct pull_ranges *r, struct error *err);
void pull_ranges_close(struct pull_ranges *r);
