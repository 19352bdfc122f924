/* Implements the connections of all peers to the head. One ROUTER socket connects once for each
 * peer. Each connection has its own handshake, keys and name at the head, exactly like a DEALER
 * socket in a separate process, but there is only one descriptor to wait for. */
#include "bench/large_cluster/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "bench/die.h"
#include "common/base/mem.h"
#include "common/keys/key_files.h"

enum { IO_THREADS = 2, HWM = 4096, ID_BYTES = 16 };

struct scale_wire {
    void *context, *socket;
    enum peer_role role; /* role that the socket's keys belong to */
    zmq_msg_t received;
};

static void must(bool ok, const char *what)
{
    if (!ok)
        bench_die("%s: %s", what, zmq_strerror(zmq_errno()));
}

static void set_int(void *socket, int option, int value)
{
    must(zmq_setsockopt(socket, option, &value, sizeof value) == 0, "a socket option");
}

static void set_keys(void *socket, const char *dir, enum peer_role role)
{
    struct error err = {0};
    struct curve_keys ours;
    char server[41];
    if (keys_load(dir, role, &ours, &err) != STATUS_OK ||
        keys_load_public(dir, ROLE_HEAD, server, &err) != STATUS_OK)
        bench_die("%s", err.text);
    must(zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, ours.public_key, 41) == 0, "public key");
    must(zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, ours.secret_key, 41) == 0, "secret key");
    must(zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, 41) == 0, "the head's key");
}

static size_t id_of(uint32_t i_peer, char out[ID_BYTES])
{
    return (size_t)snprintf(out, ID_BYTES, "p%u", i_peer);
}

struct scale_wire *scale_wire_open(void)
{
    struct scale_wire *w = mem_zalloc(sizeof *w);
    w->context = zmq_ctx_new();
    must(w->context && zmq_ctx_set(w->context, ZMQ_IO_THREADS, IO_THREADS) == 0, "context");
    w->socket = zmq_socket(w->context, ZMQ_ROUTER);
    must(w->socket != NULL, "socket");
    set_int(w->socket, ZMQ_LINGER, 0);
    set_int(w->socket, ZMQ_SNDHWM, HWM);
    set_int(w->socket, ZMQ_RCVHWM, HWM);
    set_int(w->socket, ZMQ_ROUTER_MANDATORY, 1);
    zmq_msg_init(&w->received);
    return w;
}

void scale_wire_connect(struct scale_wire *w, const struct scale_options *o, uint32_t i_peer,
                        enum peer_role role)
{
    char id[ID_BYTES];
    size_t n = id_of(i_peer, id);
    if (o->keys_dir && role != w->role) /* later connections use these keys */
        set_keys(w->socket, o->keys_dir, role);
    w->role = role;
    must(zmq_setsockopt(w->socket, ZMQ_CONNECT_ROUTING_ID, id, n) == 0, "a name");
    must(zmq_connect(w->socket, o->endpoint) == 0, o->endpoint);
}

void scale_wire_close(struct scale_wire *w)
{
    zmq_msg_close(&w->received);
    zmq_close(w->socket);
    zmq_ctx_term(w->context);
    mem_free(w);
}

int scale_wire_fd(const struct scale_wire *w)
{
    int fd = -1;
    size_t size = sizeof fd;
    must(zmq_getsockopt(w->socket, ZMQ_FD, &fd, &size) == 0, "ZMQ_FD");
    return fd;
}

bool scale_wire_has_input(const struct scale_wire *w)
{
    int events = 0;
    size_t size = sizeof events;
    must(zmq_getsockopt(w->socket, ZMQ_EVENTS, &events, &size) == 0, "ZMQ_EVENTS");
    return events & ZMQ_POLLIN;
}

enum status scale_wire_receive(struct scale_wire *w, uint32_t *i_peer, struct str *frame)
{
    char id[ID_BYTES + 1];
    int n = zmq_recv(w->socket, id, ID_BYTES, ZMQ_DONTWAIT);
    if (n < 0)
        return STATUS_AGAIN;
    id[n < ID_BYTES ? n : ID_BYTES] = '\0';
    if (id[0] != 'p' || zmq_msg_recv(&w->received, w->socket, ZMQ_DONTWAIT) < 0)
        bench_die("a message of nobody");
    *i_peer = (uint32_t)strtoul(id + 1, NULL, 10);
    *frame = (struct str){zmq_msg_data(&w->received), zmq_msg_size(&w->received)};
    return STATUS_OK;
}

void scale_wire_send(struct scale_wire *w, uint32_t i_peer, struct str frame)
{
    char id[ID_BYTES];
    size_t n = id_of(i_peer, id);
    must(zmq_send(w->socket, id, n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0, "a send");
    must(zmq_send(w->socket, frame.ptr, frame.len, ZMQ_DONTWAIT) >= 0, "a send");
}
