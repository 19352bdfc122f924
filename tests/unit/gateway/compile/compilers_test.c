/* Tests the pool of compile processes. This program starts itself as the compile process: `main`
 * then calls `compile_child_main`, or `lying_main` when the tokenizer's path begins with "lie:".
 * The tests send grammars and templates and check the outcome. Invariants: a process that
 * crashes, lies or takes too much memory costs only its own job, and no thread waits for the
 * compile of a client that has disconnected. */
#include "gateway/compile/compilers.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "gateway/compile/child.h"

#define DIGITS "start: /[0-9]+/"

static struct compilers *start(const char *tokenizer, uint32_t memory_mib, uint32_t wall_s)
{
    const struct compiler_options o = {
        .tokenizer_path = tokenizer, .memory_mib = memory_mib, .cpu_s = 30, .wall_s = wall_s};
    return compilers_new(&o);
}

static struct compile_result compile(struct compilers *c, const char *lark)
{
    const struct compile_frame job = {
        .what = COMPILE_GRAMMAR, .code = TEXT_GRAMMAR_LARK, .text = str_from(lark)};
    struct compile_result r;
    compilers_run(c, &job, &(struct compile_client){0}, &r);
    return r;
}

static void expect_outcome(struct compilers *c, enum compile_outcome want)
{
    struct compile_result r = compile(c, DIGITS);
    if (r.outcome != want)
        fail_msg("%s, not: %s", compile_outcome_words(r.outcome), compile_outcome_words(want));
    strbuf_fini(&r.text);
}

static void test_verdicts(void **state)
{
    struct compilers *c = start("builtin:bytes", 640, 60);
    for (int i = 0; i < 3; i++) {
        struct compile_result r = compile(c, DIGITS);
        assert_int_equal(r.outcome, COMPILE_DONE);
        assert_int_equal(r.status, TEXT_OK);
        assert_int_equal(r.text.len, 0);
        strbuf_fini(&r.text);
        r = compile(c, "start: /(/");
        assert_int_equal(r.outcome, COMPILE_DONE);
        assert_int_equal(r.status, TEXT_INVALID);
        assert_non_null(strstr(r.text.ptr, "unclosed group"));
        strbuf_fini(&r.text);
    }
    compilers_free(c);
}

static void test_templates(void **state)
{
    static const struct {
        const char *source, *want;
        int status;
        bool unread;
    } cases[] = {
        {"{{ who }}!", "you!", TEXT_OK, false},
        {"{% for %}", "expected a name", TEXT_INVALID, true},
        {"{{ raise_exception('no') }}", "no", TEXT_TEMPLATE, false},
        {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "steps",
         TEXT_LIMIT, false},
    };
    struct compilers *c = start("builtin:bytes", 640, 60);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct compile_frame job = {.what = COMPILE_TEMPLATE,
                                          .text = str_from(cases[i].source),
                                          .more = STR("{\"who\":\"you\"}")};
        struct compile_result r;
        compilers_run(c, &job, &(struct compile_client){0}, &r);
        assert_int_equal(r.outcome, COMPILE_DONE);
        assert_int_equal(r.status, cases[i].status);
        assert_int_equal(r.unread, cases[i].unread);
        assert_non_null(strstr(strbuf_str(&r.text).ptr, cases[i].want));
        strbuf_fini(&r.text);
    }
    compilers_free(c);
}

/* `SANITIZED` is 1 with a sanitizer. The allocator then needs other addresses, and ends the
 * process in another way when it gets no memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* A process ends at its memory limit, and a new process takes the next job. */
static void test_over_memory(void **state)
{
    if (SANITIZED)
        skip();
    static const char begin[] = "start: /", end[] = "/";
    struct compilers *c = start("builtin:bytes", 2, 60);
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, begin);
    for (int i = 0; i < 10000; i++)
        strbuf_printf(&b, "(a%d|b)", i);
    strbuf_append(&b, end, sizeof end);
    for (int i = 0; i < 2; i++) {
        struct compile_result r = compile(c, b.ptr);
        if (r.outcome != COMPILE_OVER_MEMORY)
            fail_msg("%s: %s", compile_outcome_words(r.outcome), strbuf_str(&r.text).ptr);
        strbuf_fini(&r.text);
        expect_outcome(c, COMPILE_DONE);
    }
    strbuf_fini(&b);
    compilers_free(c);
}

static void test_lies(void **state)
{
    static const struct {
        const char *path;
        enum compile_outcome want;
    } cases[] = {
        {"lie:garbage", COMPILE_LOST},       {"lie:nothing", COMPILE_LOST},
        {"lie:half", COMPILE_LOST},          {"lie:characters", COMPILE_LOST},
        {"lie:death", COMPILE_LOST},         {"lie:endless", COMPILE_LOST},
        {"lie:memory", COMPILE_OVER_MEMORY}, {"lie:crash", COMPILE_CRASHED},
        {"lie:silence", COMPILE_OVER_TIME},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct compilers *c = start(cases[i].path, 64, 1);
        expect_outcome(c, cases[i].want);
        compilers_free(c);
    }
}

static void test_not_started(void **state)
{
    const struct compiler_options o = {.tokenizer_path = "builtin:bytes",
                                       .program = "/nowhere/cox-gateway",
                                       .memory_mib = 64,
                                       .cpu_s = 1,
                                       .wall_s = 1};
    struct compilers *c = compilers_new(&o);
    expect_outcome(c, COMPILE_UNAVAILABLE);
    compilers_free(c);
}

struct waiting {
    struct compilers *c;
    atomic_bool dropped;
    struct compile_result r;
};

static void *wait_for_silence(void *ctx)
{
    struct waiting *w = ctx;
    const struct compile_frame job = {.what = COMPILE_GRAMMAR, .code = TEXT_GRAMMAR_LARK};
    compilers_run(w->c, &job, &(struct compile_client){.dropped = &w->dropped}, &w->r);
    return NULL;
}

/* The compile of a client that disconnects is cancelled, and so are all compiles when the
 * gateway ends. */
static void test_cancelled(void **state)
{
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        struct waiting w = {.c = start("lie:silence", 64, 3600)};
        assert_int_equal(pthread_create(&thread, NULL, wait_for_silence, &w), 0);
        if (i == 0)
            atomic_store(&w.dropped, true);
        else
            compilers_stop(w.c);
        pthread_join(thread, NULL);
        assert_int_equal(w.r.outcome, COMPILE_CANCELLED);
        strbuf_fini(&w.r.text);
        compilers_free(w.c);
    }
}

/* A tenant is heavy after a job that took one second of processor time. Other tenants stay
 * light, and so does a tenant whose jobs took no time. */
static void test_heavy_tenants_go_behind(void **state)
{
    static const struct {
        uint64_t tenant;
        const char *lark, *want;
    } jobs[] = {{1, "second", "light"}, {1, "none", "heavy"},   {2, "none", "light"},
                {2, "none", "light"},   {2, "second", "light"}, {2, "none", "heavy"}};
    struct compilers *c = start("lie:heavy", 64, 60);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        const struct compile_frame job = {.what = COMPILE_TEMPLATE, .text = str_from(jobs[i].lark)};
        struct compile_result r;
        compilers_run(c, &job, &(struct compile_client){.tenant = jobs[i].tenant}, &r);
        assert_int_equal(r.outcome, COMPILE_DONE);
        assert_string_equal(strbuf_str(&r.text).ptr, jobs[i].want);
        strbuf_fini(&r.text);
    }
    compilers_free(c);
}

/* ---- as a compile process ---- */

static void send_frame(int fd, const struct compile_frame *f, size_t n_text)
{
    unsigned char header[COMPILE_HEADER_BYTES];
    compile_frame_header(f, header);
    (void)!send(fd, header, sizeof header, MSG_NOSIGNAL);
    (void)!send(fd, f->text.ptr, n_text, MSG_NOSIGNAL);
}

/* Answers with the word "heavy" or "light", as the order says, and reports one second of
 * processor time when the job's text is "second". */
static void answer_heavy(int fd, bool is_heavy)
{
    struct compile_reader job;
    char bytes[1 << 12];
    size_t n_used;
    compile_reader_init(&job, false);
    ssize_t n;
    do {
        n = recv(fd, bytes, sizeof bytes, 0);
    } while (n > 0 &&
             compile_reader_feed(&job, (struct str){bytes, (size_t)n}, &n_used) == STATUS_AGAIN);
    const bool second = n > 0 && str_eq_c(job.frame.text, "second");
    send_frame(fd,
               &(struct compile_frame){.what = COMPILE_VERDICT,
                                       .text = str_from(is_heavy ? "heavy" : "light"),
                                       .cpu_us = second ? 1000000 : 0},
               5);
    compile_reader_fini(&job);
}

static void lie(const char *how, int fd, const struct compile_order *o)
{
    static char noise[1 << 16];
    if (strcmp(how, "heavy") == 0)
        answer_heavy(fd, o->is_heavy);
    else if (strcmp(how, "garbage") == 0)
        (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
    else if (strcmp(how, "half") == 0)
        send_frame(fd, &(struct compile_frame){.what = COMPILE_VERDICT, .text = STR("12345")}, 2);
    else if (strcmp(how, "characters") == 0)
        send_frame(fd, &(struct compile_frame){.what = COMPILE_VERDICT, .text = STR("\xFF")}, 1);
    else if (strcmp(how, "endless") == 0)
        send_frame(fd,
                   &(struct compile_frame){.what = COMPILE_VERDICT,
                                           .text = {"", (size_t)COMPILE_MAX_RENDERED * 100}},
                   0);
    else if (strcmp(how, "memory") == 0)
        send_frame(fd, &(struct compile_frame){.what = COMPILE_DIED, .code = SIGABRT}, 0);
    else if (strcmp(how, "crash") == 0)
        send_frame(fd, &(struct compile_frame){.what = COMPILE_DIED, .code = SIGSEGV}, 0);
    else if (strcmp(how, "silence") == 0)
        pause();
    else if (strcmp(how, "death") == 0)
        kill(getpid(), SIGKILL);
}

static int lying_main(const char *how)
{
    struct compile_order o;
    int fd = -1;
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {&o, sizeof o};
    for (;;) {
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control};
        if (recvmsg(3, &m, 0) <= 0)
            return 0;
        if (o.what != COMPILE_ORDER_RUN)
            continue;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
        lie(how, fd, &o);
        close(fd);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_over_memory),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_not_started),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_heavy_tenants_go_behind),
    };
    if (argc == 6 && strcmp(argv[1], COMPILE_CHILD_COMMAND) == 0)
        return strncmp(argv[2], "lie:", 4) == 0 ? lying_main(argv[2] + 4)
                                                : compile_child_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
