#pragma once
/* A zmq socket in the loop. Private to common/bus. Loop thread only. */
#include <stdbool.h>
#include <uv.h>

#include "common/base/status.h"

struct bus;
struct bus_port;
struct loop;
typedef bool bus_port_fn(struct bus_port *p); /* takes one message; false: there was none */

/* A zmq socket in the loop; freed when both handles are closed. A handler may close the bus; the
 * port outlives the bus by a turn, so code that has called a handler looks at port->bus first: NULL
 * means the bus let go of it. */
struct bus_port {
    struct bus *bus;
    void *socket;
    bus_port_fn *take;
    uv_poll_t poll;
    uv_idle_t idle; /* runs while there is more to drain */
    unsigned open_handles;
};

/* Takes the socket in any case. */
MUST_USE enum status bus_port_open(struct loop *l, struct bus *b, void *owned_socket,
                                   bus_port_fn *take, struct bus_port **out, struct error *err);
void bus_port_drain_soon(struct bus_port *p); /* on the next turn */
void bus_port_close(struct bus_port **port);  /* of NULL nothing is closed */
