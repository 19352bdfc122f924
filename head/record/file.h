#pragma once
/* The step log's file: a sink that never waits for the disk. What comes is kept in memory and
 * written by a thread of its own; more than STEP_LOG_BACKLOG_MAX of it, a full disk, or a file that
 * would pass max_bytes, end the log. A process that dies of a signal of its own (SIGSEGV, SIGABRT,
 * SIGBUS, SIGFPE, SIGILL) writes what it has first, so that the call in which it died is in the
 * file. Called on the loop's thread; one per process. */
#include "head/record/step_log.h"

#define STEP_LOG_BACKLOG_MAX (64u << 20)

struct step_log_file;

/* A file that is there becomes PATH.1, and a new one, for its owner's eyes only, is begun.
 * max_bytes 0: no bound. */
MUST_USE enum status step_log_file_open(const char *path, uint64_t max_bytes,
                                        struct step_log_file **out, struct error *err);
struct step_log_sink step_log_file_sink(struct step_log_file *f);
/* This is asked for the bytes that the sink has not got when the process dies. */
void step_log_file_guard(struct step_log_file *f, struct step_log *l);
/* Waits until everything is on its way to the disk. */
void step_log_file_close(struct step_log_file *f);
