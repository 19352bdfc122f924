#pragma once
/* Watches a zmq socket in the loop. Only common/bus uses this header. Only the loop thread calls
 * these functions. */
#include <stdbool.h>
#include <uv.h>

#include "common/base/status.h"

struct bus;
struct bus_port;
struct loop;
/* Receives one message of the socket. Returns false when no message is left. */
typedef bool bus_port_fn(struct bus_port *p);

/* `bus_port` is a zmq socket in the loop. It is freed when both of its handles are closed. A
 * handler may close the bus, and the port outlives the bus by one turn. So code that has called
 * a handler reads `bus` first: NULL means that the bus was closed. */
struct bus_port {
    struct bus *bus;
    void *socket;
    bus_port_fn *take;
    uv_poll_t poll;
    uv_idle_t idle; /* handle that runs while there are more messages to read */
    unsigned open_handles;
};

/* Opens the port. Takes ownership of the socket, also when the call fails. */
MUST_USE enum status bus_port_open(struct loop *l, struct bus *b, void *owned_socket,
                                   bus_port_fn *take, struct bus_port **out, struct error *err);
void bus_port_drain_soon(struct bus_port *p); /* reads the socket on the next turn */
void bus_port_close(struct bus_port **port);  /* sets *port to NULL; *port may be NULL */
