/* Tests that ranks join a group. Ranks are threads of this process (comm_ranks.h) or a forked
 * child, and the tests also play ranks and unknown peers by hand on plain sockets. Cases: hosts
 * and addresses, transports, garbage and duplicates at a listener, peers that are early, late,
 * silent or killed. Invariants: each rank slot is taken once, and no descriptor or memory is
 * left behind. The fork test runs first, before there are threads. */
#include "worker/comm/comm.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/worker/comm/comm_ranks.h"
#include "worker/comm/address.h"
#include "worker/comm/handshake.h"

static const struct comm_options memory = {.no_shared_memory = false},
                                 sockets = {.no_shared_memory = true};

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Returns a blocking connection to a rank's listener. */
static int visit(struct str address)
{
    struct address a;
    struct error err;
    assert_int_equal(address_parse(address, &a, &err), STATUS_OK);
    int fd = socket(a.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a.sa, a.n), 0);
    return fd;
}

static void say(int fd, const void *data, size_t n)
{
    assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Returns false when the other end has closed. */
static bool hear(int fd, void *data, size_t n)
{
    return recv(fd, data, n, MSG_WAITALL) == (ssize_t)n;
}

/* Plays the first half of a rank's connection. Returns the descriptor, or -1 when the rank
 * refused. */
static int play_hello(const struct rank *to, uint32_t from, struct transcript *t)
{
    struct handshake_end end;
    struct error err;
    struct hello h = {
        .term_epoch = to->term_epoch, .from = from, .to = to->rank, .n_ranks = to->n_ranks};
    handshake_end_fill(&h.end, false);
    hello_encode(&h, to->id, t->hello);
    int fd = visit(to->addresses[to->rank]);
    say(fd, t->hello, sizeof t->hello);
    if (!hear(fd, t->reply, sizeof t->reply)) {
        close(fd);
        return -1;
    }
    assert_int_equal(reply_decode(t, to->id, &end, &err), STATUS_OK);
    return fd;
}

/* Plays the second half of a rank's connection. Returns false when the rank refused. */
static bool play_confirm(const struct rank *to, const struct transcript *t, int fd)
{
    uint8_t confirm[CONFIRM_BYTES], welcome[8];
    confirm_encode(t, to->id, confirm);
    say(fd, confirm, sizeof confirm);
    return hear(fd, welcome, sizeof welcome);
}

static int play_rank(const struct rank *to, uint32_t from)
{
    struct transcript t;
    int fd = play_hello(to, from, &t);
    if (fd >= 0)
        assert_true(play_confirm(to, &t, fd));
    return fd;
}

static void sum_of_ones(struct rank *r)
{
    struct error err = {0};
    float x[5] = {1, 1, 1, 1, 1};
    EXPECT(r, comm_all_reduce(r->comm, x, 5, &err) == STATUS_OK, "%s", err.text);
    EXPECT(r, x[4] == (float)r->n_ranks, "%f", (double)x[4]);
}

/* ---- opening ---- */

static void test_hosts(void **state)
{
    static const struct {
        const char *host, *text; /* host, and text of the error; text NULL = accepted */
    } cases[] = {{"127.0.0.1", NULL},
                 {"localhost", NULL},
                 {"0.0.0.0", "means all addresses"},
                 {"::", "means all addresses"},
                 {"::ffff:0.0.0.0", "means all addresses"},
                 {"::ffff:127.0.0.1", NULL},
                 {"[127.0.0.1]", NULL},
                 {"", "--comm-host is empty"},
                 {"[]", "--comm-host []"},
                 {"127.0.0.1:7100", "Give the address without a port (--comm-port sets the port)"},
                 {"192.0.2.77", "Set an address of this host"},
                 {"no such name", "--comm-host no such name"}};
    int n_fds = count_fds();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct comm *c;
        struct error err;
        enum status s = comm_open(&(struct comm_options){.host = cases[i].host}, &c, &err);
        if ((s == STATUS_OK) != !cases[i].text)
            fail_msg("%s: %s", cases[i].host, s == STATUS_OK ? "fine" : err.text);
        if (s == STATUS_OK) {
            struct address a;
            assert_int_equal(address_parse(str_from(comm_address(c)), &a, &err), STATUS_OK);
            comm_close(c);
        } else if (!strstr(err.text, cases[i].text)) {
            fail_msg("%s: %s", cases[i].host, err.text);
        } else if (s != STATUS_INVALID && !strchr(cases[i].host, ' ')) {
            /* A restart does not help against these errors. Only a name may become known later. */
            fail_msg("%s: %s", cases[i].host, status_name(s));
        }
    }
    assert_int_equal(count_fds(), n_fds);
}

static void test_ipv6(void **state)
{
    struct comm *c;
    struct error err;
    if (comm_open(&(struct comm_options){.host = "::1"}, &c, &err) != STATUS_OK)
        skip(); /* this machine has no IPv6 */
    assert_int_equal(strncmp(comm_address(c), "[::1]:", 6), 0);
    comm_close(c);
    struct comm_options o = {.host = "::1", .no_shared_memory = true};
    assert_true(ranks_run(3, &o, sum_of_ones, NULL));
}

/* The address of a host becomes known late, and changes while a group exists. The next ranks to
 * join use the newest address. */
static void test_listening_elsewhere(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.3"};
    struct rank ranks[2];
    struct error err;
    struct comm *taken;
    int n_fds = count_fds();
    ranks_open(ranks, 2, &sockets);
    uint16_t port = (uint16_t)atoi(strrchr(comm_address(ranks[0].comm), ':') + 1);
    assert_int_equal(
        comm_open(&(struct comm_options){.host = "127.0.0.1", .port = port}, &taken, &err),
        STATUS_IO);
    assert_non_null(strstr(err.text, "Choose another --comm-port"));
    for (int fixed = 0; fixed < 2; fixed++) {
        comm_close(ranks[0].comm); /* with `fixed`, the port is free again */
        const struct comm_options o = {.port = fixed ? port : 0, .no_shared_memory = true};
        assert_int_equal(comm_open(&o, &ranks[0].comm, &err), STATUS_OK);
        assert_string_equal(comm_address(ranks[0].comm), "");
        for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
            char want[COMM_ADDRESS_MAX];
            snprintf(want, sizeof want, "%s:%u", hosts[i], port);
            assert_int_equal(comm_listen(ranks[0].comm, "192.0.2.77", &err), STATUS_INVALID);
            if (i == 3) /* no rank joins at this address */
                assert_int_equal(comm_listen(ranks[0].comm, "127.0.0.2", &err), STATUS_OK);
            if (comm_listen(ranks[0].comm, hosts[i], &err) != STATUS_OK)
                fail_msg("%s: %s", hosts[i], err.text);
            const char *address = comm_address(ranks[0].comm);
            assert_int_equal(strncmp(address, want, fixed ? strlen(want) + 1 : strlen(hosts[i])),
                             0);
            ranks[0].addresses[0] = ranks[1].addresses[0] = str_from(address);
            ranks_form(ranks, 2, 10 * (uint64_t)fixed + i + 1);
            ranks_start(ranks, 2, sum_of_ones, NULL);
            assert_true(ranks_wait(ranks, 2));
        }
    }
    ranks_close(ranks, 2);
    assert_int_equal(count_fds(), n_fds);
}

static void test_groups_refused(void **state)
{
    struct comm *listens, *alone;
    struct error err;
    uint8_t id[COMM_ID_BYTES] = {0};
    struct str good[2] = {STR("127.0.0.1:9"), STR("127.0.0.1:9")};
    struct str bad[2] = {STR("cox-worker-0.example:4123"), STR("127.0.0.1:9")};
    const struct {
        struct comm_group g;
        const char *text;
    } cases[] = {
        {{.n_ranks = 0}, "1 to 64 ranks"},
        {{.n_ranks = 65, .addresses = good, .id = {id, sizeof id}}, "1 to 64 ranks"},
        {{.rank = 2, .n_ranks = 2, .addresses = good, .id = {id, sizeof id}}, "rank 2 of 2"},
        {{.rank = 1, .n_ranks = 2, .addresses = good, .id = {id, 16}},
         "id has 16 bytes instead of 32"},
        {{.rank = 1, .n_ranks = 2, .addresses = bad, .id = {id, sizeof id}}, "rank 0: \"cox-wor"}};
    float x = 1;
    assert_int_equal(comm_open(&(struct comm_options){.host = "127.0.0.1"}, &listens, &err),
                     STATUS_OK);
    assert_int_equal(comm_open(&(struct comm_options){0}, &alone, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(comm_join(listens, &cases[i].g, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s", err.text);
        /* A failed join does not leave a group of one rank. */
        assert_int_equal(comm_all_reduce(listens, &x, 1, &err), STATUS_INVALID);
        comm_leave(listens);
        assert_int_equal(comm_all_reduce(listens, &x, 1, &err), STATUS_OK);
    }
    struct comm_group g = {.rank = 1, .n_ranks = 2, .addresses = good, .id = {id, sizeof id}};
    assert_int_equal(comm_join(alone, &g, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--comm-host"));
    comm_close(listens);
    comm_close(alone);
}

/* ---- transports ---- */

static void test_transports(void **state)
{
    static const struct {
        bool sockets[3];
        const char *want[3];
    } cases[] = {
        {{false, false, false}, {"shared memory", "shared memory", "shared memory"}},
        {{true, true, true}, {"TCP", "TCP", "TCP"}},
        {{false, true, false},
         {"shared memory to 1 of 2 ranks, TCP", "TCP", "shared memory to 1 of 2 ranks, TCP"}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rank ranks[3], some[3];
        ranks_open(ranks, 3, &sockets);
        ranks_open(some, 3, &memory);
        for (int r = 0; r < 3; r++)
            if (!cases[i].sockets[r]) {
                struct comm *c = ranks[r].comm;
                ranks[r].comm = some[r].comm;
                some[r].comm = c;
            }
        for (int r = 0; r < 3; r++)
            for (int p = 0; p < 3; p++)
                ranks[r].addresses[p] = str_from(comm_address(ranks[p].comm));
        ranks_form(ranks, 3, 1);
        ranks_start(ranks, 3, NULL, NULL);
        assert_true(ranks_wait(ranks, 3));
        for (int r = 0; r < 3; r++)
            assert_string_equal(comm_transport(ranks[r].comm), cases[i].want[r]);
        ranks_close(ranks, 3);
        ranks_close(some, 3);
    }
}

/* ---- strangers ---- */

/* All connections of unknown peers are in the listener's queue before the ranks connect. */
static void test_strangers(void **state)
{
    enum { N_VISITS = 40 };
    static const struct comm_options *const ways[] = {&memory, &sockets};
    static const char garbage[4096] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    int n_fds = count_fds();
    for (int w = 0; w < 2; w++) {
        struct rank ranks[3];
        int fds[2 * N_VISITS];
        uint8_t hello[HELLO_BYTES];
        ranks_open(ranks, 3, ways[w]);
        ranks_form(ranks, 3, 5);
        for (int i = 0; i < 2 * N_VISITS; i++) {
            struct rank *to = &ranks[i % 2]; /* the ranks that others connect to */
            struct hello h = {.term_epoch = 5, .from = to->rank + 1, .to = to->rank, .n_ranks = 3};
            handshake_end_fill(&h.end, true);
            hello_encode(&h, to->id, hello);
            fds[i] = visit(to->addresses[to->rank]);
            if (i % 5 == 1)
                say(fds[i], garbage, sizeof garbage);
            else if (i % 5 == 2)
                say(fds[i], hello, sizeof hello / 2);
            else if (i % 5 == 3) /* this peer sends a recorded hello without a confirmation */
                say(fds[i], hello, sizeof hello);
            else if (i % 5 == 4) {
                say(fds[i], hello, sizeof hello);
                say(fds[i], garbage, CONFIRM_BYTES);
            }
        }
        ranks_start(ranks, 3, sum_of_ones, NULL);
        assert_true(ranks_wait(ranks, 3));
        ranks_close(ranks, 3);
        for (int i = 0; i < 2 * N_VISITS; i++)
            close(fds[i]);
    }
    assert_int_equal(count_fds(), n_fds);
}

/* Rank 0 accepts ranks that the test plays by hand. Each rank slot is taken once, and only by a
 * higher rank. */
static void test_duplicates(void **state)
{
    struct rank ranks[3];
    ranks_open(ranks, 3, &sockets);
    ranks_form(ranks, 3, 9);
    ranks_start(ranks, 1, NULL, NULL);
    struct transcript t[2];
    int one = play_hello(&ranks[0], 1, &t[0]), late = play_hello(&ranks[0], 1, &t[1]);
    assert_true(one >= 0 && late >= 0); /* the first confirmation takes the rank slot */
    assert_true(play_confirm(&ranks[0], &t[0], one));
    assert_false(play_confirm(&ranks[0], &t[1], late));
    close(late);
    assert_int_equal(play_rank(&ranks[0], 1), -1);
    assert_int_equal(play_rank(&ranks[0], 0), -1);
    assert_int_equal(play_rank(&ranks[0], 3), -1);
    struct rank later = ranks[0];
    later.term_epoch++;
    assert_int_equal(play_rank(&later, 2), -1);
    struct rank larger = ranks[0];
    larger.n_ranks++;
    assert_int_equal(play_rank(&larger, 2), -1);
    struct rank other = ranks[0]; /* this peer believes that rank 0 is rank 1 */
    other.rank = 1;
    other.addresses[1] = ranks[0].addresses[0];
    assert_int_equal(play_rank(&other, 2), -1);
    int two = play_rank(&ranks[0], 2);
    assert_true(two >= 0);
    assert_true(ranks_wait(ranks, 1));
    assert_int_equal(ranks[0].joined, STATUS_OK);
    close(one);
    close(two);
    ranks_close(ranks, 3);
}

static void test_another_formation(void **state)
{
    for (int which = 0; which < 2; which++) {
        struct rank ranks[2];
        int n_fds = count_fds();
        ranks_open(ranks, 2, &memory);
        ranks_form(ranks, 2, 3);
        if (which == 0)
            ranks[1].id[31] ^= 1;
        else
            ranks[1].term_epoch++;
        ranks[0].join_timeout_ms = ranks[1].join_timeout_ms = 300;
        ranks_start(ranks, 2, NULL, NULL);
        ranks_wait(ranks, 2);
        assert_int_equal(ranks[0].joined, STATUS_TIMEOUT);
        assert_non_null(
            strstr(ranks[0].err.text, "the following ranks did not connect to 127.0.0.1:"));
        assert_non_null(strstr(ranks[0].err.text, ": 1 at 127.0.0.1:"));
        assert_int_equal(ranks[1].joined, STATUS_TIMEOUT);
        assert_non_null(strstr(ranks[1].err.text, "rank 0 at 127.0.0.1:"));
        assert_non_null(strstr(ranks[1].err.text, "it joins another replica"));
        ranks_close(ranks, 2);
        assert_int_equal(count_fds(), n_fds);
    }
}

/* Rank 1 begins to join epoch 2 while rank 0 still waits for epoch 1. Both join once rank 0 has
 * left epoch 1 and joins epoch 2. */
static void test_early(void **state)
{
    struct rank ranks[2];
    ranks_open(ranks, 2, &memory);
    ranks_form(ranks, 2, 1);
    ranks_start(ranks, 1, NULL, NULL); /* rank 0 of epoch 1 is alone */
    ranks[1].term_epoch = 2;
    ranks[1].id[0] ^= 1;
    ranks_start(ranks + 1, 1, sum_of_ones, NULL);
    poll(NULL, 0, 30);
    comm_interrupt(ranks[0].comm);
    assert_true(ranks_wait(ranks, 1));
    assert_int_equal(ranks[0].joined, STATUS_CLOSED);
    comm_leave(ranks[0].comm);
    ranks[0].term_epoch = 2;
    ranks[0].id[0] ^= 1;
    ranks_start(ranks, 1, sum_of_ones, NULL);
    assert_true(ranks_wait(ranks, 2));
    ranks_close(ranks, 2);
}

/* ---- ranks that do not come ---- */

static void test_refused(void **state)
{
    struct rank ranks[3];
    int n_fds = count_fds();
    ranks_open(ranks, 3, &memory);
    ranks_form(ranks, 3, 1);
    char gone[COMM_ADDRESS_MAX];
    snprintf(gone, sizeof gone, "%s", comm_address(ranks[0].comm));
    ranks[2].addresses[0] = str_from(gone);
    comm_close(ranks[0].comm); /* the process of rank 0 has ended */
    ranks[0].comm = NULL;
    ranks_start(ranks + 2, 1, NULL, NULL);
    ranks_wait(ranks + 2, 1);
    assert_int_equal(ranks[2].joined, STATUS_IO);
    assert_non_null(strstr(ranks[2].err.text, "rank 0 at 127.0.0.1:"));
    assert_non_null(strstr(ranks[2].err.text,
                           "cannot connect: connection refused. Check that this host can reach"));
    ranks_close(ranks, 3);
    assert_int_equal(count_fds(), n_fds);
}

/* The process of rank 0 exists and listens, but does not join. */
static void test_silent(void **state)
{
    struct rank ranks[2];
    ranks_open(ranks, 2, &memory);
    ranks_form(ranks, 2, 1);
    ranks[1].join_timeout_ms = 500;
    ranks_start(ranks + 1, 1, NULL, NULL);
    ranks_wait(ranks + 1, 1);
    assert_int_equal(ranks[1].joined, STATUS_TIMEOUT);
    assert_non_null(strstr(ranks[1].err.text, "rank 0 at 127.0.0.1:"));
    assert_non_null(
        strstr(ranks[1].err.text, "that rank does not answer: it joins another replica"));
    ranks_close(ranks, 2);
}

static void test_interrupted(void **state)
{
    struct rank ranks[3];
    int n_fds = count_fds();
    ranks_open(ranks, 3, &memory);
    for (uint64_t epoch = 1; epoch <= 4; epoch++) {
        ranks_form(ranks, 3, epoch);
        /* Rank 0 waits for others to connect, and rank 2 for an answer of rank 1. Rank 1 never
         * joins. */
        ranks_start(ranks, 1, NULL, NULL);
        ranks_start(ranks + 2, 1, NULL, NULL);
        poll(NULL, 0, 10 * (int)(epoch - 1));
        comm_interrupt(ranks[0].comm);
        comm_interrupt(ranks[2].comm);
        ranks_wait(ranks, 1);
        ranks_wait(ranks + 2, 1);
        assert_int_equal(ranks[0].joined, STATUS_CLOSED);
        assert_int_equal(ranks[2].joined, STATUS_CLOSED);
        rank_join(&ranks[0]); /* the rank stays interrupted until it leaves */
        assert_int_equal(ranks[0].joined, STATUS_CLOSED);
        comm_leave(ranks[0].comm);
        comm_leave(ranks[2].comm);
    }
    ranks_form(ranks, 3, 9); /* connections of earlier attempts are still queued */
    ranks_start(ranks, 3, sum_of_ones, NULL);
    assert_true(ranks_wait(ranks, 3));
    ranks_close(ranks, 3);
    assert_int_equal(count_fds(), n_fds);
}

static void test_again_and_again(void **state)
{
    static const struct comm_options *const ways[] = {&memory, &sockets};
    for (int w = 0; w < 2; w++) {
        struct rank ranks[4];
        int left[20];
        ranks_open(ranks, 4, ways[w]);
        int n_fds = count_fds();
        for (int i = 0; i < 20; i++) {
            /* the connection stays open and sends nothing */
            left[i] = visit(ranks[i % 4].addresses[i % 4]);
            ranks_form(ranks, 4, (uint64_t)i + 1);
            ranks_start(ranks, 4, i % 3 ? sum_of_ones : NULL, NULL);
            assert_true(ranks_wait(ranks, 4));
            for (int r = 0; r < 4; r++) {
                assert_int_equal(ranks[r].joined, STATUS_OK);
                if (i % 2) /* joining again also leaves */
                    comm_leave(ranks[r].comm);
            }
        }
        for (int i = 0; i < 20; i++)
            close(left[i]);
        for (int r = 0; r < 4; r++)
            comm_leave(ranks[r].comm);
        assert_int_equal(count_fds(), n_fds);
        ranks_close(ranks, 4);
    }
}

/* With fewer and fewer free descriptors, joining fails or works without shared memory. No
 * descriptor leaks and no call hangs. */
static void test_no_descriptors(void **state)
{
    struct rlimit was;
    struct rank ranks[2];
    int n_formed = 0, n_failed = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    ranks_open(ranks, 2, &memory);
    ranks[0].join_timeout_ms = ranks[1].join_timeout_ms = 300;
    int n_fds = count_fds(), next = dup(0);
    assert_true(next >= 0);
    close(next);
    for (int room = 0; room <= 16; room++) {
        struct rlimit few = {(rlim_t)(next + room), was.rlim_max};
        ranks_form(ranks, 2, (uint64_t)room + 1);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        ranks_start(ranks, 2, NULL, NULL);
        ranks_wait(ranks, 2);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        for (int r = 0; r < 2; r++) {
            n_formed += ranks[r].joined == STATUS_OK;
            n_failed += ranks[r].joined != STATUS_OK;
            comm_leave(ranks[r].comm);
        }
        assert_int_equal(count_fds(), n_fds);
    }
    assert_true(n_formed > 0 && n_failed > 0);
    ranks_close(ranks, 2);
}

/* ---- processes ---- */

struct invitation {
    char address[COMM_ADDRESS_MAX];
    uint8_t id[COMM_ID_BYTES];
};

/* Runs rank 1 until the process is killed. */
static void child(const struct comm_options *o, const struct invitation *in, int to_parent)
{
    struct rank r = {.rank = 1, .n_ranks = 2, .term_epoch = 1};
    struct comm_options own = *o;
    struct error err;
    float x[1000] = {0};
    own.host = "127.0.0.1";
    if (comm_open(&own, &r.comm, &err) != STATUS_OK)
        _exit(1);
    struct invitation back = {{0}, {0}};
    snprintf(back.address, sizeof back.address, "%s", comm_address(r.comm));
    if (write(to_parent, &back, sizeof back) != sizeof back)
        _exit(2);
    r.addresses[0] = str_from(in->address);
    r.addresses[1] = str_from(back.address);
    memcpy(r.id, in->id, sizeof r.id);
    rank_join(&r);
    while (r.joined == STATUS_OK && comm_all_reduce(r.comm, x, 1000, &err) == STATUS_OK)
        ;
    _exit(3);
}

/* A killed peer is detected at once over each transport, although the default time-out is a
 * minute. */
static void test_killed_peer(void **state)
{
    static const struct comm_options *const ways[] = {&memory, &sockets};
    for (int w = 0; w < 2; w++) {
        struct rank r;
        struct invitation in = {{0}, {0}}, back;
        struct error err = {0};
        int pipe_fds[2], status;
        float x[1000] = {0};
        ranks_open(&r, 1, ways[w]);
        ranks_form(&r, 1, 1);
        snprintf(in.address, sizeof in.address, "%s", comm_address(r.comm));
        memcpy(in.id, r.id, sizeof in.id);
        assert_int_equal(pipe(pipe_fds), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(ways[w], &in, pipe_fds[1]);
        assert_int_equal(read(pipe_fds[0], &back, sizeof back), sizeof back);
        r.n_ranks = 2;
        r.addresses[1] = str_from(back.address);
        rank_join(&r);
        assert_int_equal(r.joined, STATUS_OK);
        for (int i = 0; i < 50; i++)
            assert_int_equal(comm_all_reduce(r.comm, x, 1000, &err), STATUS_OK);
        assert_int_equal(kill(pid, SIGKILL), 0);
        enum status s;
        while ((s = comm_all_reduce(r.comm, x, 1000, &err)) == STATUS_OK)
            ;
        assert_int_equal(s, STATUS_IO);
        assert_non_null(strstr(err.text, "rank 1 at 127.0.0.1:"));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        ranks_close(&r, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {/* this test forks, so it runs before there are threads */
                                       cmocka_unit_test(test_killed_peer),
                                       cmocka_unit_test(test_hosts),
                                       cmocka_unit_test(test_ipv6),
                                       cmocka_unit_test(test_listening_elsewhere),
                                       cmocka_unit_test(test_groups_refused),
                                       cmocka_unit_test(test_transports),
                                       cmocka_unit_test(test_strangers),
                                       cmocka_unit_test(test_duplicates),
                                       cmocka_unit_test(test_another_formation),
                                       cmocka_unit_test(test_early),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_silent),
                                       cmocka_unit_test(test_interrupted),
                                       cmocka_unit_test(test_again_and_again),
                                       cmocka_unit_test(test_no_descriptors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
