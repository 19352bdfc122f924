/* Tests the Redis client: URLs, replies in pieces, invalid replies, and the link. For the link a
 * server in a thread plays a script, and the client runs on a real loop. Replies must arrive in
 * the order of the calls, every call is answered or reported as lost, and a lost link reconnects
 * with growing pauses. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/redis/redis.h"
#include "common/redis/reply.h"
#include "common/redis/url.h"

static void urls(void **state)
{
    static const struct {
        const char *url, *host;
        uint16_t port;
        uint32_t db;
        const char *user, *password;
    } cases[] = {
        {"redis://localhost", "localhost", 6379, 0, "", ""},
        {"redis://10.0.0.1:7000/3", "10.0.0.1", 7000, 3, "", ""},
        {"redis://[::1]:7000", "::1", 7000, 0, "", ""},
        {"redis://[::1]/2", "::1", 6379, 2, "", ""},
        {"redis://h/", "h", 6379, 0, "", ""},
        {"redis://:secret@h", "h", 6379, 0, "", "secret"},
        {"redis://me:p%40ss:w@h:1", "h", 1, 0, "me", "p@ss:w"},
        {"redis://me:a@b@h", "h", 6379, 0, "me", "a@b"},
        {"unix:///run/redis.sock", "/run/redis.sock", 0, 0, "", ""},
        {"unix://:pw@/run/r%20s?db=4", "/run/r s", 0, 4, "", "pw"},
        {"", NULL, 0, 0, NULL, NULL},
        {"http://h", NULL, 0, 0, NULL, NULL},
        {"rediss://h", NULL, 0, 0, NULL, NULL},
        {"redis://", NULL, 0, 0, NULL, NULL},
        {"redis://h:0", NULL, 0, 0, NULL, NULL},
        {"redis://h:65536", NULL, 0, 0, NULL, NULL},
        {"redis://h:x", NULL, 0, 0, NULL, NULL},
        {"redis://::1", NULL, 0, 0, NULL, NULL},
        {"redis://[]", NULL, 0, 0, NULL, NULL},
        {"redis://[::1", NULL, 0, 0, NULL, NULL},
        {"redis://h/x", NULL, 0, 0, NULL, NULL},
        {"redis://h/-1", NULL, 0, 0, NULL, NULL},
        {"redis://secret@h", NULL, 0, 0, NULL, NULL}, /* the URL has a user without a password */
        {"redis://u:secret%4@h", NULL, 0, 0, NULL, NULL},
        {"redis://u:secret%00@h", NULL, 0, 0, NULL, NULL},
        {"unix://run/x", NULL, 0, 0, NULL, NULL},
        {"unix:///x?db=", NULL, 0, 0, NULL, NULL},
        {"unix:///x?secret=1", NULL, 0, 0, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct redis_url u;
        struct error err = {0};
        enum status s = redis_url_parse(cases[i].url, &u, &err);
        bool right = cases[i].host
                         ? s == STATUS_OK && strcmp(u.host, cases[i].host) == 0 &&
                               (u.is_unix || u.port == cases[i].port) && u.db == cases[i].db &&
                               strcmp(u.user, cases[i].user) == 0 &&
                               strcmp(u.password, cases[i].password) == 0
                         : s == STATUS_INVALID && !strstr(err.text, "secret");
        if (!right)
            fail_msg("%s: %s %s", cases[i].url, status_name(s), err.text);
    }
}

/* ---- replies ---- */

static void append(struct strbuf *b, const struct redis_reply *r)
{
    static const char names[] = {[REDIS_NIL] = '-',
                                 [REDIS_INTEGER] = ':',
                                 [REDIS_TEXT] = '"',
                                 [REDIS_ERROR] = '!',
                                 [REDIS_LIST] = '['};
    strbuf_printf(b, "%c", names[r->kind]);
    if (r->kind == REDIS_INTEGER)
        strbuf_printf(b, "%lld", (long long)r->integer);
    strbuf_append_str(b, r->text);
    for (uint32_t i = 0; i < r->n_items; i++)
        append(b, r->items[i]);
    strbuf_append_c(b, r->kind == REDIS_LIST ? "]" : " ");
}

static enum redis_step parse(struct str bytes, size_t piece, struct strbuf *got)
{
    struct redis_parser *p = redis_parser_new(REDIS_REPLY_MAX);
    const struct redis_reply *reply;
    enum redis_step step = REDIS_MORE;
    strbuf_reset(got);
    for (size_t at = 0; at < bytes.len && step != REDIS_BROKEN; at += piece) {
        size_t left = bytes.len - at;
        redis_parser_feed(p, (struct str){bytes.ptr + at, left < piece ? left : piece});
        while ((step = redis_parser_next(p, &reply)) == REDIS_REPLY)
            append(got, reply);
    }
    redis_parser_free(p);
    return step;
}

static void answers_in_pieces(void **state)
{
    static const struct {
        struct str bytes;
        const char *want; /* reply that must be found; NULL = invalid */
    } cases[] = {
        {STR("+OK\r\n"), "\"OK "},
        {STR("-ERR no\r\n:42\r\n:-7\r\n"), "!ERR no :42 :-7 "},
        {STR("$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n"), "\"a\r\n \" - "},
        {STR("*3\r\n:1\r\n$1\r\nx\r\n*2\r\n$-1\r\n-E\r\n*0\r\n"), "[:1 \"x [- !E ]][]"},
        {STR("*-1\r\n"), "- "},
        {STR("*2\r\n:1\r\n"), ""},
        {STR("$5\r\nab"), ""},
        {STR("HTTP/1.1 400 Bad Request\r\n"), NULL},
        {STR("\x16\x03\x01"), NULL},
        {STR("*999999999\r\n"), NULL},
        {STR("*4294967295\r\n"), NULL},
        {STR("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), NULL},
    };
    struct strbuf got;
    strbuf_init(&got, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 100; piece += 7) {
            enum redis_step step = parse(cases[i].bytes, piece, &got);
            if ((step == REDIS_BROKEN) != !cases[i].want ||
                (cases[i].want && strcmp(strbuf_str(&got).ptr, cases[i].want) != 0))
                fail_msg("case %zu in %zu: %d %s", i, piece, step, strbuf_str(&got).ptr);
        }
    strbuf_fini(&got);
}

static void answers_are_bounded(void **state)
{
    struct strbuf b, got;
    strbuf_init(&b, 0);
    strbuf_init(&got, 0);
    strbuf_append_c(&b, "$600000\r\n");
    memset(strbuf_extend(&b, 600000), 'x', 600000);
    assert_int_equal(parse(strbuf_str(&b), 4096, &got), REDIS_BROKEN);
    strbuf_reset(&b);
    strbuf_append_c(&b, "*10000\r\n"); /* the reply has 10000 small items */
    for (int i = 0; i < 10000; i++)
        strbuf_append_c(&b, "+\r\n");
    assert_int_equal(parse(strbuf_str(&b), 4096, &got), REDIS_BROKEN);
    strbuf_reset(&b);
    for (int i = 0; i < 10000; i++)
        strbuf_append_c(&b, "+\r\n");
    assert_int_equal(parse(strbuf_str(&b), 4096, &got), REDIS_MORE);
    strbuf_fini(&b);
    strbuf_fini(&got);
}

/* ---- the link ---- */

enum { N_CONNECTIONS = 5 };

/* `fixture` holds the texts that the server sends on each connection. The digit before a text is
 * the number of further calls that must have begun before it is sent. NULL = close the
 * connection. */
struct fixture {
    const char *script[N_CONNECTIONS][6];
    struct loop *loop;
    struct redis *redis;
    char path[64], url[128], heard[4096];
    int listener;
    uint32_t n_up, n_down, n_ups_wanted;
    uint32_t n_calls; /* number of calls to make each time the link is up */
    uint32_t timeout_ms;
    struct strbuf got;
    char why[256];
};

static void *serve(void *ctx)
{
    struct fixture *f = ctx;
    char buf[1];
    size_t n_heard = 0;
    for (int i = 0; i < N_CONNECTIONS && f->script[i][0]; i++) {
        int fd = accept(f->listener, NULL, NULL);
        for (const char *const *says = f->script[i]; fd >= 0 && *says; says++) {
            ssize_t n = 1;
            for (int left = **says - '0'; left > 0 && n > 0;) {
                n = recv(fd, buf, 1, 0);
                left -= n == 1 && buf[0] == '*';
                if (n == 1 && n_heard + 1 < sizeof f->heard)
                    f->heard[n_heard++] = buf[0];
            }
            const char *text = *says + 1;
            if (n <= 0 || (*text && send(fd, text, strlen(text), MSG_NOSIGNAL) < 0))
                break;
        }
        close(fd);
    }
    return NULL;
}

static void on_reply(void *ctx, const struct redis_reply *reply)
{
    struct fixture *f = ctx;
    if (reply)
        append(&f->got, reply);
    else
        strbuf_append_c(&f->got, "lost ");
}

static void on_link(void *ctx, bool up, const char *why)
{
    struct fixture *f = ctx;
    const struct str get[] = {STR("GET"), STR("k\0y")};
    snprintf(f->why, sizeof f->why, "%s", why);
    f->n_up += up;
    f->n_down += !up;
    assert_int_equal(redis_is_up(f->redis), up);
    if (f->n_up + f->n_down >= f->n_ups_wanted)
        loop_stop(f->loop);
    if (!up)
        assert_int_equal(redis_call(f->redis, get, 2, on_reply, f), STATUS_AGAIN);
    for (uint32_t i = 0; up && i < f->n_calls; i++)
        (void)redis_call(f->redis, get, 2, on_reply, f);
}

static void run(struct fixture *f, const char *user)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct error err = {0};
    pthread_t server;
    snprintf(f->path, sizeof f->path, "/tmp/coxredis-%d", (int)getpid());
    snprintf(f->url, sizeof f->url, "unix://%s%s", user, f->path);
    strcpy(a.sun_path, f->path);
    (void)unlink(f->path);
    f->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(f->listener, 4), 0);
    strbuf_init(&f->got, 0);
    assert_int_equal(pthread_create(&server, NULL, serve, f), 0);
    assert_int_equal(loop_new(&f->loop, &err), STATUS_OK);
    const struct redis_options o = {.url = f->url,
                                    .timeout_ms = f->timeout_ms ? f->timeout_ms : 20000,
                                    .on_link = on_link,
                                    .ctx = f};
    assert_int_equal(redis_open(f->loop, &o, &f->redis, &err), STATUS_OK);
    assert_false(redis_is_up(f->redis));
    loop_run(f->loop);
    redis_close(f->redis);
    loop_free(f->loop);
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(server, NULL);
    close(f->listener);
    (void)unlink(f->path);
}

static void calls_are_answered_in_order(void **state)
{
    /* The answer to a greeting of three commands may arrive in one piece or in several. In this
     * script the replies arrive all at once. */
    struct fixture f = {.script = {{"1+OK\r\n", "1+PONG\r\n", "3$1\r\na\r\n*1\r\n:2\r\n-E\r\n"}},
                        .n_calls = 3,
                        .n_ups_wanted = 2};
    run(&f, "me:pass@");
    assert_int_equal(f.n_up, 1);
    assert_int_equal(f.n_down, 1); /* the link went down once, when the script ended */
    assert_string_equal(strbuf_str(&f.got).ptr, "\"a [:2 ]!E ");
    assert_non_null(strstr(f.heard, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$4\r\npass\r\n"));
    strbuf_fini(&f.got);
}

static void links_that_end(void **state)
{
    static const struct {
        const char *name;
        const char *script[N_CONNECTIONS][6];
        uint32_t n_wanted, n_up, n_down;
        const char *got, *why;
    } cases[] = {
        {"it closes with calls open", {{"1+PONG\r\n", "1"}}, 2, 1, 1, "lost lost lost ", ""},
        {"it comes back",
         {{"1+PONG\r\n"}, {"1+PONG\r\n", "1"}},
         4,
         2,
         2,
         "lost lost lost lost lost lost ",
         ""},
        {"half of an answer", {{"1+PONG\r\n", "1*2\r\n:1\r\n"}}, 2, 1, 1, "lost lost lost ", ""},
        {"garbage", {{"1+PONG\r\n", "1hello\r\n", "9"}}, 2, 1, 1, "lost lost lost ", "protocol"},
        {"garbage for a greeting", {{"1SSH-2.0\r\n", "9"}}, 1, 0, 1, "", "protocol"},
        {"it wants a password", {{"1-NOAUTH no\r\n", "9"}}, 1, 0, 1, "", "NOAUTH"},
        {"it loads", {{"1-LOADING\r\n"}, {"1+PONG\r\n", "9"}}, 2, 1, 1, "lost lost lost ", ""},
        {"too many answers",
         {{"1+PONG\r\n", "3:1\r\n:2\r\n:3\r\n:4\r\n", "9"}},
         2,
         1,
         1,
         ":1 :2 :3 ",
         "without a request"},
        {"silence", {{"1+PONG\r\n", "9"}}, 2, 1, 1, "lost lost lost ", "in time"},
        {"silence for a greeting", {{"9"}}, 1, 0, 1, "", "in time"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = {.n_calls = 3, .n_ups_wanted = cases[i].n_wanted};
        memcpy(f.script, cases[i].script, sizeof f.script);
        f.timeout_ms = strcmp(cases[i].why, "in time") == 0 ? 200 : 0;
        run(&f, "");
        if (f.n_up != cases[i].n_up || f.n_down != cases[i].n_down ||
            strcmp(strbuf_str(&f.got).ptr, cases[i].got) != 0 || !strstr(f.why, cases[i].why))
            fail_msg("%s: up %u down %u \"%s\" why \"%s\"", cases[i].name, f.n_up, f.n_down,
                     strbuf_str(&f.got).ptr, f.why);
        strbuf_fini(&f.got);
    }
}

/* The pauses grow even when each link comes up: 100, 200, 400 and 800 ms between five links. A
 * timer never fires early, so a slow machine cannot fail the test. */
static void it_greets_and_breaks_off(void **state)
{
    struct fixture f = {.n_ups_wanted = 2 * N_CONNECTIONS};
    for (int i = 0; i < N_CONNECTIONS; i++)
        f.script[i][0] = "1+PONG\r\n";
    uint64_t begin_ns = clock_mono_ns();
    run(&f, "");
    assert_int_equal(f.n_up, N_CONNECTIONS);
    assert_int_equal(f.n_down, N_CONNECTIONS);
    /* the limit is 10 ms lower, because libuv's clock counts whole ms */
    assert_true(clock_mono_ns() - begin_ns >= 1490 * NS_PER_MS);
    strbuf_fini(&f.got);
}

static void the_password_is_not_said_again(void **state)
{
    struct fixture f = {.script = {{"1-ERR unknown command 'AUTH', with args beginning with: "
                                    "'hidden-word' \r\n",
                                    "9"}},
                        .n_ups_wanted = 1};
    run(&f, ":hidden-word@");
    assert_non_null(strstr(f.heard, "hidden-word"));
    assert_non_null(strstr(f.why, "unknown command 'AUTH'"));
    assert_null(strstr(f.why, "hidden"));
    strbuf_fini(&f.got);
}

static void what_is_under_way_is_bounded(void **state)
{
    struct fixture f = {.script = {{"1+PONG\r\n", "9"}}, .n_calls = 5000, .n_ups_wanted = 2};
    run(&f, "");
    assert_int_equal(f.got.len, 1024 * strlen("lost "));
    strbuf_fini(&f.got);
}

static void nobody_is_there(void **state)
{
    struct loop *l;
    struct error err = {0};
    struct fixture f = {.n_ups_wanted = 1};
    strbuf_init(&f.got, 0);
    assert_int_equal(loop_new(&l, &err), STATUS_OK);
    f.loop = l;
    const struct redis_options o = {
        .url = "redis://localhost:1", .timeout_ms = 5000, .on_link = on_link, .ctx = &f};
    assert_int_equal(redis_open(l, &o, &f.redis, &err), STATUS_OK);
    loop_run(l);
    assert_non_null(strstr(f.why, "connecting"));
    redis_close(f.redis);
    loop_free(l);
    /* The next link is closed before it has connected. */
    assert_int_equal(loop_new(&l, &err), STATUS_OK);
    assert_int_equal(redis_open(l, &o, &f.redis, &err), STATUS_OK);
    redis_close(f.redis);
    redis_close(NULL);
    loop_free(l);
    strbuf_fini(&f.got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls),
        cmocka_unit_test(answers_in_pieces),
        cmocka_unit_test(answers_are_bounded),
        cmocka_unit_test(calls_are_answered_in_order),
        cmocka_unit_test(links_that_end),
        cmocka_unit_test(it_greets_and_breaks_off),
        cmocka_unit_test(the_password_is_not_said_again),
        cmocka_unit_test(what_is_under_way_is_bounded),
        cmocka_unit_test(nobody_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
