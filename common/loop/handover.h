#pragma once
/* Passes a command line over a socket to a process that was started before and waits for it
 * (`cox-worker spare`). The message is a header of 8 bytes, a magic number and the length, and
 * then the words, each with a NUL behind it. Its size is bounded. */
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
/* Sends the words and does not wait. STATUS_LIMIT: they are too many or too long. STATUS_IO: the
 * process has ended or does not read. */
MUST_USE enum status handover_send(int fd, const char *const *argv, struct error *err);
/* Waits for a command line. STATUS_CLOSED: the sender has ended before. STATUS_PROTOCOL: the
 * message is not one. */
MUST_USE enum status handover_receive(int fd, struct handover *out, struct error *err);
