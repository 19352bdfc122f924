#pragma once
/* A byte stream to one peer rank, in both directions, non-blocking: over TCP (tcp.c) or
 * through memory that two processes of one host share (shm.c). Compute thread only. The peer
 * is authenticated before a link exists, and its bytes are checked all the same. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/status.h"

struct comm_link;
struct comm_link_ops {
    const char *name;
    /* Moves what goes now of the n runs v, the first ones first: *moved bytes in all, perhaps none.
     * STATUS_IO: the peer is gone (recv: and nothing of what it sent is left). */
    enum status (*send)(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                        struct error *err);
    enum status (*recv)(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                        struct error *err);
    /* Before a sleep in poll(fd), on a link that wants one or both: the events to wait for, or 0
     * when something can move already. From then on the peer rings when something can. */
    short (*before_sleep)(struct comm_link *l, bool wants_send, bool wants_recv);
    /* After it, always, with what poll said. */
    enum status (*after_sleep)(struct comm_link *l, short revents, struct error *err);
    /* Between collectives, now and then; or NULL. STATUS_IO: the peer cannot be reached any more.
     */
    enum status (*check_idle)(struct comm_link *l, struct error *err);
    void (*close)(struct comm_link *l); /* frees l; the peer notices */
};
struct comm_link {
    const struct comm_link_ops *ops;
    int fd;
};

/* Of one run. */
static inline enum status link_send(struct comm_link *l, const void *data, size_t n, size_t *moved,
                                    struct error *err)
{
    const struct iovec v = {(void *)(uintptr_t)data, n}; /* what is sent is read */
    return l->ops->send(l, &v, 1, moved, err);
}
static inline enum status link_recv(struct comm_link *l, void *data, size_t n, size_t *moved,
                                    struct error *err)
{
    const struct iovec v = {data, n};
    return l->ops->recv(l, &v, 1, moved, err);
}

/* Of a socket that is going to connect, or to listen: what it accepts is the same. */
void link_tcp_prepare(int fd);
/* Takes the connected socket, also when it fails. */
MUST_USE enum status link_tcp_new(int fd, struct comm_link **out, struct error *err);

/* Shared memory in two halves, each side holding one end of a connected Unix stream socket (the
 * bell, and the way to notice a peer's end). offer makes the memory, sized and sealed, writes its
 * descriptor to *memory_fd for the caller to pass on and close; take maps what the peer offered
 * after checking its size and seals. Both take the socket, also when they fail. */
MUST_USE enum status link_shm_offer(int bell_fd, int *memory_fd, struct comm_link **out,
                                    struct error *err);
MUST_USE enum status link_shm_take(int bell_fd, int memory_fd, struct comm_link **out,
                                   struct error *err);
/* What either side maps of what link_shm_offer made. */
uint64_t link_shm_bytes(void);
