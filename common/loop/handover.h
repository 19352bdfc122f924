#pragma once
/* Passes a command line over a socket to a process that was started before and waits for it
 * (`cox-worker spare`). The receiver sends a byte when it waits. The message is a header of 8
 * bytes, a magic number and the length, and then the words, each with a NUL behind it. Its size is
 * bounded. The receiver sends a second byte when it has the whole message. */
#include "common/base/status.h"

enum { HANDOVER_WORDS_MAX = 512, HANDOVER_BYTES_MAX = 64 << 10 };

/* `handover` holds a command line. The words are in `bytes`, which may be changed. */
struct handover {
    int argc; /* at least 1 */
    char *argv[HANDOVER_WORDS_MAX + 1];
    char bytes[HANDOVER_BYTES_MAX];
};

/* Makes the two ends of a socket. Both are closed by exec. */
MUST_USE enum status handover_open(int ends[2], struct error *err);
/* Sends the words and does not wait. STATUS_LIMIT: they are too many or too long. STATUS_AGAIN: the
 * process does not wait for them yet. STATUS_IO: it has ended or does not read. */
MUST_USE enum status handover_send(int fd, const char *const *argv, struct error *err);
/* Waits, for at most `ms` milliseconds, until the process has the words. STATUS_IO: it has not. */
MUST_USE enum status handover_await(int fd, int ms, struct error *err);
/* Tells the sender that this process waits for a command line. */
void handover_offer(int fd);
/* Waits for a command line. STATUS_CLOSED: the sender has ended. STATUS_PROTOCOL: the message is
 * not one. */
MUST_USE enum status handover_receive(int fd, struct handover *out, struct error *err);
