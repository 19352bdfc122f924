#include "common/loop/handover.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* `MAGIC` is "COXH" on little-endian machines. Both processes run on one machine. */
#define MAGIC 0x48584F43u

struct header {
    uint32_t magic, n_bytes;
};

enum status handover_open(int ends[2], struct error *err)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot make a socket for a spare process: %s",
                     strerror(errno));
}

enum status handover_send(int fd, const char *const *argv, struct error *err)
{
    char message[sizeof(struct header) + HANDOVER_BYTES_MAX];
    struct header h = {MAGIC, 0};
    uint32_t n_words = 0;
    for (; argv[n_words] && n_words < HANDOVER_WORDS_MAX; n_words++) {
        const size_t n = strlen(argv[n_words]) + 1;
        if (n > (size_t)HANDOVER_BYTES_MAX - h.n_bytes)
            return error_set(err, STATUS_LIMIT, "the command line has more than %d bytes",
                             HANDOVER_BYTES_MAX);
        memcpy(message + sizeof h + h.n_bytes, argv[n_words], n);
        h.n_bytes += (uint32_t)n;
    }
    if (n_words == 0 || argv[n_words])
        return error_set(err, STATUS_LIMIT, "the command line must have 1 to %d words",
                         HANDOVER_WORDS_MAX);
    memcpy(message, &h, sizeof h);
    const size_t size = sizeof h + h.n_bytes;
    const ssize_t sent = send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != (ssize_t)size)
        return error_set(err, STATUS_IO, "the spare process takes no command line: %s",
                         sent < 0 ? strerror(errno) : "its socket is full");
    return STATUS_OK;
}

/* Reads exactly `n` bytes. */
static enum status read_all(int fd, void *out, size_t n, struct error *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = read(fd, (char *)out + done, n - done);
        if (got == 0)
            return error_set(err, STATUS_CLOSED, "the supervisor has closed the socket");
        if (got < 0 && errno != EINTR)
            return error_set(err, STATUS_IO, "cannot read the command line: %s", strerror(errno));
        done += got > 0 ? (size_t)got : 0;
    }
    return STATUS_OK;
}

static enum status split(struct handover *h, uint32_t n_bytes, struct error *err)
{
    if (h->bytes[n_bytes - 1] != '\0')
        return error_set(err, STATUS_PROTOCOL, "the last word of the command line has no end");
    h->argc = 0;
    for (uint32_t at = 0; at < n_bytes; at += (uint32_t)strlen(h->bytes + at) + 1) {
        if (h->argc == HANDOVER_WORDS_MAX)
            return error_set(err, STATUS_PROTOCOL, "the command line has more than %d words",
                             HANDOVER_WORDS_MAX);
        h->argv[h->argc++] = h->bytes + at;
    }
    h->argv[h->argc] = NULL;
    return STATUS_OK;
}

enum status handover_receive(int fd, struct handover *out, struct error *err)
{
    struct header h;
    TRY(read_all(fd, &h, sizeof h, err));
    if (h.magic != MAGIC)
        return error_set(err, STATUS_PROTOCOL,
                         "the message is no command line. Only `cox up` starts spare processes");
    if (h.n_bytes == 0 || h.n_bytes > HANDOVER_BYTES_MAX)
        return error_set(err, STATUS_PROTOCOL, "the command line has %u bytes, not 1 to %d",
                         h.n_bytes, HANDOVER_BYTES_MAX);
    TRY(read_all(fd, out->bytes, h.n_bytes, err));
    return split(out, h.n_bytes, err);
}
