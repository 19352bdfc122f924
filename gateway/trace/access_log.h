#pragma once
/* Writes the access log's file. A thread of its own writes, so a slow, full or missing disk, or
 * a pipe without a reader, delays nothing. Lines that do not fit in the buffer are lost and
 * counted. Later lines are written again. */
#include "common/base/status.h"
#include "common/base/str.h"

struct access_log;
struct metrics;

/* Opens the log. `path` is borrowed; "-" means stdout. Returns STATUS_INVALID when the path
 * cannot be a log (missing folder, no permission, a folder itself). A full, read-only or broken
 * disk, and a FIFO without a reader, give STATUS_OK. Opening is tried again every second. */
MUST_USE enum status access_log_open(const char *path, struct metrics *registry,
                                     struct access_log **out, struct error *err);
/* Adds one line, which includes its end. The function never waits. Only the loop thread calls
 * this function. */
void access_log_add(struct access_log *l, struct str line);
/* Writes waiting lines for at most two seconds, and closes the log. `l` may be NULL. */
void access_log_close(struct access_log *l);
