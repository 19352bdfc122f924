/* Tests that two ends of a connection on one host agree on shared memory, or both stay on TCP.
 * One end runs in a thread, and the test plays the other end by hand over a socket pair in place
 * of the TCP connection. Cases: the test connects or listens, with wrong tokens, descriptors or
 * names, a missing end and interrupts. Invariants: both ends take the same decision, and no
 * descriptor is left behind. */
#include "worker/comm/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"

/* `end` is the end under test, in a thread of its own. The test plays the other end. */
struct end {
    struct share share;
    struct waiter waiter;
    bool accepts;
    enum status status;
    struct comm_link *link;
    struct error err;
    pthread_t thread;
    int other_fd; /* connection of the test's end */
};

static void *end_main(void *arg)
{
    struct end *e = arg;
    e->status = (e->accepts ? share_accept : share_connect)(&e->share, &e->link, &e->err);
    return NULL;
}

static void end_start(struct end *e, bool accepts)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    memset(e, 0, sizeof *e);
    e->accepts = accepts;
    e->waiter.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->share = (struct share){.waiter = &e->waiter,
                              .tcp_fd = fds[0],
                              .deadline_ns = clock_mono_ns() + 20 * NS_PER_S,
                              .wanted = true,
                              .token = "the token of this test's meeting"};
    e->other_fd = fds[1];
    assert_int_equal(pthread_create(&e->thread, NULL, end_main, e), 0);
}

static void end_wait(struct end *e)
{
    pthread_join(e->thread, NULL);
    if (e->link)
        e->link->ops->close(e->link);
    close(e->share.tcp_fd);
    close(e->waiter.wake_fd);
    if (e->other_fd >= 0)
        close(e->other_fd);
}

static void say(int fd, const void *data, size_t n)
{
    assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void hear(int fd, void *data, size_t n)
{
    assert_int_equal(recv(fd, data, n, MSG_WAITALL), (ssize_t)n);
}

/* Reads until the other end closes, and discards the bytes. */
static void hear_end(int fd)
{
    char c;
    while (recv(fd, &c, 1, 0) > 0)
        ;
}

static int call(const uint8_t welcome[WELCOME_BYTES])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true(welcome[0] > 1 && welcome[0] < WELCOME_BYTES && welcome[1] == 0);
    memcpy(a.sun_path, welcome + 1, welcome[0]);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + welcome[0])),
                     0);
    return fd;
}

/* ---- the test connects ---- */

static void test_no_thanks(void **state)
{
    struct end e;
    uint8_t welcome[WELCOME_BYTES];
    end_start(&e, true);
    hear(e.other_fd, welcome, sizeof welcome);
    say(e.other_fd, "n", 1);
    end_wait(&e);
    assert_int_equal(e.status, STATUS_OK);
    assert_null(e.link);
}

static void test_wrong_token(void **state)
{
    struct end e;
    uint8_t welcome[WELCOME_BYTES], wrong[TOKEN_BYTES] = {0};
    end_start(&e, true);
    hear(e.other_fd, welcome, sizeof welcome);
    for (int i = 0; i < 3; i++) { /* two callers send a wrong token, and one closes at once */
        int fd = call(welcome);
        if (i != 1) {
            say(fd, wrong, sizeof wrong);
            hear_end(fd);
        }
        close(fd);
    }
    int fd = call(welcome); /* this caller has the right token */
    say(fd, e.share.token, TOKEN_BYTES);
    char byte;
    hear(fd, &byte, 1); /* the kernel drops descriptors that come with this byte */
    say(e.other_fd, "y", 1);
    end_wait(&e);
    assert_int_equal(e.status, STATUS_OK);
    close(fd);
}

static void test_lies(void **state)
{
    struct end e;
    uint8_t welcome[WELCOME_BYTES];
    end_start(&e, true);
    hear(e.other_fd, welcome, sizeof welcome);
    say(e.other_fd, "y", 1); /* the test reports that it has memory that it never requested */
    end_wait(&e);
    assert_int_equal(e.status, STATUS_PROTOCOL);
    assert_null(e.link);
}

static void test_accept_gone(void **state)
{
    for (int when = 0; when < 3; when++) {
        struct end e;
        uint8_t welcome[WELCOME_BYTES];
        end_start(&e, true);
        hear(e.other_fd, welcome, sizeof welcome);
        int fd = when > 0 ? call(welcome) : -1;
        if (when > 1) {
            char byte;
            say(fd, e.share.token, TOKEN_BYTES);
            hear(fd, &byte, 1);
        }
        close(e.other_fd); /* this has the same effect as the end of the other process */
        e.other_fd = -1;
        if (fd >= 0)
            close(fd);
        end_wait(&e);
        assert_int_equal(e.status, STATUS_IO);
        assert_null(e.link);
    }
}

/* ---- the test listens ---- */

static int listen_as_rank(uint8_t welcome[WELCOME_BYTES])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    socklen_t n = sizeof a;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a.sun_family), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    memset(welcome, 0, WELCOME_BYTES);
    welcome[0] = (uint8_t)(n - offsetof(struct sockaddr_un, sun_path));
    memcpy(welcome + 1, a.sun_path, welcome[0]);
    return fd;
}

static void send_fds(int fd, const int *fds, size_t n)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    char byte = 'm';
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
    if (n > 0) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &m, MSG_NOSIGNAL), 1);
}

static int count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int small_memory(void)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    return fd;
}

/* Only the memory of a rank is accepted. No descriptor is left behind in any case. */
static void test_not_memory(void **state)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), memory_fd = small_memory();
    const struct {
        size_t n;
        int fds[4];
    } cases[] = {{0, {0}},
                 {1, {null_fd}},
                 {1, {memory_fd}}, /* this memory has the right size, but is not sealed */
                 {2, {memory_fd, null_fd}},
                 {4, {memory_fd, null_fd, null_fd, null_fd}}};
    int n_fds = count_fds();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct end e;
        uint8_t welcome[WELCOME_BYTES], token[TOKEN_BYTES];
        char verdict;
        end_start(&e, false);
        int listener = listen_as_rank(welcome);
        say(e.other_fd, welcome, sizeof welcome);
        int fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        hear(fd, token, sizeof token);
        assert_memory_equal(token, e.share.token, TOKEN_BYTES);
        send_fds(fd, cases[i].fds, cases[i].n);
        hear(e.other_fd, &verdict, 1);
        assert_int_equal(verdict, 'n');
        close(fd);
        close(listener);
        end_wait(&e);
        assert_int_equal(e.status, STATUS_OK);
        assert_null(e.link);
        assert_int_equal(count_fds(), n_fds);
    }
    close(null_fd);
    close(memory_fd);
}

/* The memory is not taken from a name without a listener, nor from a name in the file system. */
static void test_names(void **state)
{
    static const uint8_t names[][WELCOME_BYTES] = {{6, 0, 'f', 'f', 'f', 'f', '~'},
                                                   {5, '/', 't', 'm', 'p', '/'},
                                                   {1, 0},
                                                   {200, 0, 'a'},
                                                   {7, 0, 0, 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct end e;
        char verdict;
        end_start(&e, false);
        say(e.other_fd, names[i], WELCOME_BYTES);
        hear(e.other_fd, &verdict, 1);
        assert_int_equal(verdict, 'n');
        end_wait(&e);
        assert_int_equal(e.status, STATUS_OK);
        assert_null(e.link);
    }
}

/* The listener of the other end closes while this end waits for the memory. */
static void test_listener_gone(void **state)
{
    for (int taken = 0; taken < 2; taken++) {
        struct end e;
        uint8_t welcome[WELCOME_BYTES], token[TOKEN_BYTES];
        char verdict;
        end_start(&e, false);
        int listener = listen_as_rank(welcome), fd = -1;
        say(e.other_fd, welcome, sizeof welcome);
        if (taken) {
            fd = accept(listener, NULL, NULL);
            hear(fd, token, sizeof token);
            close(fd);
        }
        close(listener);
        hear(e.other_fd, &verdict, 1);
        assert_int_equal(verdict, 'n');
        end_wait(&e);
        assert_int_equal(e.status, STATUS_OK);
        assert_null(e.link);
    }
}

static void test_no_welcome(void **state)
{
    static const uint8_t none[WELCOME_BYTES];
    struct end e;
    end_start(&e, false);
    say(e.other_fd, none, sizeof none); /* the test offers nothing, so it expects no verdict */
    end_wait(&e);
    assert_int_equal(e.status, STATUS_OK);
    assert_null(e.link);
    end_start(&e, false);
    say(e.other_fd, none, 3);
    close(e.other_fd);
    e.other_fd = -1;
    end_wait(&e);
    assert_int_equal(e.status, STATUS_IO);
}

/* Each end can be interrupted at any point where it waits. */
static void test_interrupted(void **state)
{
    for (int which = 0; which < 4; which++) {
        struct end e;
        uint8_t welcome[WELCOME_BYTES], token[TOKEN_BYTES];
        uint64_t one = 1;
        int fd = -1, listener = -1;
        end_start(&e, which < 2);
        if (which < 2)
            hear(e.other_fd, welcome, sizeof welcome);
        if (which == 1)
            fd = call(welcome); /* this caller sends no token */
        if (which == 3) {
            listener = listen_as_rank(welcome);
            say(e.other_fd, welcome, sizeof welcome);
            fd = accept(listener, NULL, NULL);
            hear(fd, token, sizeof token);
        }
        atomic_store(&e.waiter.interrupted, true);
        assert_int_equal(write(e.waiter.wake_fd, &one, sizeof one), sizeof one);
        pthread_join(e.thread, NULL);
        assert_int_equal(e.status, STATUS_CLOSED);
        assert_null(e.link);
        if (fd >= 0)
            close(fd);
        if (listener >= 0)
            close(listener);
        close(e.share.tcp_fd);
        close(e.waiter.wake_fd);
        close(e.other_fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_thanks),     cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_lies),          cmocka_unit_test(test_accept_gone),
        cmocka_unit_test(test_not_memory),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_listener_gone), cmocka_unit_test(test_no_welcome),
        cmocka_unit_test(test_interrupted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
