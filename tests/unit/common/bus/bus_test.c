/* Tests the bus: a head's socket and a peer's, on one loop, over libzmq with CURVE keys.
 * `pair_open` opens the two sockets, `bus_send` sends frames, and the handlers count what
 * arrives. bus.c is included to stop the ZAP handler of a running bus.
 * Only authorized keys are admitted, a peer's identity is never reused, and `bus_close` leaves
 * no thread behind. */
#include "common/bus/bus.c"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/loop/uv.h"

enum { GIVE_UP_MS = 60000, N_MANY = 1000 };

struct side {
    struct bus *bus;
    struct loop *loop;
    struct bus_peer peer;
    enum peer_role role;
    char key[41], text[64];
    int n_frames, want_frames, n_up, n_down;
    const char *why;
    bool stop_on_down, stop_on_up, echo, close_on_frame, in_handler;
};

struct pair {
    struct loop *loop;
    struct curve_keys head_keys, peer_keys;
    struct authorized authorized;
    struct side head, peer;
    uint32_t hwm; /* high-water mark of the head; 0 = the default */
};

static void give_up(void *ctx)
{
    struct pair *p = ctx;
    print_error("nothing happened: head got %d frames, peer %d, why %s\n", p->head.n_frames,
                p->peer.n_frames, p->peer.why ? p->peer.why : "-");
    abort();
}

static void on_frame(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame)
{
    struct side *s = ctx;
    /* the bus never calls a handler from inside a handler, not even through a send */
    assert_false(s->in_handler);
    s->in_handler = true;
    s->peer = from;
    s->role = role;
    snprintf(s->key, sizeof s->key, "%s", key);
    snprintf(s->text, sizeof s->text, STR_FMT, STR_ARG(frame));
    if (s->echo)
        assert_int_equal(bus_send(s->bus, from, frame), STATUS_OK);
    s->in_handler = false;
    if (++s->n_frames == s->want_frames)
        loop_stop(s->loop);
    if (s->close_on_frame) {
        bus_close(s->bus);
        s->bus = NULL;
    }
}

static void on_link(void *ctx, bool up, const char *why)
{
    struct side *s = ctx;
    *(up ? &s->n_up : &s->n_down) += 1;
    s->why = why;
    if (up ? s->stop_on_up : s->stop_on_down)
        loop_stop(s->loop);
}

static void pair_init(struct pair *p)
{
    *p = (struct pair){0};
    assert_int_equal(loop_new(&p->loop, NULL), STATUS_OK);
    assert_int_equal(keys_generate(&p->head_keys, NULL), STATUS_OK);
    assert_int_equal(keys_generate(&p->peer_keys, NULL), STATUS_OK);
    p->authorized.entries = mem_array(2, sizeof *p->authorized.entries);
    p->authorized.n_entries = 1;
    p->authorized.entries[0].role = ROLE_WORKER;
    memcpy(p->authorized.entries[0].public_key, p->peer_keys.public_key, 41);
    p->head.loop = p->peer.loop = p->loop;
    loop_timer_start(p->loop, GIVE_UP_MS, 0, give_up, p);
}

static void head_open(struct pair *p, bool insecure)
{
    struct bus_options o = {.endpoint = "tcp://127.0.0.1:0",
                            .insecure = insecure,
                            .hwm = p->hwm,
                            .keys = p->head_keys,
                            .authorized = &p->authorized};
    struct bus_handlers h = {.ctx = &p->head, .on_frame = on_frame, .on_link = on_link};
    struct error err = {0};
    if (bus_bind(p->loop, &o, &h, &p->head.bus, &err) != STATUS_OK)
        print_error("%s\n", err.text);
    assert_non_null(p->head.bus);
}

static void peer_open(struct pair *p, bool insecure, const char *endpoint)
{
    struct bus_options o = {.endpoint = endpoint,
                            .insecure = insecure,
                            .keys = p->peer_keys,
                            .server_public_key = p->head_keys.public_key};
    struct bus_handlers h = {.ctx = &p->peer, .on_frame = on_frame, .on_link = on_link};
    struct error err = {0};
    if (bus_connect(p->loop, &o, &h, &p->peer.bus, &err) != STATUS_OK)
        print_error("%s\n", err.text);
    assert_non_null(p->peer.bus);
}

static void pair_open(struct pair *p, bool insecure)
{
    pair_init(p);
    head_open(p, insecure);
    peer_open(p, insecure, bus_endpoint(p->head.bus));
}

static void pair_fini(struct pair *p)
{
    bus_close(p->peer.bus);
    bus_close(p->head.bus);
    loop_free(p->loop);
    authorized_fini(&p->authorized);
}

static void wait_up(struct pair *p)
{
    p->peer.stop_on_up = true;
    loop_run(p->loop);
    p->peer.stop_on_up = false;
}

static enum status peer_send(struct pair *p, const char *text)
{
    return bus_send(p->peer.bus, (struct bus_peer){0}, str_from(text));
}

static void test_right_key_brings_its_role(void **state)
{
    struct pair p;
    pair_open(&p, false);
    assert_null(strstr(bus_endpoint(p.head.bus), ":0"));
    wait_up(&p);
    p.head.echo = true;
    p.head.want_frames = 0;
    p.peer.want_frames = 1;
    assert_int_equal(peer_send(&p, "hello"), STATUS_OK);
    loop_run(p.loop);
    assert_string_equal(p.head.text, "hello");
    assert_int_equal(p.head.role, ROLE_WORKER);
    assert_string_equal(p.head.key, p.peer_keys.public_key);
    assert_int_equal(p.head.peer.n, 5);
    assert_string_equal(p.peer.text, "hello");
    assert_int_equal(p.peer.role, ROLE_HEAD);
    assert_string_equal(p.peer.key, p.head_keys.public_key);
    assert_int_equal(p.peer.peer.n, 0);
    struct bus_peer nobody = {.n = 3, .id = "abc"};
    assert_int_equal(bus_send(p.head.bus, nobody, STR("x")), STATUS_NOT_FOUND);
    pair_fini(&p);
}

/* With ZMQ_IMMEDIATE no frame is accepted before the link is up, even when a silent listener has
 * the port. */
static void test_nothing_is_taken_before_the_link_is_up(void **state)
{
    struct pair p;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    char endpoint[64];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
    pair_init(&p);
    peer_open(&p, false, endpoint);
    assert_int_equal(peer_send(&p, "early"), STATUS_AGAIN);
    struct pollfd connected = {listener, POLLIN, 0};
    assert_int_equal(poll(&connected, 1, GIVE_UP_MS), 1);
    const int silent = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(silent >= 0);
    assert_int_equal(peer_send(&p, "as early"), STATUS_AGAIN);
    assert_int_equal(p.peer.n_up, 0);
    pair_fini(&p);
    close(silent);
    close(listener);
}

static void expect_refused(struct pair *p, const char *word)
{
    p->peer.stop_on_down = true;
    loop_run(p->loop);
    assert_int_equal(p->peer.n_up, 0);
    assert_int_equal(peer_send(p, "let me in"), STATUS_AGAIN);
    if (!strstr(p->peer.why, word))
        print_error("why: %s\n", p->peer.why);
    assert_non_null(strstr(p->peer.why, word));
    assert_int_equal(p->head.n_frames, 0);
}

static void test_stranger_is_refused(void **state)
{
    struct pair p;
    pair_init(&p);
    head_open(&p, false);
    assert_int_equal(keys_generate(&p.peer_keys, NULL), STATUS_OK);
    peer_open(&p, false, bus_endpoint(p.head.bus));
    expect_refused(&p, "key");
    pair_fini(&p);
}

static void test_wrong_head_key_is_refused(void **state)
{
    struct pair p;
    struct curve_keys other;
    pair_init(&p);
    head_open(&p, false);
    assert_int_equal(keys_generate(&other, NULL), STATUS_OK);
    memcpy(p.head_keys.public_key, other.public_key, 41);
    peer_open(&p, false, bus_endpoint(p.head.bus));
    expect_refused(&p, "wrong public key of the head");
    pair_fini(&p);
}

/* Without an answer from the ZAP handler libzmq would admit every peer. When that handler is
 * gone, the bus must admit no peer, not even one with an authorized key. */
static void test_dead_zap_handler_admits_nobody(void **state)
{
    struct pair p;
    pair_init(&p);
    head_open(&p, false);
    zap_stop(p.head.bus->zap);
    p.head.bus->zap = NULL;
    peer_open(&p, false, bus_endpoint(p.head.bus));
    expect_refused(&p, "handshake");
    pair_fini(&p);
}

static void put_keys(const char *dir, const struct curve_keys *ours, const char *head,
                     const char *other_head)
{
    const struct {
        const char *name, *text, *more;
    } files[] = {{"worker.key", ours->secret_key, ""},
                 {"worker.pub", ours->public_key, ""},
                 {"head.pub", head, other_head}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%s\n%s\n", files[i].text, files[i].more);
        fclose(f);
    }
}

/* First the head has one of the two keys in the folder, then the peer gets a new key of its own.
 * The peer reads the folder again each time. */
static void test_keys_of_a_folder_are_tried_and_read_again(void **state)
{
    struct pair p;
    struct curve_keys next, old_worker;
    char dir[] = "/tmp/coxtest-bus-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    pair_init(&p);
    head_open(&p, false);
    old_worker = p.peer_keys;
    assert_int_equal(keys_generate(&next, NULL), STATUS_OK);
    put_keys(dir, &p.peer_keys, next.public_key, p.head_keys.public_key);
    struct bus_options o = {.endpoint = bus_endpoint(p.head.bus),
                            .keys = p.peer_keys,
                            .server_public_key = next.public_key,
                            .keys_dir = dir,
                            .keys_role = ROLE_WORKER};
    struct bus_handlers h = {.ctx = &p.peer, .on_frame = on_frame, .on_link = on_link};
    assert_int_equal(bus_connect(p.loop, &o, &h, &p.peer.bus, NULL), STATUS_OK);
    wait_up(&p);
    assert_int_equal(p.peer.n_down, 1); /* the first key that the peer tried was refused */

    /* The head now accepts the new key and no longer the old key. */
    struct authorized list = {.n_entries = 1};
    list.entries = mem_array(1, sizeof *list.entries);
    assert_int_equal(keys_generate(&p.peer_keys, NULL), STATUS_OK);
    list.entries[0].role = ROLE_WORKER;
    memcpy(list.entries[0].public_key, p.peer_keys.public_key, 41);
    bus_swap_authorized(p.head.bus, &p.authorized, &list);
    assert_true(authorized_has(&list, ROLE_WORKER, old_worker.public_key));
    authorized_fini(&list);
    p.peer.stop_on_down = true;
    assert_int_equal(bus_reconnect(p.peer.bus, NULL), STATUS_OK);
    loop_run(p.loop);
    /* the head refuses the peer, because the folder still has the old key */
    assert_int_equal(p.peer.n_down, 2);
    p.peer.stop_on_down = false;
    put_keys(dir, &p.peer_keys, p.head_keys.public_key, "");
    wait_up(&p);
    p.head.want_frames = 1;
    assert_int_equal(peer_send(&p, "anew"), STATUS_OK);
    loop_run(p.loop);
    assert_string_equal(p.head.key, p.peer_keys.public_key);

    /* A file with an error changes nothing. */
    put_keys(dir, &p.peer_keys, "nonsense", "");
    assert_int_equal(bus_reconnect(p.peer.bus, NULL), STATUS_OK);
    wait_up(&p);
    pair_fini(&p);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void rebind(struct pair *p, const struct curve_keys *keys)
{
    struct error err = {0};
    enum status s = bus_rebind(p->head.bus, keys, &err);
    for (int n = 0; s == STATUS_EXISTS && n < GIVE_UP_MS; n++) {
        assert_int_equal(bus_send(p->head.bus, p->head.peer, STR("nobody")), STATUS_CLOSED);
        usleep(1000);
        s = bus_rebind(p->head.bus, keys, &err);
    }
    if (s != STATUS_OK)
        fail_msg("%s", err.text);
}

/* The head's key changes while it listens. A peer that has the old and the new public key
 * reconnects to the same port, as a new peer. A peer that has only the old key is refused. */
static void take_another_key(bool from_folder)
{
    struct pair p;
    struct curve_keys next;
    char dir[] = "/tmp/coxtest-bus-XXXXXX", command[64], endpoint[256];
    assert_non_null(mkdtemp(dir));
    pair_init(&p);
    head_open(&p, false);
    snprintf(endpoint, sizeof endpoint, "%s", bus_endpoint(p.head.bus));
    assert_int_equal(keys_generate(&next, NULL), STATUS_OK);
    put_keys(dir, &p.peer_keys, p.head_keys.public_key, next.public_key);
    struct bus_options o = {.endpoint = endpoint,
                            .keys = p.peer_keys,
                            .server_public_key = p.head_keys.public_key,
                            .server_other_key = from_folder ? "" : next.public_key,
                            .keys_dir = from_folder ? dir : NULL,
                            .keys_role = ROLE_WORKER};
    struct bus_handlers h = {.ctx = &p.peer, .on_frame = on_frame, .on_link = on_link};
    assert_int_equal(bus_connect(p.loop, &o, &h, &p.peer.bus, NULL), STATUS_OK);
    wait_up(&p);
    p.head.want_frames = 1;
    assert_int_equal(peer_send(&p, "before"), STATUS_OK);
    loop_run(p.loop);
    struct bus_peer before = p.head.peer;

    rebind(&p, &next);
    assert_string_equal(bus_endpoint(p.head.bus), endpoint);
    wait_up(&p);
    p.head.want_frames = 2;
    assert_int_equal(peer_send(&p, "after"), STATUS_OK);
    loop_run(p.loop);
    assert_string_equal(p.head.text, "after");
    assert_int_equal(bus_send(p.head.bus, before, STR("to whom?")), STATUS_NOT_FOUND);

    bus_close(p.peer.bus);
    p.peer = (struct side){.loop = p.loop};
    p.head.n_frames = 0;
    peer_open(&p, false, endpoint); /* this peer has the old key only */
    expect_refused(&p, "wrong public key of the head");
    pair_fini(&p);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void test_a_head_takes_another_key(void **state)
{
    take_another_key(true);
    take_another_key(false); /* false = the peer uses a join token that holds the two keys */
}

static void test_plain_peer_cannot_talk_to_curve(void **state)
{
    struct pair p;
    pair_init(&p);
    head_open(&p, false);
    peer_open(&p, true, bus_endpoint(p.head.bus));
    expect_refused(&p, "handshake");
    pair_fini(&p);
}

static void test_insecure_has_no_role(void **state)
{
    struct pair p;
    pair_open(&p, true);
    wait_up(&p);
    p.head.echo = true;
    p.peer.want_frames = 1;
    assert_int_equal(peer_send(&p, "plain"), STATUS_OK);
    loop_run(p.loop);
    assert_int_equal(p.head.role, ROLE_NONE);
    assert_string_equal(p.head.key, "");
    assert_string_equal(p.peer.text, "plain");
    pair_fini(&p);
}

static void test_refused_options(void **state)
{
    static const struct {
        const char *endpoint;
        bool allow;
        enum status want;
    } cases[] = {
        {"tcp://0.0.0.0:0", false, STATUS_DENIED},
        {"tcp://*:0", false, STATUS_DENIED},
        {"tcp://[::]:0", false, STATUS_DENIED},
        {"tcp://127.evil.example:1", false, STATUS_DENIED},
        {"tcp://localhost.evil:1", false, STATUS_DENIED},
        {"tcp://0.0.0.0:0", true, STATUS_OK},
        {"tcp://127.0.0.1:0", false, STATUS_OK},
        {"tcp://localhost:0", false, STATUS_OK},
        {"127.0.0.1:0", false, STATUS_INVALID},
        {"tcp://", false, STATUS_INVALID},
        {"", false, STATUS_INVALID},
        {"tcp://127.0.0.1:", false, STATUS_INVALID},
        {"tcp://127.0.0.1:65536", false, STATUS_INVALID},
        {"tcp://127.0.0.1:http", false, STATUS_INVALID},
        {"tcp://192.0.2.1:0", true, STATUS_INVALID}, /* this machine does not have this address */
        {"udp://127.0.0.1:1", false, STATUS_INVALID},
    };
    struct loop *l;
    assert_int_equal(loop_new(&l, NULL), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bus *b = NULL;
        struct error err = {0};
        struct bus_handlers h = {.on_frame = on_frame};
        struct bus_options o = {.endpoint = cases[i].endpoint,
                                .insecure = true,
                                .allow_remote_insecure = cases[i].allow};
        enum status s = bus_bind(l, &o, &h, &b, &err);
        if (s != cases[i].want)
            print_error("case %zu: %s %s\n", i, status_name(s), err.text);
        assert_int_equal(s, cases[i].want);
        bus_close(b);
    }
    static const char *const nowhere[] = {"tcp://127.0.0.1:0", "tcp://127.0.0.1:*",
                                          "tcp://127.0.0.1:99999", "tcp://127.0.0.1"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        struct bus *b = NULL;
        struct error err = {0};
        struct bus_handlers h = {.on_frame = on_frame};
        struct bus_options o = {.endpoint = nowhere[i], .insecure = true};
        assert_int_equal(bus_connect(l, &o, &h, &b, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, nowhere[i]));
    }
    struct bus_options no_keys = {.endpoint = "tcp://127.0.0.1:0"};
    struct bus_handlers h = {.on_frame = on_frame};
    struct bus *b = NULL;
    assert_int_equal(bus_bind(l, &no_keys, &h, &b, NULL), STATUS_INVALID);
    assert_int_equal(bus_connect(l, &no_keys, &h, &b, NULL), STATUS_INVALID);
    bus_close(NULL);
    loop_free(l);
}

static void test_port_in_use_is_named(void **state)
{
    struct pair p;
    pair_init(&p);
    head_open(&p, false);
    struct bus_options o = {
        .endpoint = bus_endpoint(p.head.bus), .keys = p.head_keys, .authorized = &p.authorized};
    struct bus_handlers h = {.on_frame = on_frame};
    struct bus *second = NULL;
    struct error err = {0};
    assert_int_equal(bus_bind(p.loop, &o, &h, &second, &err), STATUS_EXISTS);
    assert_non_null(strstr(err.text, strrchr(bus_endpoint(p.head.bus), ':') + 1));
    pair_fini(&p);
}

/* The peer echoes more frames than one turn of the loop reads. Every frame arrives, in each
 * direction. */
static void test_many_frames_all_arrive(void **state)
{
    struct pair p;
    pair_open(&p, true);
    wait_up(&p);
    p.head.echo = true;
    p.peer.want_frames = N_MANY;
    for (int i = 0; i < N_MANY; i++)
        assert_int_equal(peer_send(&p, "frame"), STATUS_OK);
    loop_run(p.loop);
    assert_int_equal(p.head.n_frames, N_MANY);
    assert_int_equal(p.peer.n_frames, N_MANY);
    pair_fini(&p);
}

static void test_reconnect_is_a_new_peer(void **state)
{
    struct pair p;
    pair_open(&p, false);
    wait_up(&p);
    p.head.want_frames = 1;
    assert_int_equal(peer_send(&p, "one"), STATUS_OK);
    loop_run(p.loop);
    struct bus_peer before = p.head.peer;
    assert_int_equal(bus_reconnect(p.peer.bus, NULL), STATUS_OK);
    assert_int_equal(bus_reconnect(p.head.bus, NULL), STATUS_INVALID);
    wait_up(&p);
    p.head.want_frames = 2;
    assert_int_equal(peer_send(&p, "two"), STATUS_OK);
    loop_run(p.loop);
    assert_true(before.n != p.head.peer.n || memcmp(before.id, p.head.peer.id, before.n) != 0);
    assert_string_equal(p.head.text, "two");
    assert_int_equal(p.peer.n_up, 2);
    pair_fini(&p);
}

/* The head stops and starts again on its port, and the peer reconnects without help. */
static void test_peer_finds_a_new_head(void **state)
{
    struct pair p;
    char endpoint[256];
    pair_open(&p, false);
    wait_up(&p);
    snprintf(endpoint, sizeof endpoint, "%s", bus_endpoint(p.head.bus));
    bus_close(p.head.bus);
    p.peer.stop_on_down = true;
    loop_run(p.loop);
    assert_non_null(strstr(p.peer.why, "lost"));
    struct bus_options o = {.endpoint = endpoint, .keys = p.head_keys, .authorized = &p.authorized};
    struct bus_handlers h = {.ctx = &p.head, .on_frame = on_frame};
    assert_int_equal(bus_bind(p.loop, &o, &h, &p.head.bus, NULL), STATUS_OK);
    p.peer.stop_on_down = false;
    wait_up(&p);
    assert_int_equal(p.peer.n_up, 2);
    pair_fini(&p);
}

/* A reconnect takes the next of several addresses. All addresses are tried before the first is
 * tried again. */
static void test_several_addresses(void **state)
{
    struct pair p;
    char both[600], nobody[64];
    pair_init(&p);
    head_open(&p, false);
    snprintf(nobody, sizeof nobody, "127.0.0.1:1");
    snprintf(both, sizeof both, "tcp://%s,%s", nobody, bus_endpoint(p.head.bus) + strlen("tcp://"));
    peer_open(&p, false, both);
    assert_int_equal(bus_n_addresses(p.peer.bus), 2);
    assert_string_equal(bus_endpoint(p.peer.bus), "tcp://127.0.0.1:1");
    p.peer.stop_on_down = true;
    loop_run(p.loop);
    assert_non_null(strstr(p.peer.why, "no program answers"));
    p.peer.stop_on_down = false;
    assert_int_equal(bus_reconnect(p.peer.bus, NULL), STATUS_OK);
    wait_up(&p);
    assert_string_equal(bus_endpoint(p.peer.bus), bus_endpoint(p.head.bus));
    assert_int_equal(bus_reconnect(p.peer.bus, NULL), STATUS_OK);
    assert_string_equal(bus_endpoint(p.peer.bus), "tcp://127.0.0.1:1");
    pair_fini(&p);
    static const struct {
        const char *endpoint;
        enum status want;
    } bad[] = {{"tcp://127.0.0.1:1,", STATUS_INVALID},
               {"tcp://127.0.0.1:1,127.0.0.1", STATUS_INVALID},
               {"tcp://127.0.0.1:1,127.0.0.1:0", STATUS_INVALID},
               {"tcp://127.0.0.1:1,192.0.2.1:1", STATUS_DENIED},
               {"tcp://h:1,h:2,h:3,h:4,h:5,h:6,h:7,h:8,h:9", STATUS_DENIED},
               {"tcp://[::1]:1,[::1]:2,[::1]:3,[::1]:4,[::1]:5,[::1]:6,[::1]:7,[::1]:8,[::1]:9",
                STATUS_INVALID}};
    struct loop *l;
    assert_int_equal(loop_new(&l, NULL), STATUS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bus *b = NULL;
        struct error err = {0};
        struct bus_handlers h = {.on_frame = on_frame};
        struct bus_options o = {.endpoint = bad[i].endpoint, .insecure = true};
        enum status s = bus_connect(l, &o, &h, &b, &err);
        if (s != bad[i].want)
            fail_msg("%s: %s %s", bad[i].endpoint, status_name(s), err.text);
    }
    loop_free(l);
}

static void test_close_inside_a_handler(void **state)
{
    struct pair p;
    pair_open(&p, false);
    wait_up(&p);
    p.head.close_on_frame = true;
    p.head.want_frames = 1;
    assert_int_equal(peer_send(&p, "a"), STATUS_OK);
    assert_int_equal(peer_send(&p, "b"), STATUS_OK);
    loop_run(p.loop);
    assert_int_equal(p.head.n_frames, 1);
    pair_fini(&p);
}

/* Does nothing. The signal only has to interrupt system calls. */
static void ignore(int number)
{
    (void)number;
}

struct pest {
    pthread_t whom;
    atomic_bool stop;
};

static void *pester(void *ctx)
{
    struct pest *p = ctx;
    while (!atomic_load(&p->stop)) {
        pthread_kill(p->whom, SIGUSR1);
        usleep(20);
    }
    return NULL;
}

static unsigned n_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    unsigned n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Signals during `bus_close`, such as a second SIGTERM, leave no thread of the context running. */
static void test_signals_while_it_closes(void **state)
{
    /* SA_RESTART is not set, so system calls return EINTR */
    struct sigaction a = {.sa_handler = ignore};
    sigaction(SIGUSR1, &a, NULL);
    unsigned before = n_threads();
    for (int i = 0; i < 20; i++) {
        struct pair p;
        pair_open(&p, true);
        wait_up(&p);
        struct pest pest = {.whom = pthread_self()};
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, pester, &pest), 0);
        pair_fini(&p);
        atomic_store(&pest.stop, true);
        pthread_join(t, NULL);
    }
    signal(SIGUSR1, SIG_DFL);
    for (int i = 0; i < 500 && n_threads() != before; i++)
        usleep(10000); /* a joined thread may still be listed for a moment */
    assert_int_equal(n_threads(), before);
}

static void test_foreign_shapes_are_dropped(void **state)
{
    struct pair p;
    struct bus *head;
    int zero = 0;
    pair_init(&p);
    head_open(&p, true);
    head = p.head.bus;
    void *ctx = zmq_ctx_new(), *raw = zmq_socket(ctx, ZMQ_DEALER);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_connect(raw, bus_endpoint(head));
    zmq_send(raw, "two", 3, ZMQ_SNDMORE);
    zmq_send(raw, "parts", 5, 0);
    zmq_send(raw, "good", 4, 0);
    p.head.want_frames = 1;
    loop_run(p.loop);
    assert_string_equal(p.head.text, "good");
    assert_int_equal(p.head.n_frames, 1);
    assert_int_equal(head->n_dropped, 1);
    zmq_close(raw);
    raw = zmq_socket(ctx, ZMQ_DEALER);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_ROUTING_ID, "a routing id longer than 16", 27);
    zmq_connect(raw, bus_endpoint(head));
    zmq_send(raw, "dropped", 7, 0);
    void *second = zmq_socket(ctx, ZMQ_DEALER);
    zmq_setsockopt(second, ZMQ_LINGER, &zero, sizeof zero);
    zmq_connect(second, bus_endpoint(head));
    /* either link may be ready first, so the test waits until the head has dropped the first
     * link's frame */
    while (head->n_dropped < 2) {
        uv_run(loop_uv(p.loop), UV_RUN_ONCE);
    }
    zmq_send(second, "fine", 4, 0);
    p.head.want_frames = 2;
    loop_run(p.loop);
    assert_string_equal(p.head.text, "fine");
    zmq_close(raw);
    zmq_close(second);
    zmq_ctx_term(ctx);
    pair_fini(&p);
}

static void test_high_water_mark_and_size(void **state)
{
    static char big[1 << 20];
    struct pair p;
    int zero = 0, one = 1;
    pair_init(&p);
    p.hwm = 8;
    head_open(&p, true);
    p.head.bus->max_frame_bytes = sizeof big;
    void *ctx = zmq_ctx_new(), *raw = zmq_socket(ctx, ZMQ_DEALER);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_RCVHWM, &one, sizeof one);
    zmq_connect(raw, bus_endpoint(p.head.bus));
    zmq_send(raw, "hi", 2, 0);
    p.head.want_frames = 1;
    loop_run(p.loop);
    enum status s = STATUS_OK;
    /* The other end never reads. The send must fail after the queue and the kernel's buffers are
     * full. */
    int n = 0;
    for (; n < 2000 && s == STATUS_OK; n++)
        s = bus_send(p.head.bus, p.head.peer, (struct str){big, 256 << 10});
    assert_int_equal(s, STATUS_AGAIN);
    assert_int_equal(bus_send(p.head.bus, p.head.peer, (struct str){big, sizeof big + 1}),
                     STATUS_LIMIT);
    zmq_close(raw);
    zmq_ctx_term(ctx);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_key_brings_its_role),
        cmocka_unit_test(test_nothing_is_taken_before_the_link_is_up),
        cmocka_unit_test(test_stranger_is_refused),
        cmocka_unit_test(test_wrong_head_key_is_refused),
        cmocka_unit_test(test_dead_zap_handler_admits_nobody),
        cmocka_unit_test(test_keys_of_a_folder_are_tried_and_read_again),
        cmocka_unit_test(test_a_head_takes_another_key),
        cmocka_unit_test(test_plain_peer_cannot_talk_to_curve),
        cmocka_unit_test(test_insecure_has_no_role),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_port_in_use_is_named),
        cmocka_unit_test(test_many_frames_all_arrive),
        cmocka_unit_test(test_reconnect_is_a_new_peer),
        cmocka_unit_test(test_peer_finds_a_new_head),
        cmocka_unit_test(test_several_addresses),
        cmocka_unit_test(test_close_inside_a_handler),
        cmocka_unit_test(test_signals_while_it_closes),
        cmocka_unit_test(test_foreign_shapes_are_dropped),
        cmocka_unit_test(test_high_water_mark_and_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
