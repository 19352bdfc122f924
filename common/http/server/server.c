/* Runs the listener of an HTTP server, and keeps the state that all its connections share:
 * limits, handlers, memory budgets and the read buffer. on_connection accepts clients and passes
 * each to conn.c. Handlers answer requests through answer.h.
 * `open_handles` counts the owner, the listener, the gatherer and each connection. The server is
 * freed when the count reaches 0, always on the loop's thread. When there are too many
 * connections, or no file descriptor is left, an idle or slow connection is closed in favour of
 * the new one (make_place.c). */
#include "common/http/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/http/conn/gather.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/places.h"
#include "common/http/server/conn.h"
#include "common/http/server/deadline.h"
#include "common/http/server/make_place.h"
#include "common/loop/loop.h"
#include "common/loop/uv.h"

enum { BACKLOG = 511, UNSENT_BYTES = 128 << 10 };
enum { DESCRIPTORS_KEPT = 2 };

#define NS_PER_MS 1000000ull

static void set_default(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

static void fill_limits(struct http_limits *l)
{
    set_default(&l->max_connections, 4096);
    set_default(&l->max_header_bytes, 32 << 10);
    set_default(&l->header_timeout_ms, 10000);
    set_default(&l->body_timeout_ms, 30000);
    set_default(&l->idle_timeout_ms, 75000);
    set_default(&l->write_stall_ms, 30000);
    set_default(&l->stream_high_water_bytes, 256 << 10);
    if (l->max_body_bytes == 0)
        l->max_body_bytes = 16 << 20;
    set_default(&l->rate_window_ms, 30000);
    if (l->max_body_bytes_total == 0)
        l->max_body_bytes_total = 256 << 20;
    if (l->max_answer_bytes_total == 0)
        l->max_answer_bytes_total = 256 << 20;
}

static struct progress_rules rules(const struct http_limits *l, uint32_t stall_ms)
{
    return (struct progress_rules){.stall_ns = stall_ms * NS_PER_MS,
                                   .window_ns = l->rate_window_ms * NS_PER_MS,
                                   .window_bytes =
                                       l->min_bytes_per_s * (uint64_t)l->rate_window_ms / 1000};
}

static void init_rooms(struct http_server *s)
{
    const struct http_limits *l = &s->limits;
    room_init(&s->bodies, l->max_body_bytes_total);
    room_init(&s->answers, l->max_answer_bytes_total);
    room_init(&s->kept, l->max_body_bytes_total);
    room_init(&s->strangers, l->max_body_bytes_total);
    room_init(&s->trees, l->max_body_bytes_total);
    places_init(&s->waiting);
    places_init(&s->held);
    s->up = rules(l, l->body_timeout_ms);
    s->down = rules(l, l->write_stall_ms);
    s->address_seed = random_secure_u64();
}

void http_server_load(const struct http_server *s, struct http_load *out)
{
    *out = (struct http_load){.body_bytes =
                                  s->bodies.used + s->kept.used + s->strangers.used + s->trees.used,
                              .answer_bytes = s->answers.used,
                              .counts = s->counts};
}

/* Returns true when DESCRIPTORS_KEPT more descriptors can be opened. The function opens them to
 * find out, because the used numbers have gaps, and other parts of the process use descriptors
 * too. */
static bool has_descriptors(const struct http_server *s)
{
    uv_os_fd_t listener;
    int taken[DESCRIPTORS_KEPT], n = 0;
    if (uv_fileno(&s->listener.handle, &listener) != 0)
        return true;
    while (n < DESCRIPTORS_KEPT && (taken[n] = fcntl(listener, F_DUPFD_CLOEXEC, 0)) >= 0)
        n++;
    for (int i = 0; i < n; i++)
        close(taken[i]);
    return n == DESCRIPTORS_KEPT;
}

/* Closes connections before the last descriptor is used, but never the newest connection.
 * Without a descriptor libuv would close all connections in the kernel's queue, with their
 * requests. */
static void keep_descriptors_free(struct http_server *s)
{
    if (!s->conns || has_descriptors(s))
        return;
    s->counts.failed_accepts++;
    (void)places_make(s, s->conns);
}

/* Handles the case that no descriptor is left, in this process or on this machine, and libuv has
 * no spare descriptor to refuse the connection with. Otherwise the connection would stay in the
 * kernel's queue, and the loop would return here again and again. */
static void on_accept_failed(struct http_server *s)
{
    s->counts.failed_accepts++;
    (void)places_make(s, NULL);
}

static void on_connection(uv_stream_t *listener, int rc)
{
    struct http_server *s = listener->data;
    if (s->closing)
        return;
    if (rc < 0) {
        on_accept_failed(s);
        return;
    }
    uint32_t max = s->limits.max_connections;
    struct conn *c = conn_accept(s, -1);
    if (c && s->n_conns - s->n_extra > max && !places_make(s, c))
        conn_refuse_place(c);
    keep_descriptors_free(s);
}

static void on_listener_closed(uv_handle_t *h)
{
    http_server_release(h->data);
}

/* Parses an address, "localhost" (also for NULL), or "" or "*" for all addresses. */
static int parse_host(const char *host, uint16_t port, struct sockaddr_storage *out)
{
    if (!host || strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    else if (!*host || strcmp(host, "*") == 0)
        host = "0.0.0.0";
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)out) == 0)
        return 0;
    return uv_ip6_addr(host, port, (struct sockaddr_in6 *)out);
}

/* Removes the socket file of a server that was killed, on which no process listens any more. The
 * function removes no other file. */
static void remove_dead_socket(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode) || strlen(path) >= sizeof a.sun_path)
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(a.sun_path, path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0 && errno == ECONNREFUSED)
        (void)unlink(path);
    if (fd >= 0)
        close(fd);
}

static enum status listen_on_file(struct http_server *s, const char *path, struct error *err)
{
    struct sockaddr_un a;
    if (strlen(path) >= sizeof a.sun_path)
        return error_set(
            err, STATUS_INVALID,
            "the path of the socket %s is longer than %zu bytes. Choose a shorter path", path,
            sizeof a.sun_path - 1);
    remove_dead_socket(path);
    int rc = uv_pipe_bind(&s->listener.pipe, path);
    if (rc == 0)
        rc = uv_listen(&s->listener.stream, BACKLOG, on_connection);
    if (rc == UV_EADDRINUSE)
        return error_set(
            err, STATUS_EXISTS,
            "the socket %s is in use. Stop the process that listens on it or choose another path",
            path);
    return rc == 0 ? STATUS_OK
                   : error_set(err, STATUS_INVALID, "cannot listen on socket %s: %s", path,
                               uv_strerror(rc));
}

/* Bounds the unsent bytes in the kernel. Connections inherit the bound from their listener.
 * Further bytes wait in this process, where they are counted. Otherwise the socket's buffer
 * grows to megabytes for a client that does not read. The bound does not reduce the bytes in
 * flight. */
static void bound_unsent(struct http_server *s)
{
    const int bytes = UNSENT_BYTES;
    uv_os_fd_t fd;
    if (uv_fileno(&s->listener.handle, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

static enum status listen_on(struct http_server *s, const struct http_options *o, struct error *err)
{
    struct sockaddr_storage a = {0};
    int len = sizeof a;
    if (parse_host(o->host, o->port, &a) != 0)
        return error_set(
            err, STATUS_INVALID,
            "cannot listen on \"%s\": it is not an IP address. Give an IP address (0.0.0.0 = all)",
            o->host);
    int rc = uv_tcp_bind(&s->listener.tcp, (struct sockaddr *)&a, 0);
    if (rc == 0)
        bound_unsent(s);
    if (rc == 0)
        rc = uv_listen(&s->listener.stream, BACKLOG, on_connection);
    if (rc == UV_EADDRINUSE)
        return error_set(
            err, STATUS_EXISTS,
            "port %u on %s is in use. Stop the process that listens there or choose another port",
            o->port, o->host);
    if (rc != 0)
        return error_set(err, STATUS_INVALID, "cannot listen on %s port %u: %s", o->host, o->port,
                         uv_strerror(rc));
    uv_tcp_getsockname(&s->listener.tcp, (struct sockaddr *)&a, &len);
    s->port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                            : ((struct sockaddr_in *)&a)->sin_port);
    return STATUS_OK;
}

static void free_server(struct http_server *s)
{
    gather_fini(s);
    room_fini(&s->bodies);
    room_fini(&s->answers);
    room_fini(&s->kept);
    room_fini(&s->strangers);
    room_fini(&s->trees);
    places_fini(&s->waiting);
    places_fini(&s->held);
    mem_free(s);
}

static const struct conn_calls calls = {.written = conn_written,
                                        .flushed = conn_flushed,
                                        .deadline = conn_on_deadline,
                                        .free = free_server};

enum status http_server_start(struct loop *l, const struct http_options *o,
                              const struct http_handlers *h, struct http_server **out,
                              struct error *err)
{
    struct http_server *s = mem_zalloc(sizeof *s);
    s->calls = &calls;
    s->loop = l;
    s->limits = o->limits;
    s->handlers = *h;
    fill_limits(&s->limits);
    init_rooms(s);
    snprintf(s->name, sizeof s->name, "%s", o->server_name ? o->server_name : "");
    s->root_path = o->root_path && o->root_path[0] ? o->root_path : NULL;
    s->is_unix = o->uds != NULL;
    s->tls = o->tls;
    if (s->is_unix)
        uv_pipe_init(loop_uv(l), &s->listener.pipe, 0);
    else
        uv_tcp_init(loop_uv(l), &s->listener.tcp);
    s->listener.handle.data = s;
    s->listening = true;
    s->open_handles = 2;
    gather_open(s);
    enum status st = o->uds ? listen_on_file(s, o->uds, err) : listen_on(s, o, err);
    if (st != STATUS_OK) {
        http_server_close(s);
        return st;
    }
    *out = s;
    return STATUS_OK;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

static void close_listener(struct http_server *s)
{
    if (!s->listening)
        return;
    s->listening = false;
    uv_close(&s->listener.handle, on_listener_closed);
}

/* Accepts the connections in the kernel's queue. A close of the listener would reset these
 * connections although their requests may already be in transit. */
static void accept_backlog(struct http_server *s)
{
    uv_os_fd_t listener;
    if (!s->listening || uv_fileno(&s->listener.handle, &listener) != 0)
        return;
    for (uint32_t i = 0; i < BACKLOG && s->n_conns < s->limits.max_connections; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        (void)conn_accept(s, fd);
    }
}

void http_server_stop_accepting(struct http_server *s)
{
    s->draining = true;
    accept_backlog(s);
    close_listener(s);
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        conn_drain(c);
    }
}

bool http_server_has_work(const struct http_server *s)
{
    for (const struct conn *c = s->conns; c; c = c->next)
        if (conn_has_work(c))
            return true;
    return false;
}

void http_server_close(struct http_server *s)
{
    if (!s || s->closing)
        return;
    s->closing = true;
    close_listener(s);
    gather_close(s);
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        conn_abort(c);
    }
    http_server_release(s);
}
