#pragma once
/* A run's log: RUNS/ID/log, at most 64 MiB, and log.1, the one before it. Written by the keeper
 * alone. Also keeps the last line, which is what a run that failed says of itself. The echo (a
 * terminal, a pipe to a pager) is never waited for in here: what it does not take yet is held, and
 * whoever reads the run's output reads no more of it while run_log_is_held. */
#include "common/base/str.h"

#define RUN_LOG_MAX_BYTES (64ll << 20)

enum { RUN_LOG_HELD_BYTES = 64 << 10 };

struct run_log {
    char path[4096];
    int fd, echo_fd; /* echo: a terminal's, or -1 */
    long long n_bytes, max_bytes;
    uint64_t retry_ns; /* when a file that could not be made is tried again */
    bool in_line;      /* the last byte was no newline */
    char last[512];
    size_t n_last;
    bool last_is_whole;
    char *held; /* for the echo; what does not fit is in the file alone */
    size_t n_held;
};

/* echo_fd: borrowed. */
MUST_USE enum status run_log_open(struct run_log *l, const char *folder, int echo_fd,
                                  struct error *err);
void run_log_write(struct run_log *l, const char *bytes, size_t n);
/* A line of the keeper's own: "run        | …". */
void run_log_say(struct run_log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool run_log_is_held(const struct run_log *l);
/* As much as the echo takes now. */
void run_log_echo(struct run_log *l);
void run_log_close(struct run_log *l);
