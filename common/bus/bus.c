/* Carries frames between the head and all other processes over ZeroMQ: one zmq context, one
 * socket and its bus_port in the loop. Callers pass frames to bus_send. `on_frame` gets received
 * frames, and `on_link` gets events of the socket's monitor.
 * A send never drains the socket itself, because a handler would then be called inside its own
 * send. bus_reconnect opens a new socket in the same context, since zmq_disconnect leaves frames
 * of the old connection in the queue. Everything runs on the loop's thread. A handler may close
 * the bus, so nothing reads `b` after a handler was called. */
#include "common/bus/bus.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/bus/context.h"
#include "common/bus/port.h"
#include "common/bus/zap.h"
#include "common/host/loopback.h"
#include "common/keys/join_token.h"
#include "common/keys/key_files.h"
#include "common/loop/loop.h"

/* ZMQ_ZAP_ENFORCE_DOMAIN is an option that the header of a release build hides among the drafts,
 * but the library has it. open_bus fails with a library that lacks the option. */
#ifndef ZMQ_ZAP_ENFORCE_DOMAIN
#define ZMQ_ZAP_ENFORCE_DOMAIN 93
#endif

enum {
    BUS_HANDSHAKE_MS = 5000,
    /* time for one attempt to connect, in ms, for a host that drops SYNs; the system would wait
     * two minutes */
    BUS_CONNECT_MS = 2000,
    BUS_RECONNECT_MS = 50,
    BUS_RECONNECT_MAX_MS = 500,
    /* wait in ms after a failed handshake; doubled after each further failure in a row */
    BUS_OTHER_KEY_MS = 200,
    BUS_OTHER_KEY_MAX_MS = 1600,
    BUS_BACKLOG = 1024,
    BUS_DEFAULT_HWM = 1024,
    BUS_DEFAULT_FRAME = 64 << 20,
    BUS_ADDRESSES_MAX = JOIN_TOKEN_MAX_HEADS
};

struct bus {
    struct loop *loop;
    void *context;
    struct zap *zap;
    struct bus_port *data, *monitor;
    struct bus_handlers h;
    bool is_router, insecure, use_ipv6;
    struct curve_keys keys;
    struct public_keys server; /* DEALER: public keys that the head may have */
    uint32_t i_server;         /* index into `server`: the key in use */
    const char *keys_dir;      /* folder to read the keys from again; or NULL */
    enum peer_role keys_role;
    char keys_error[512]; /* last error of reading the keys, already logged */
    /* timer before other keys are tried; NULL = no handshake has failed */
    struct loop_timer *try_others;
    uint32_t other_key_ms; /* last wait in ms; 0 = the last handshake succeeded */
    char endpoint[256];
    /* DEALER: addresses of the head, each tcp://HOST:PORT */
    char addresses[BUS_ADDRESSES_MAX][256];
    uint32_t n_addresses, i_address;
    uint32_t max_frame_bytes, hwm, n_monitors;
    /* DEALER: the monitor reports `connected` and `shaken` (handshake done); `link_up` is the
     * state that on_link last got */
    bool connected, shaken, link_up;
    const char *link_why;
    uint64_t n_dropped;
};

const char *bus_endpoint(const struct bus *b)
{
    return b->endpoint;
}

uint32_t bus_n_addresses(const struct bus *b)
{
    return b->n_addresses;
}

/* ---- frames ---- */

/* Drops the remaining parts of a multi-part message. */
static void skip_parts(void *socket, zmq_msg_t *last)
{
    while (zmq_msg_more(last))
        if (zmq_msg_recv(last, socket, ZMQ_DONTWAIT) < 0)
            return;
}

/* Reads "role:key", which the ZAP handler set. A peer without this text gets ROLE_NONE and its
 * message is dropped. */
static enum peer_role role_of(zmq_msg_t *m, char key[41])
{
    const char *user = zmq_msg_gets(m, "User-Id");
    const char *colon = user ? strchr(user, ':') : NULL;
    if (!colon || strlen(colon + 1) != 40)
        return ROLE_NONE;
    memcpy(key, colon + 1, 41);
    for (int r = ROLE_NONE + 1; r < ROLE_COUNT; r++)
        if (str_eq_c((struct str){user, (size_t)(colon - user)}, peer_role_name(r)))
            return (enum peer_role)r;
    return ROLE_NONE;
}

static bool take_data(struct bus_port *p)
{
    struct bus *b = p->bus;
    struct bus_peer from = {0};
    enum peer_role role = b->is_router || b->insecure ? ROLE_NONE : ROLE_HEAD;
    char key[41] = "";
    zmq_msg_t m;
    zmq_msg_init(&m);
    bool ok = zmq_msg_recv(&m, p->socket, ZMQ_DONTWAIT) >= 0;
    if (!ok) {
        zmq_msg_close(&m);
        return false;
    }
    if (b->is_router) {
        size_t n = zmq_msg_size(&m);
        ok = n <= BUS_ID_MAX && zmq_msg_more(&m);
        from.n = ok ? (uint8_t)n : 0;
        memcpy(from.id, zmq_msg_data(&m), from.n);
        if (zmq_msg_more(&m) && zmq_msg_recv(&m, p->socket, ZMQ_DONTWAIT) < 0)
            ok = false;
    }
    if (ok && b->is_router && !b->insecure) {
        role = role_of(&m, key);
        ok = role != ROLE_NONE;
    } else if (ok && !b->is_router && !b->insecure) {
        memcpy(key, b->server.keys[b->i_server], sizeof key);
    }
    if (ok && !zmq_msg_more(&m)) {
        struct str frame = {zmq_msg_data(&m), zmq_msg_size(&m)};
        b->h.on_frame(b->h.ctx, from, role, key, frame); /* the handler may have closed the bus */
    } else {
        skip_parts(p->socket, &m);
        b->n_dropped++;
        log_debug("bus_message_dropped", "dropped_total=%llu", (unsigned long long)b->n_dropped);
    }
    zmq_msg_close(&m);
    return true;
}

static enum status send_part(struct bus *b, const void *bytes, size_t n, int flags)
{
    if (zmq_send(b->data->socket, bytes, n, flags | ZMQ_DONTWAIT) >= 0)
        return STATUS_OK;
    switch (zmq_errno()) {
    case EAGAIN:
        return STATUS_AGAIN;
    case EHOSTUNREACH:
        return STATUS_NOT_FOUND;
    default:
        return STATUS_IO;
    }
}

enum status bus_send(struct bus *b, struct bus_peer to, struct str frame)
{
    enum status s = STATUS_OK;
    if (!b->data)
        return STATUS_CLOSED; /* the last reconnect failed and left no socket */
    if (frame.len > b->max_frame_bytes)
        return STATUS_LIMIT; /* the receiver would end the connection after a frame of this size */
    if (b->is_router)
        s = send_part(b, to.id, to.n, ZMQ_SNDMORE);
    if (s == STATUS_OK) {
        s = send_part(b, frame.ptr, frame.len, 0);
        /* ROUTER_MANDATORY has checked the peer and its high-water mark with the first part */
        assert(!b->is_router || s == STATUS_OK);
    }
    /* the send may have consumed the signal of ZMQ_FD that announced a received message */
    bus_port_drain_soon(b->data);
    return s;
}

/* ---- monitor ---- */

static void tell_link(struct bus *b, bool up, const char *why)
{
    if (b->link_why == why && b->link_up == up)
        return; /* libzmq retries, and each retry reports the same reason */
    b->link_up = up;
    b->link_why = why;
    if (b->h.on_link)
        b->h.on_link(b->h.ctx, up, why); /* the handler may have closed the bus */
}

static void on_other_keys(void *ctx);

/* Plans a reconnect with other keys, because our keys may be out of date. The reconnect needs a
 * new socket, because the present socket would retry with the same keys for ever. */
static void plan_other_keys(struct bus *b)
{
    if ((!b->keys_dir && b->server.n < 2) || b->insecure || b->try_others)
        return;
    b->i_server = (b->i_server + 1) % b->server.n;
    b->other_key_ms = b->other_key_ms ? b->other_key_ms * 2 : BUS_OTHER_KEY_MS;
    if (b->other_key_ms > BUS_OTHER_KEY_MAX_MS)
        b->other_key_ms = BUS_OTHER_KEY_MAX_MS;
    b->try_others = loop_timer_start(b->loop, b->other_key_ms, 0, on_other_keys, b);
}

static void on_monitor_event(struct bus *b, uint16_t event)
{
    static const char up[] = "connected";
    static const char lost[] = "the connection was lost";
    static const char nobody[] =
        "no program answers at this address, or its host name cannot be resolved here";
    static const char refused[] = "the head refused the key of this process, because the head's "
                                  "file authorized does not list it";
    static const char not_ours[] =
        "the other side ended the handshake: this process has a wrong public key of the head, the "
        "head does not know the key of this process, or the address is not a Coxswain head";
    switch (event) {
    case ZMQ_EVENT_CONNECTED:
        b->connected = true;
        b->shaken = false;
        break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        b->shaken = true;
        b->other_key_ms = 0;
        tell_link(b, true, up);
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        b->connected = false;
        plan_other_keys(b);
        tell_link(b, false, refused);
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        b->connected = false;
        plan_other_keys(b);
        tell_link(b, false, not_ours);
        break;
    case ZMQ_EVENT_DISCONNECTED:
        if (b->connected) {
            b->connected = false;
            if (!b->shaken)
                plan_other_keys(b);
            tell_link(b, false, b->shaken ? lost : not_ours);
        }
        break;
    case ZMQ_EVENT_CONNECT_RETRIED:
        if (!b->connected && !b->link_why)
            tell_link(b, false, nobody);
        break;
    default:
        break;
    }
}

/* Reads one event of the socket's monitor. An event has two parts: 16 bits event and 32 bits
 * value, then the address. */
static bool take_event(struct bus_port *p)
{
    uint16_t event = 0;
    zmq_msg_t m;
    zmq_msg_init(&m);
    bool any = zmq_msg_recv(&m, p->socket, ZMQ_DONTWAIT) >= 0;
    if (any && zmq_msg_size(&m) >= sizeof event)
        memcpy(&event, zmq_msg_data(&m), sizeof event);
    if (any)
        skip_parts(p->socket, &m);
    zmq_msg_close(&m);
    if (any)
        on_monitor_event(p->bus, event);
    return any;
}

static enum status monitor_open(struct bus *b, void *watched, struct error *err)
{
    char name[96];
    int zero = 0;
    /* the bus's address is in the name, because DEALERs share a context and its names */
    snprintf(name, sizeof name, "inproc://coxswain.monitor.%p.%u", (void *)b, b->n_monitors++);
    void *socket = zmq_socket(b->context, ZMQ_PAIR);
    if (!socket)
        return error_set(err, STATUS_IO, "cannot create a ZeroMQ socket: %s",
                         zmq_strerror(zmq_errno()));
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    if (zmq_socket_monitor(watched, name, ZMQ_EVENT_ALL) < 0 || zmq_connect(socket, name) < 0) {
        int e = zmq_errno();
        zmq_close(socket);
        return error_set(err, STATUS_IO, "cannot watch a ZeroMQ socket: %s", zmq_strerror(e));
    }
    return bus_port_open(b->loop, b, socket, take_event, &b->monitor, err);
}

/* ---- open and close ---- */

/* Returns HOST of "tcp://HOST:PORT", with the brackets of an IPv6 address. Returns an empty str
 * for any other text. */
static struct str host_of(const char *endpoint)
{
    struct str e = str_from(endpoint);
    if (!str_starts(e, STR("tcp://")))
        return STR("");
    const char *host = endpoint + 6, *colon = strrchr(host, ':');
    return (struct str){host, colon ? (size_t)(colon - host) : 0};
}

/* Checks the port of an endpoint. Only a listener may let the system choose it (0 or *). */
static bool port_is_good(const char *endpoint, bool is_router)
{
    const char *port = strrchr(endpoint, ':') + 1;
    uint64_t n;
    if (is_router && strcmp(port, "*") == 0)
        return true;
    return str_to_u64(str_from(port), &n) == STATUS_OK && n <= UINT16_MAX && (n > 0 || is_router);
}

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool set_common(const struct bus *b, void *s)
{
    int64_t max = b->max_frame_bytes;
    bool ok = set_int(s, ZMQ_LINGER, 0) && set_int(s, ZMQ_SNDHWM, (int)b->hwm) &&
              set_int(s, ZMQ_RCVHWM, (int)b->hwm) && set_int(s, ZMQ_IPV6, b->use_ipv6) &&
              set_int(s, ZMQ_HANDSHAKE_IVL, BUS_HANDSHAKE_MS) &&
              zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof max) == 0;
    if (ok && !b->insecure)
        ok = zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, b->keys.public_key, 41) == 0 &&
             zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, b->keys.secret_key, 41) == 0;
    return ok;
}

static bool set_router(const struct bus *b, void *s)
{
    bool ok = set_int(s, ZMQ_ROUTER_MANDATORY, 1) && set_int(s, ZMQ_BACKLOG, BUS_BACKLOG);
    if (ok && !b->insecure)
        ok = set_int(s, ZMQ_CURVE_SERVER, 1) && set_int(s, ZMQ_ZAP_ENFORCE_DOMAIN, 1) &&
             zmq_setsockopt(s, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) == 0;
    return ok;
}

static bool set_dealer(const struct bus *b, void *s)
{
    bool ok = set_int(s, ZMQ_IMMEDIATE, 1) && set_int(s, ZMQ_RECONNECT_IVL, BUS_RECONNECT_MS) &&
              set_int(s, ZMQ_RECONNECT_IVL_MAX, BUS_RECONNECT_MAX_MS) &&
              set_int(s, ZMQ_CONNECT_TIMEOUT, BUS_CONNECT_MS);
    if (ok && !b->insecure)
        ok = zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, b->server.keys[b->i_server], 41) == 0;
    return ok;
}

static enum status attach(struct bus *b, void *s, struct error *err)
{
    char real[sizeof b->endpoint];
    size_t size = sizeof real;
    if (!b->is_router) {
        if (zmq_connect(s, b->endpoint) == 0)
            return STATUS_OK;
        return error_set(err, STATUS_INVALID, "cannot connect to %s: %s", b->endpoint,
                         zmq_strerror(zmq_errno()));
    }
    if (zmq_bind(s, b->endpoint) < 0) {
        int e = zmq_errno();
        const char *colon = strrchr(b->endpoint, ':');
        if (e == EADDRINUSE)
            return error_set(
                err, STATUS_EXISTS,
                "port %s is in use (%s). Stop the other process or choose another port",
                colon ? colon + 1 : "?", b->endpoint);
        return error_set(err, STATUS_INVALID, "cannot listen on %s: %s", b->endpoint,
                         zmq_strerror(e));
    }
    if (zmq_getsockopt(s, ZMQ_LAST_ENDPOINT, real, &size) == 0)
        memcpy(b->endpoint, real, size);
    return STATUS_OK;
}

/* Reads the keys again before a new connection. A file that cannot be read changes nothing,
 * because another process may be writing that file now. */
static void read_keys_again(struct bus *b)
{
    struct curve_keys ours;
    struct public_keys server;
    struct error err = {0};
    if (!b->keys_dir || b->insecure)
        return;
    if (keys_load(b->keys_dir, b->keys_role, &ours, &err) != STATUS_OK ||
        keys_load_publics(b->keys_dir, ROLE_HEAD, &server, &err) != STATUS_OK) {
        if (strcmp(b->keys_error, err.text) != 0)
            log_error("keys_not_read", "error=%s now=%s", log_quote(err.text),
                      log_quote("the keys that were read before stay in use"));
        snprintf(b->keys_error, sizeof b->keys_error, "%s", err.text);
    } else {
        bool is_same = strcmp(ours.public_key, b->keys.public_key) == 0 &&
                       server.n == b->server.n &&
                       memcmp(server.keys, b->server.keys, sizeof server.keys) == 0;
        b->keys_error[0] = '\0';
        if (!is_same) {
            log_info("keys_read", "role=%s public_key=%s n_head_keys=%u",
                     peer_role_name(b->keys_role), log_quote(ours.public_key), server.n);
            b->keys = ours;
            b->server = server;
            b->i_server = 0;
        }
    }
    explicit_bzero(&ours, sizeof ours);
}

static enum status open_socket(struct bus *b, struct error *err)
{
    void *s = zmq_socket(b->context, b->is_router ? ZMQ_ROUTER : ZMQ_DEALER);
    if (!s)
        return error_set(err, STATUS_IO, "cannot create a ZeroMQ socket: %s",
                         zmq_strerror(zmq_errno()));
    enum status st = STATUS_OK;
    if (!set_common(b, s) || !(b->is_router ? set_router(b, s) : set_dealer(b, s)))
        st = error_set(err, STATUS_INVALID, "ZeroMQ refused an option or a key of the socket: %s",
                       zmq_strerror(zmq_errno()));
    b->connected = b->shaken = b->link_up = false;
    b->link_why = NULL;
    if (st == STATUS_OK && !b->is_router)
        /* the monitor opens before the connection, so that it sees every event of it */
        st = monitor_open(b, s, err);
    if (st == STATUS_OK)
        st = attach(b, s, err);
    if (st != STATUS_OK) {
        bus_port_close(&b->monitor);
        zmq_close(s);
        return st;
    }
    return bus_port_open(b->loop, b, s, take_data, &b->data, err);
}

static enum status check_endpoint(const struct bus_options *o, const char *endpoint, bool is_router,
                                  struct error *err)
{
    struct str host = host_of(endpoint);
    if (strlen(endpoint) >= sizeof((struct bus *)0)->endpoint || host.len == 0 ||
        !port_is_good(endpoint, is_router))
        return error_set(err, STATUS_INVALID,
                         "\"%.100s\" is not a valid address; it must have the form "
                         "tcp://HOST:PORT, with a port of at most 65535",
                         endpoint);
    if (o->insecure && !o->allow_remote_insecure && !host_is_loopback(host))
        return error_set(err, STATUS_DENIED,
                         "cannot use %s without encryption, because other machines can reach it. "
                         "Use keys (--keys-dir) or a loopback address",
                         endpoint);
    return STATUS_OK;
}

static void use_endpoint(struct bus *b, const char *endpoint)
{
    struct str host = host_of(endpoint);
    bool is_localhost = str_eq_c(host, "localhost");
    /* With IPv6 on, libzmq resolves "localhost" to ::1 only, where a head on 127.0.0.1 does not
     * listen. It also writes an IPv4 address as ::ffff:a.b.c.d. A bind accepts no host names at
     * all. */
    b->use_ipv6 = !is_localhost && strspn(host.ptr, "0123456789.") != host.len;
    if (is_localhost && b->is_router)
        snprintf(b->endpoint, sizeof b->endpoint, "tcp://127.0.0.1%s", host.ptr + host.len);
    else
        snprintf(b->endpoint, sizeof b->endpoint, "%s", endpoint);
}

/* Splits "tcp://A:1,B:2" into addresses and checks each one. */
static enum status read_addresses(struct bus *b, const struct bus_options *o, struct error *err)
{
    const char *at = o->endpoint;
    bool one = b->is_router || !strchr(at, ',');
    for (; at; b->n_addresses++) {
        char *out = b->addresses[b->n_addresses];
        const char *end = one ? NULL : strchr(at, ',');
        int n = snprintf(out, sizeof b->addresses[0], "%s%.*s", at == o->endpoint ? "" : "tcp://",
                         end ? (int)(end - at) : (int)strlen(at), at);
        if (n < 0 || (size_t)n >= sizeof b->addresses[0] ||
            (end && b->n_addresses + 1 == BUS_ADDRESSES_MAX))
            return error_set(err, STATUS_INVALID,
                             "\"%.100s\" has too many or too long addresses; at most %d addresses "
                             "of less than %zu characters each are allowed",
                             o->endpoint, BUS_ADDRESSES_MAX, sizeof b->addresses[0]);
        TRY(check_endpoint(o, out, b->is_router, err));
        at = end ? end + 1 : NULL;
    }
    use_endpoint(b, b->addresses[0]);
    return STATUS_OK;
}

static enum status open_bus(struct loop *l, const struct bus_options *o,
                            const struct bus_handlers *h, bool is_router, struct bus **out,
                            struct error *err)
{
    if (!o->insecure && (is_router ? !o->authorized : !o->server_public_key))
        return error_set(err, STATUS_INVALID, "cannot use %s with encryption: %s", o->endpoint,
                         is_router
                             ? "there is no list of authorized keys. Set --keys-dir"
                             : "the public key of the head is missing. Set --keys-dir or --join");
    struct bus *b = mem_zalloc(sizeof *b);
    b->loop = l;
    b->h = *h;
    b->is_router = is_router;
    b->insecure = o->insecure;
    b->keys = o->keys;
    b->hwm = o->hwm ? o->hwm : BUS_DEFAULT_HWM;
    b->max_frame_bytes = o->max_frame_bytes ? o->max_frame_bytes : BUS_DEFAULT_FRAME;
    if (o->server_public_key) {
        snprintf(b->server.keys[0], sizeof b->server.keys[0], "%s", o->server_public_key);
        b->server.n = 1;
    }
    if (b->server.n == 1 && o->server_other_key && o->server_other_key[0])
        snprintf(b->server.keys[b->server.n++], sizeof b->server.keys[0], "%s",
                 o->server_other_key);
    b->keys_dir = is_router ? NULL : o->keys_dir;
    b->keys_role = o->keys_role;
    read_keys_again(b); /* read_keys_again finds the head's second key, if the head has two keys */
    enum status s = read_addresses(b, o, err);
    if (s != STATUS_OK) {
        bus_close(b);
        return s;
    }
    s = bus_context_open(is_router, &b->context, err);
    if (s == STATUS_OK && is_router && !o->insecure)
        /* the ZAP handler must run before the socket is bound */
        s = zap_start(b->context, o->authorized, &b->zap, err);
    if (s == STATUS_OK)
        s = open_socket(b, err);
    if (s != STATUS_OK) {
        bus_close(b);
        return s;
    }
    *out = b;
    return STATUS_OK;
}

enum status bus_bind(struct loop *l, const struct bus_options *o, const struct bus_handlers *h,
                     struct bus **out, struct error *err)
{
    return open_bus(l, o, h, true, out, err);
}

enum status bus_connect(struct loop *l, const struct bus_options *o, const struct bus_handlers *h,
                        struct bus **out, struct error *err)
{
    return open_bus(l, o, h, false, out, err);
}

static void close_ports(struct bus *b)
{
    if (b->monitor && b->data)
        zmq_socket_monitor(b->data->socket, NULL, 0);
    bus_port_close(&b->monitor);
    bus_port_close(&b->data);
}

enum status bus_reconnect(struct bus *b, struct error *err)
{
    if (b->is_router)
        return error_set(err, STATUS_INVALID,
                         "a socket that listens cannot connect again. Report this bug");
    close_ports(b);
    /* true = try the same address again, with the head's other key */
    bool same = b->try_others && b->i_server > 0;
    loop_timer_stop(b->try_others);
    b->try_others = NULL;
    read_keys_again(b);
    if (!same)
        b->i_address = (b->i_address + 1) % b->n_addresses;
    use_endpoint(b, b->addresses[b->i_address]);
    return open_socket(b, err);
}

static void on_other_keys(void *ctx)
{
    struct bus *b = ctx;
    struct error err = {0};
    if (bus_reconnect(b, &err) == STATUS_OK)
        return;
    log_error("reconnect_failed", "error=%s", log_quote(err.text));
    b->try_others = loop_timer_start(b->loop, BUS_RECONNECT_MAX_MS, 0, on_other_keys, b);
}

void bus_swap_authorized(struct bus *b, struct authorized *mine, struct authorized *next)
{
    struct authorized old = *mine;
    if (b && b->zap) {
        zap_swap(b->zap, mine, next);
        return;
    }
    *mine = *next;
    *next = old;
}

enum status bus_rebind(struct bus *b, const struct curve_keys *keys, struct error *err)
{
    assert(b->is_router);
    if (!b->insecure)
        b->keys = *keys;
    close_ports(b);
    return open_socket(b, err);
}

void bus_linger(struct bus *b, int ms)
{
    assert(!b->is_router);
    if (b->data)
        (void)set_int(b->data->socket, ZMQ_LINGER, ms);
}

void bus_close(struct bus *b)
{
    if (!b)
        return;
    close_ports(b);
    loop_timer_stop(b->try_others);
    zap_stop(b->zap);
    bus_context_close(b->is_router, b->context);
    explicit_bzero(&b->keys, sizeof b->keys);
    mem_free(b);
}
