/* Watches a zmq socket in the loop. ZMQ_FD is edge-triggered. ZMQ_FD also signals commands that
 * are not messages, and a send can consume the edge that announced a received message. So the
 * socket is read until EAGAIN after every wake-up, and once after the sends of a turn.
 * At most BUS_DRAIN_MAX messages are read a turn. An idle handle reads the rest on the next
 * turn. Reading ZMQ_EVENTS instead would cost a system call for each frame. */
#include "common/bus/port.h"

#include <zmq.h>

#include "common/base/mem.h"
#include "common/loop/uv.h"

enum { BUS_DRAIN_MAX = 256 };

static void on_idle(uv_idle_t *h);

static void drain(struct bus_port *p)
{
    for (int n = 0; p->bus; n++) {
        if (n == BUS_DRAIN_MAX) {
            uv_idle_start(&p->idle, on_idle);
            return;
        }
        if (!p->take(p)) {
            uv_idle_stop(&p->idle);
            return;
        }
    }
}

static void on_idle(uv_idle_t *h)
{
    drain(h->data);
}

void bus_port_drain_soon(struct bus_port *p)
{
    uv_idle_start(&p->idle, on_idle);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
    drain(h->data);
}

static void on_port_closed(uv_handle_t *h)
{
    struct bus_port *p = h->data;
    if (--p->open_handles == 0)
        mem_free(p);
}

void bus_port_close(struct bus_port **port)
{
    struct bus_port *p = *port;
    *port = NULL;
    if (!p)
        return;
    p->bus = NULL;
    /* The poll handle must leave the loop before zmq's threads close the descriptor. */
    uv_close((uv_handle_t *)&p->poll, on_port_closed);
    uv_close((uv_handle_t *)&p->idle, on_port_closed);
    zmq_close(p->socket);
}

enum status bus_port_open(struct loop *l, struct bus *b, void *owned_socket, bus_port_fn *take,
                          struct bus_port **out, struct error *err)
{
    int fd = -1, rc;
    size_t size = sizeof fd;
    struct bus_port *p = mem_zalloc(sizeof *p);
    uv_loop_t *uv = loop_uv(l);
    p->bus = b;
    p->socket = owned_socket;
    p->take = take;
    p->poll.data = p->idle.data = p;
    rc = zmq_getsockopt(owned_socket, ZMQ_FD, &fd, &size) ? UV_EBADF
                                                          : uv_poll_init(uv, &p->poll, fd);
    if (rc) {
        zmq_close(owned_socket);
        mem_free(p);
        return error_set(err, STATUS_IO, "cannot watch a ZeroMQ socket: %s", uv_strerror(rc));
    }
    uv_idle_init(uv, &p->idle);
    p->open_handles = 2;
    uv_poll_start(&p->poll, UV_READABLE, on_poll);
    /* messages that arrived before the poll started cause no edge */
    uv_idle_start(&p->idle, on_idle);
    *out = p;
    return STATUS_OK;
}
