#pragma once
/* Writes the log of a run: RUNS/ID/log, at most 64 MiB, and RUNS/ID/log.1, the previous file.
 * Only the keeper writes the log. The struct keeps the last line as the reason of a failed run.
 * The functions never wait for the echo (a terminal, or a pipe to a pager). Bytes that the echo
 * cannot accept yet are held. The reader of the run's output stops reading while run_log_is_held
 * returns true. */
#include "common/base/str.h"

#define RUN_LOG_MAX_BYTES (64ll << 20)

enum { RUN_LOG_HELD_BYTES = 64 << 10 };

struct run_log {
    char path[4096];
    int fd, echo_fd; /* echo_fd: terminal or pipe; -1 = none */
    long long n_bytes, max_bytes;
    uint64_t retry_ns; /* time of the next try to make the file, in ns */
    bool in_line;      /* the last byte in the log was not a newline */
    char last[512];
    size_t n_last;
    bool last_is_whole;
    char *held; /* bytes for the echo; bytes that do not fit are only in the file */
    size_t n_held;
};

/* Opens the log. echo_fd is borrowed. */
MUST_USE enum status run_log_open(struct run_log *l, const char *folder, int echo_fd,
                                  struct error *err);
void run_log_write(struct run_log *l, const char *bytes, size_t n);
/* Writes one line from the keeper itself: "run        | …". */
void run_log_say(struct run_log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool run_log_is_held(const struct run_log *l);
/* Writes as many held bytes as the echo accepts now. */
void run_log_echo(struct run_log *l);
void run_log_close(struct run_log *l);
