/* Tests which connection is closed when there are more connections than allowed. Each script
 * runs as the client in a thread against a real server, from several addresses of 127.0.0.0/8.
 * The script counts its passed checks in `n_chunks`. The client with the most connections must
 * lose a connection first, and a client with few connections must keep its transfers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "common/http/conn/address.h"
#include "common/http/conn/places.h"
#include "common/http/conn/state.h"
#include "tests/unit/common/http/server/http_fixture.h"

static int dial_from(struct fixture *f, uint8_t last_byte, const char *text)
{
    f->from = last_byte;
    int fd = dial(f);
    f->from = 0;
    if (fd < 0 || send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        abort();
    return fd;
}

/* Reads the next answer and compares it: "200", "503", or "end" for a closed connection. */
static bool hears(int fd, const char *want)
{
    char answer[1024] = "";
    const ssize_t n = recv(fd, answer, sizeof answer - 1, 0);
    return n == 0 ? strcmp(want, "end") == 0 : n > 12 && strncmp(answer + 9, want, 3) == 0;
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0;
}

#define GET        "GET /a HTTP/1.1\r\nHost: t\r\n\r\n"
#define HOLD       "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"
#define BODY       "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nx"
#define LARGE      "GET /large HTTP/1.1\r\nHost: t\r\n\r\n"
#define MANY_LARGE LARGE LARGE LARGE LARGE LARGE LARGE LARGE LARGE

enum { N_LARGE = 8 };

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* All four allowed connections have a request in progress, so new connections get a 503.
 * `f->n_chunks` counts the passed checks. */
static void many_requests(struct fixture *f)
{
    int fds[6];
    for (int i = 0; i < 4; i++)
        fds[i] = dial_from(f, 2, HOLD);
    for (int i = 4; i < 6; i++) {
        fds[i] = dial_from(f, 3, GET);
        f->n_chunks += hears(fds[i], "503") + hears(fds[i], "end");
    }
    for (int i = 0; i < 4; i++)
        f->n_chunks += is_open(fds[i]);
    close_all(fds, 6);
}

/* One client has one idle connection, and another client has three. New connections are
 * accepted, and the second client loses the connection that has been idle for longest. */
static void idle_crowd(struct fixture *f)
{
    int fds[7];
    fds[0] = dial_from(f, 2, GET);
    f->n_chunks += hears(fds[0], "200");
    for (int i = 1; i < 4; i++) {
        fds[i] = dial_from(f, 3, GET);
        f->n_chunks += hears(fds[i], "200");
    }
    f->n_chunks += send(fds[1], GET, strlen(GET), MSG_NOSIGNAL) > 0 && hears(fds[1], "200");
    fds[4] = dial_from(f, 4, GET);
    f->n_chunks += hears(fds[4], "200") + hears(fds[2], "end");
    /* this is a new connection from the address with the most connections */
    fds[5] = dial_from(f, 3, GET);
    f->n_chunks += hears(fds[5], "200") + hears(fds[3], "end");
    fds[6] = dial_from(f, 5, HOLD);
    f->n_chunks += hears(fds[1], "end");
    f->n_chunks += is_open(fds[0]) + is_open(fds[4]) + is_open(fds[5]) + is_open(fds[6]);
    f->n_chunks += send(fds[0], GET, strlen(GET), MSG_NOSIGNAL) > 0 && hears(fds[0], "200");
    close_all(fds, 7);
}

/* A connection with unfinished headers does not count as idle. It is closed in favour of a
 * client with fewer connections. */
static void half_crowd(struct fixture *f)
{
    int fds[5];
    fds[0] = dial_from(f, 2, HOLD);
    for (int i = 1; i < 4; i++) {
        fds[i] = dial_from(f, 3, "GET /a HTTP/1.1\r\n");
        usleep(20000);
    }
    fds[4] = dial_from(f, 4, GET);
    f->n_chunks += hears(fds[4], "200") + hears(fds[1], "end");
    f->n_chunks += is_open(fds[0]) + is_open(fds[2]) + is_open(fds[3]);
    close_all(fds, 5);
}

/* Opens three requests that do not end, so that no client has more than half of the seven
 * connections. */
static void fill_places(struct fixture *f, int fds[3])
{
    for (int i = 0; i < 3; i++)
        fds[i] = dial_from(f, 5, HOLD);
}

/* No upload sends a byte. After a second an upload is closed for a client with fewer
 * connections, but not for a client of the same address. Another client's only upload stays. */
static void body_crowd(struct fixture *f)
{
    int fds[9];
    fill_places(f, fds + 6);
    fds[0] = dial_from(f, 2, BODY);
    for (int i = 1; i < 4; i++)
        fds[i] = dial_from(f, 3, BODY);
    usleep(100000);
    fds[4] = dial_from(f, 4, GET);
    f->n_chunks += hears(fds[4], "503");
    close(fds[4]);
    usleep(1200000);
    fds[4] = dial_from(f, 3, GET);
    f->n_chunks += hears(fds[4], "503");
    fds[5] = dial_from(f, 4, HOLD);
    f->n_chunks += hears(fds[1], "end") + is_open(fds[0]) + is_open(fds[2]) + is_open(fds[5]);
    f->n_chunks += send(fds[0], "xy", 2, MSG_NOSIGNAL) == 2 && hears(fds[0], "200");
    close_all(fds, 9);
}

/* Uploads that move stay open, except for a client that has more than half of the four
 * connections. */
static void moving_crowd(struct fixture *f)
{
    int fds[5];
    fds[0] = dial_from(f, 2, BODY);
    for (int i = 1; i < 4; i++)
        fds[i] = dial_from(f, 3, BODY);
    usleep(700000);
    for (int i = 3; i >= 0; i--) {
        f->n_chunks += send(fds[i], "x", 1, MSG_NOSIGNAL) == 1;
        usleep(20000);
    }
    usleep(500000);
    fds[4] = dial_from(f, 4, GET);
    f->n_chunks += hears(fds[4], "200") + hears(fds[3], "end");
    f->n_chunks += is_open(fds[0]) + is_open(fds[1]) + is_open(fds[2]);
    close_all(fds, 5);
}

static bool is_whole(int fd)
{
    static char buf[256 << 10];
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < (size_t)N_LARGE * LARGE_BYTES; n += (size_t)got) {
        got = recv(fd, buf, sizeof buf, 0);
        if (got < 0)
            return false;
    }
    return n >= (size_t)N_LARGE * LARGE_BYTES;
}

/* No client reads its answer, and the answers are larger than the kernel's buffers. */
static void unread_crowd(struct fixture *f)
{
    int fds[9];
    fill_places(f, fds + 6);
    fds[0] = dial_from(f, 2, MANY_LARGE);
    for (int i = 1; i < 4; i++)
        fds[i] = dial_from(f, 3, MANY_LARGE);
    usleep(2500000);
    fds[4] = dial_from(f, 4, GET);
    f->n_chunks += hears(fds[4], "200");
    fds[5] = dial_from(f, 4, HOLD); /* the new connection replaces the idle connection */
    f->n_chunks += hears(fds[4], "end") + is_open(fds[5]) + is_whole(fds[0]);
    f->n_chunks += is_whole(fds[1]) + is_whole(fds[2]) + is_whole(fds[3]) == 2;
    close_all(fds, 9);
}

/* All clients share one address. The connection that has not moved for five seconds is closed. */
static void own_crowd(struct fixture *f)
{
    int fds[5];
    for (int i = 0; i < 4; i++)
        fds[i] = dial_from(f, 3, BODY);
    usleep(4000000);
    f->n_chunks += send(fds[0], "x", 1, MSG_NOSIGNAL) == 1;
    usleep(1200000);
    fds[4] = dial_from(f, 3, GET);
    f->n_chunks += hears(fds[4], "200") + hears(fds[1], "end");
    f->n_chunks += is_open(fds[0]) + is_open(fds[2]) + is_open(fds[3]);
    close_all(fds, 5);
}

static void connections_over_the_limit_find_a_place_or_hear_so(void **state)
{
    static const struct {
        void (*script)(struct fixture *f);
        uint32_t n_places;
        int n_right;
    } cases[] = {{many_requests, 4, 8}, {idle_crowd, 4, 15},  {half_crowd, 4, 5},
                 {body_crowd, 7, 7},    {moving_crowd, 4, 9}, {unread_crowd, 7, 5},
                 {own_crowd, 4, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct http_limits limits = {.max_connections = cases[i].n_places};
        struct fixture *f = mem_zalloc(sizeof *f);
        f->script = cases[i].script;
        run(f, &limits);
        if (f->n_chunks != cases[i].n_right)
            fail_msg("case %zu: %d of %d", i, f->n_chunks, cases[i].n_right);
        mem_free(f);
    }
}

/* ---- addresses ---- */

enum { N_ADDRESSES = 16384 };

/* Tests addresses that a client may choose: networks of one IPv6 /48, of one /32, in steps of a
 * power of two, and IPv4 addresses of one /16. There are as many buckets as addresses, and more
 * than half must be in use. Random addresses would use 1 - 1/e = 63 %. */
static void addresses_that_are_alike_are_spread(void **state)
{
    static const int first_byte[] = {6, 4, 0, 2};
    struct conn *c = mem_zalloc(N_ADDRESSES * sizeof *c);
    struct http_server *s = mem_zalloc(sizeof *s);
    for (uint64_t kind = 0; kind < 4 * 8; kind++) {
        const uint64_t seed = kind / 4 * 0x123456789ABCDEF1ull;
        places_init(&s->waiting);
        for (uint32_t i = 0; i < N_ADDRESSES; i++) {
            struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                                      .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8, 0x12, 0x34}};
            v6.sin6_addr.s6_addr[first_byte[kind % 4]] = (uint8_t)(i >> 8);
            v6.sin6_addr.s6_addr[first_byte[kind % 4] + 1] = (uint8_t)i;
            struct sockaddr_storage a = {0};
            memcpy(&a, &v6, sizeof v6);
            c[i] = (struct conn){.server = s, .address = places_address(&a, seed)};
            c[i].deadline.loop = uv_default_loop();
            places_wait(&c[i]);
        }
        uint32_t used = 0;
        for (uint32_t i = 0; i < s->waiting.peers.n_buckets; i++)
            used += s->waiting.peers.buckets[i] != NULL;
        assert_int_equal(s->waiting.peers.n, N_ADDRESSES);
        assert_int_equal(s->waiting.peers.n_buckets, N_ADDRESSES);
        assert_in_range(used, N_ADDRESSES / 2, N_ADDRESSES);
        for (uint32_t i = 0; i < N_ADDRESSES; i++)
            places_stay(&c[i]);
        places_fini(&s->waiting);
    }
    mem_free(s);
    mem_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_over_the_limit_find_a_place_or_hear_so),
        cmocka_unit_test(addresses_that_are_alike_are_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
