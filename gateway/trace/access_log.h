#pragma once
/* The access log's file. A thread of its own writes it, so that a disk that is slow, full or away,
 * or a pipe that nobody reads, holds up nothing: what finds no room is lost and counted, and what
 * comes when there is room again is written. */
#include "common/base/status.h"
#include "common/base/str.h"

struct access_log;
struct metrics;

/* path "-": stdout. STATUS_INVALID: the path can be no log (no such folder, no permission, a folder
 * itself). A disk that is full, read-only or broken, and a FIFO without a reader, are STATUS_OK: it
 * is tried again once a second. path is borrowed. */
MUST_USE enum status access_log_open(const char *path, struct metrics *registry,
                                     struct access_log **out, struct error *err);
/* One line, with its end. Never waits. Loop thread. */
void access_log_add(struct access_log *l, struct str line);
/* Writes what waits, for two seconds at most. NULL is fine. */
void access_log_close(struct access_log *l);
