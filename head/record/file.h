#pragma once
/* Provides the step log's file, a sink that never waits for the disk. Bytes are kept in memory
 * and written by a thread. The log ends when more than STEP_LOG_BACKLOG_MAX bytes wait, the disk
 * is full, or the file would exceed max_bytes. A process that dies of SIGSEGV, SIGABRT, SIGBUS,
 * SIGFPE or SIGILL first writes its buffers. The file then contains the call in which the
 * process died. The functions are called on the loop's thread, and a process has one file. */
#include "head/record/step_log.h"

#define STEP_LOG_BACKLOG_MAX (64u << 20)

struct step_log_file;

/* Renames an existing file to PATH.1 and creates a new one with mode 0600. max_bytes limits the
 * file; 0 = no limit. */
MUST_USE enum status step_log_file_open(const char *path, uint64_t max_bytes,
                                        struct step_log_file **out, struct error *err);
struct step_log_sink step_log_file_sink(struct step_log_file *f);
/* Sets the step log whose unwritten bytes are written when the process dies. */
void step_log_file_guard(struct step_log_file *f, struct step_log *l);
/* Closes the file after every byte has been passed to the kernel. */
void step_log_file_close(struct step_log_file *f);
