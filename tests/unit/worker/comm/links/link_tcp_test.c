/* Tests TCP sockets between ranks: no pacing, and several pieces of a message in one packet. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/comm/links/link.h"

static const char *congestion_of(int fd)
{
    static char name[17];
    socklen_t n = sizeof name - 1;
    memset(name, 0, sizeof name);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n), 0);
    return name;
}

static bool has_no_delay(int fd)
{
    int on = 0;
    socklen_t n = sizeof on;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &n), 0);
    return on != 0;
}

/* Returns a socket of a host whose default congestion control is `name`. Returns -1 when the
 * kernel or user may not use it. */
static int socket_of(const char *name)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0)
        return fd;
    close(fd);
    return -1;
}

struct ends {
    int connected, accepted;
};

/* Connects two sockets that are both prepared as join.c prepares them. */
static struct ends meet(int listener, int connecting)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    link_tcp_prepare(listener);
    link_tcp_prepare(connecting);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(connect(connecting, (struct sockaddr *)&a, sizeof a), 0);
    int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    close(listener);
    return (struct ends){connecting, accepted};
}

static void test_not_paced(void **state)
{
    int listener = socket_of("bbr"), connecting = socket_of("bbr");
    if (listener < 0 || connecting < 0) {
        print_message("no BBR here\n");
        skip();
    }
    struct ends e = meet(listener, connecting);
    assert_true(strncmp(congestion_of(e.connected), "bbr", 3) != 0);
    assert_true(strncmp(congestion_of(e.accepted), "bbr", 3) != 0);
    close(e.connected);
    close(e.accepted);
}

/* Any other congestion control of the host stays as it is. */
static void test_others_stay(void **state)
{
    struct ends e = meet(socket_of("reno"), socket_of("reno"));
    assert_string_equal(congestion_of(e.connected), "reno");
    assert_string_equal(congestion_of(e.accepted), "reno");
    assert_true(has_no_delay(e.connected) && has_no_delay(e.accepted));
    close(e.connected);
    close(e.accepted);
}

static void test_runs(void **state)
{
    struct ends e = meet(socket_of("reno"), socket_of("reno"));
    struct comm_link *from, *to;
    struct error err = {0};
    char head[4], body[8];
    size_t n;
    const struct iovec out[2] = {{"head", 4}, {"the body", 8}}, in[2] = {{head, 4}, {body, 8}};
    assert_int_equal(link_tcp_new(e.connected, &from, &err), STATUS_OK);
    assert_int_equal(link_tcp_new(e.accepted, &to, &err), STATUS_OK);
    assert_int_equal(to->ops->recv(to, in, 2, &n, &err), STATUS_OK);
    assert_int_equal(n, 0);
    assert_int_equal(from->ops->send(from, out, 2, &n, &err), STATUS_OK);
    assert_int_equal(n, 12);
    assert_int_equal(to->ops->recv(to, in, 2, &n, &err), STATUS_OK);
    assert_int_equal(n, 12); /* all bytes are in one packet, so no other packet follows */
    assert_memory_equal(head, "head", 4);
    assert_memory_equal(body, "the body", 8);
    from->ops->close(from);
    assert_int_equal(link_recv(to, body, 1, &n, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "closed"));
    to->ops->close(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_paced),
        cmocka_unit_test(test_others_stay),
        cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
