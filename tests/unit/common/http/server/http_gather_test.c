/* Tests that bytes written to streams in one turn of the loop are sent at its end, with one
 * write for each connection. In a steady state this allocates no memory. The test's own write
 * and writev replace libc's and count the calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/http/server/answer.h"
#include "common/http/server/server.h"
#include "tests/unit/malloc_count.h"

enum { N_STREAMS = 3, N_ROUNDS = 4, WAKE_BYTES = 8 /* size of libuv's own wake-up writes */ };

static unsigned n_writes;

ssize_t write(int fd, const void *bytes, size_t n)
{
    n_writes += n > WAKE_BYTES;
    return syscall(SYS_write, fd, bytes, n);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    n_writes++;
    return syscall(SYS_writev, fd, v, n);
}

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct http_request *streams[N_STREAMS];
    unsigned n_streams, n_rounds, n_lost;
    unsigned writes_before, writes[N_ROUNDS];
    unsigned long mallocs_before, mallocs[N_ROUNDS];
};

static void on_request(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    http_stream_begin(r, 200, "text/event-stream", NULL, 0);
    f->streams[f->n_streams++] = r;
}

static void on_abort(void *ctx, struct http_request *r)
{
    struct fixture *f = ctx;
    f->n_lost++;
    for (unsigned i = 0; i < N_STREAMS; i++)
        if (f->streams[i] == r)
            f->streams[i] = NULL;
}

/* Each timer records the cost of the turns since the previous timer. */
static void on_timer(void *ctx)
{
    struct fixture *f = ctx;
    if (f->n_streams < N_STREAMS)
        return;
    if (f->n_rounds > 0) {
        f->writes[f->n_rounds - 1] = n_writes - f->writes_before;
        f->mallocs[f->n_rounds - 1] = n_mallocs - f->mallocs_before;
    }
    if (f->n_rounds == N_ROUNDS) {
        for (unsigned i = 0; i < N_STREAMS; i++)
            if (f->streams[i])
                http_stream_end(f->streams[i]);
        http_server_close(f->server); /* the ends of the streams are not written yet */
        loop_stop(f->loop);
        return;
    }
    f->n_rounds++;
    f->writes_before = n_writes;
    f->mallocs_before = n_mallocs;
    for (unsigned k = 0; k < 3; k++)
        for (unsigned i = 0; i < N_STREAMS; i++)
            if (f->streams[i])
                http_stream_write(f->streams[i], k == 1 ? STR("two") : STR("a chunk of 17 b.."));
}

static int dial(const struct fixture *f)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_server_port(f->server)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
    return fd;
}

static void check_answer(int fd)
{
    char got[4096], want[1024] = "";
    size_t n = 0;
    for (ssize_t k; (k = recv(fd, got + n, sizeof got - 1 - n, 0)) > 0;)
        n += (size_t)k;
    got[n] = '\0';
    for (unsigned i = 0; i < N_ROUNDS; i++)
        strcat(want, "11\r\na chunk of 17 b..\r\n3\r\ntwo\r\n11\r\na chunk of 17 b..\r\n");
    strcat(want, "0\r\n\r\n");
    const char *body = strstr(got, "\r\n\r\n");
    assert_non_null(body);
    assert_string_equal(body + 4, want);
    close(fd);
}

static void one_write_for_each_stream_and_turn(void **state)
{
    struct fixture f = {0};
    struct error err = {0};
    int fds[N_STREAMS];
    struct http_options o = {.host = "127.0.0.1"};
    struct http_handlers h = {.ctx = &f, .on_request = on_request, .on_abort = on_abort};
    assert_int_equal(loop_new(&f.loop, &err), STATUS_OK);
    assert_int_equal(http_server_start(f.loop, &o, &h, &f.server, &err), STATUS_OK);
    for (unsigned i = 0; i < N_STREAMS; i++)
        fds[i] = dial(&f);
    loop_timer_start(f.loop, 1, 10, on_timer, &f);
    loop_run(f.loop);
    loop_free(f.loop);
    for (unsigned i = 0; i < N_ROUNDS; i++) {
        assert_int_equal(f.writes[i], N_STREAMS);
        if (i > 0)
            assert_int_equal(f.mallocs[i], 0);
    }
    for (unsigned i = 0; i < N_STREAMS; i++)
        check_answer(fds[i]);
    assert_int_equal(f.n_lost, 0);
}

/* When one client disconnects, the other clients' bytes are still sent. */
static void a_client_that_leaves_takes_its_bytes_with_it(void **state)
{
    struct fixture f = {0};
    struct error err = {0};
    int fds[N_STREAMS];
    struct http_options o = {.host = "127.0.0.1"};
    struct http_handlers h = {.ctx = &f, .on_request = on_request, .on_abort = on_abort};
    assert_int_equal(loop_new(&f.loop, &err), STATUS_OK);
    assert_int_equal(http_server_start(f.loop, &o, &h, &f.server, &err), STATUS_OK);
    for (unsigned i = 0; i < N_STREAMS; i++)
        fds[i] = dial(&f);
    shutdown(fds[1], SHUT_RDWR);
    close(fds[1]);
    loop_timer_start(f.loop, 1, 10, on_timer, &f);
    loop_run(f.loop);
    loop_free(f.loop);
    check_answer(fds[0]);
    check_answer(fds[2]);
    assert_int_equal(f.n_lost, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_write_for_each_stream_and_turn),
        cmocka_unit_test(a_client_that_leaves_takes_its_bytes_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
