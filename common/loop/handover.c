#include "common/loop/handover.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

/* `MAGIC` is "COXH" on little-endian machines. Both processes run on one machine. */
#define MAGIC 0x48584F43u
/* bytes of the receiver: it waits, and it has the command line */
#define WAITS 'W'
#define TAKEN 'T'

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

static bool said(int fd, char what, int flags)
{
    char got = 0;
    return recv(fd, &got, 1, flags) == 1 && got == what;
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
    if (!said(fd, WAITS, MSG_DONTWAIT))
        return error_set(err, STATUS_AGAIN, "the spare process does not wait yet");
    memcpy(message, &h, sizeof h);
    const size_t size = sizeof h + h.n_bytes;
    const ssize_t sent = send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != (ssize_t)size)
        return error_set(err, STATUS_IO, "the spare process takes no command line: %s",
                         sent < 0 ? strerror(errno) : "its socket is full");
    return STATUS_OK;
}

enum status handover_await(int fd, int ms, struct error *err)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const uint64_t until_ns = clock_mono_ns() + (uint64_t)ms * NS_PER_MS;
    int left_ms = ms, n;
    while ((n = poll(&p, 1, left_ms)) < 0 && errno == EINTR) { /* a child of the caller ended */
        const uint64_t now_ns = clock_mono_ns();
        left_ms = now_ns < until_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0;
    }
    if (n == 1 && said(fd, TAKEN, MSG_DONTWAIT))
        return STATUS_OK;
    if (n != 0)
        return error_set(err, STATUS_IO, "the spare process ended before it took its command line");
    return error_set(err, STATUS_IO, "the spare process did not take its command line within %d ms",
                     ms);
}

void handover_offer(int fd)
{
    /* without a sender, `handover_receive` fails */
    (void)!send(fd, &(char){WAITS}, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
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
    TRY(split(out, h.n_bytes, err));
    /* a sender that has gone, or waits no more, has closed its end */
    if (send(fd, &(char){TAKEN}, 1, MSG_NOSIGNAL) != 1)
        return error_set(err, STATUS_CLOSED, "the supervisor has closed the socket");
    return STATUS_OK;
}
