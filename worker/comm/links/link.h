#pragma once
/* Declares a link: a non-blocking byte stream to one peer rank, in both directions. It uses TCP
 * (tcp.c) or memory that two processes of one host share (shm.c). All functions run on the
 * compute thread. The peer is authenticated before a link exists, but its bytes are checked all
 * the same. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/status.h"

struct comm_link;
struct comm_link_ops {
    const char *name;
    /* Sends or receives as many bytes of the n buffers `v` as possible now, in order, and sets
     * *moved to their number, perhaps 0. STATUS_IO: the peer is gone, and for recv everything
     * that the peer sent has been read. */
    enum status (*send)(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                        struct error *err);
    enum status (*recv)(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                        struct error *err);
    /* Called before poll(fd) on a link that waits for one or both directions. Returns the events
     * to wait for, or 0 when bytes can move already. From then on the peer wakes this end when
     * bytes can move. */
    short (*before_sleep)(struct comm_link *l, bool wants_send, bool wants_recv);
    /* Called after each before_sleep, with the events that poll returned. */
    enum status (*after_sleep)(struct comm_link *l, short revents, struct error *err);
    /* Called between collectives from time to time; may be NULL. STATUS_IO: the peer cannot be
     * reached any more. */
    enum status (*check_idle)(struct comm_link *l, struct error *err);
    void (*close)(struct comm_link *l); /* frees `l`; the peer detects the end */
};
struct comm_link {
    const struct comm_link_ops *ops;
    int fd;
};

/* Sends the bytes of a single buffer. */
static inline enum status link_send(struct comm_link *l, const void *data, size_t n, size_t *moved,
                                    struct error *err)
{
    const struct iovec v = {(void *)(uintptr_t)data, n}; /* the data is only read */
    return l->ops->send(l, &v, 1, moved, err);
}
static inline enum status link_recv(struct comm_link *l, void *data, size_t n, size_t *moved,
                                    struct error *err)
{
    const struct iovec v = {data, n};
    return l->ops->recv(l, &v, 1, moved, err);
}

/* Sets the options of a socket before it connects or listens. Accepted sockets inherit them. */
void link_tcp_prepare(int fd);
/* Makes a link from a connected socket. The call takes over the socket, even when it fails. */
MUST_USE enum status link_tcp_new(int fd, struct comm_link **out, struct error *err);

/* A link through shared memory needs both sides. Each side holds one end of a connected Unix
 * stream socket, the bell, which also shows that the peer has ended. link_shm_offer makes the
 * memory, sized and sealed, and writes its descriptor to *memory_fd, which the caller passes on
 * and closes. link_shm_take checks size and seals of the offered memory and maps it. Both
 * functions take over the socket, even when they fail. */
MUST_USE enum status link_shm_offer(int bell_fd, int *memory_fd, struct comm_link **out,
                                    struct error *err);
MUST_USE enum status link_shm_take(int bell_fd, int memory_fd, struct comm_link **out,
                                   struct error *err);
/* Returns the bytes that each side maps for a link of link_shm_offer. */
uint64_t link_shm_bytes(void);
