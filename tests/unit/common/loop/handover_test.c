/* Tests the hand-over of a command line, also with messages that no `cox up` sends. */
#include "common/loop/handover.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

static struct handover got;

static void test_words_arrive(void **unused)
{
    static const char *const argv[] = {"/bin/cox-worker", "--model", "", "a b", NULL};
    int ends[2];
    struct error err = {0};
    assert_int_equal(handover_open(ends, &err), STATUS_OK);
    assert_int_equal(handover_send(ends[0], argv, &err), STATUS_AGAIN);
    handover_offer(ends[1]);
    assert_int_equal(handover_send(ends[0], argv, &err), STATUS_OK);
    assert_int_equal(handover_await(ends[0], 1, &err), STATUS_IO);
    assert_int_equal(handover_receive(ends[1], &got, &err), STATUS_OK);
    assert_int_equal(handover_await(ends[0], 1, &err), STATUS_OK);
    assert_int_equal(got.argc, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(got.argv[i], argv[i]);
    assert_null(got.argv[4]);
    close(ends[1]);
    assert_int_equal(handover_await(ends[0], 1, &err), STATUS_IO);
    close(ends[0]);
}

static void on_signal(int n)
{
}

/* The supervisor gets SIGCHLD whenever another process ends. */
static void test_a_signal_does_not_end_the_wait(void **unused)
{
    static const char *const argv[] = {"/bin/cox-worker", NULL};
    const struct sigaction act = {.sa_handler = on_signal};
    const struct itimerval soon = {.it_value.tv_usec = 1000};
    int ends[2];
    struct error err = {0};
    assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
    assert_int_equal(handover_open(ends, &err), STATUS_OK);
    handover_offer(ends[1]);
    assert_int_equal(handover_send(ends[0], argv, &err), STATUS_OK);
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    assert_int_equal(handover_await(ends[0], 20, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "within 20 ms"));
    assert_int_equal(handover_receive(ends[1], &got, &err), STATUS_OK);
    assert_int_equal(handover_await(ends[0], 20, &err), STATUS_OK);
    close(ends[0]);
    close(ends[1]);
}

/* A sender that has ended, or waited too long, has no use for the process. */
static void test_the_sender_has_gone(void **unused)
{
    static const char *const argv[] = {"/bin/cox-worker", NULL};
    int ends[2];
    struct error err = {0};
    assert_int_equal(handover_open(ends, &err), STATUS_OK);
    handover_offer(ends[1]);
    assert_int_equal(handover_send(ends[0], argv, &err), STATUS_OK);
    close(ends[0]);
    assert_int_equal(handover_receive(ends[1], &got, &err), STATUS_CLOSED);
    close(ends[1]);
}

static void test_limits_of_the_sender(void **unused)
{
    static char text[HANDOVER_BYTES_MAX + 1];
    static const char *words[HANDOVER_WORDS_MAX + 2];
    static const char *const none[] = {NULL};
    const char *const one[] = {text, NULL};
    int ends[2];
    struct error err = {0};
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i <= HANDOVER_WORDS_MAX; i++)
        words[i] = "w";
    assert_int_equal(handover_open(ends, &err), STATUS_OK);
    assert_int_equal(handover_send(ends[0], none, &err), STATUS_LIMIT);
    assert_int_equal(handover_send(ends[0], one, &err), STATUS_LIMIT);
    assert_int_equal(handover_send(ends[0], words, &err), STATUS_LIMIT);
    words[HANDOVER_WORDS_MAX] = NULL;
    handover_offer(ends[1]);
    assert_int_equal(handover_send(ends[0], words, &err), STATUS_OK);
    assert_int_equal(handover_receive(ends[1], &got, &err), STATUS_OK);
    assert_int_equal(got.argc, HANDOVER_WORDS_MAX);
    text[HANDOVER_BYTES_MAX - 1] = '\0';
    handover_offer(ends[1]);
    assert_int_equal(handover_await(ends[0], 1, &err), STATUS_OK);
    assert_int_equal(handover_send(ends[0], one, &err), STATUS_OK);
    assert_int_equal(handover_receive(ends[1], &got, &err), STATUS_OK);
    assert_int_equal(strlen(got.argv[0]), HANDOVER_BYTES_MAX - 1);
    assert_int_equal(handover_await(ends[0], 1, &err), STATUS_OK);
    handover_offer(ends[1]);
    close(ends[1]);
    assert_int_equal(handover_send(ends[0], one, &err), STATUS_IO); /* no SIGPIPE */
    close(ends[0]);
}

#define BYTES(n) (char)((n)&0xff), (char)((n) >> 8 & 0xff), (char)((n) >> 16), 0

static void test_wrong_messages(void **unused)
{
    static const char too_long[] = {'C', 'O', 'X', 'H', BYTES(HANDOVER_BYTES_MAX + 1), 'w'};
    static const char huge[] = {'C', 'O', 'X', 'H', -1, -1, -1, -1, 'w'};
    static const char empty[] = {'C', 'O', 'X', 'H', BYTES(0)};
    static const char no_end[] = {'C', 'O', 'X', 'H', BYTES(2), 'w', 'w'};
    static const char cut[] = {'C', 'O', 'X', 'H', BYTES(5), 'w', '\0'};
    static const char header[] = {'C', 'O', 'X'};
    static const char other[] = "GET / HTTP/1.1\r\n\r\n";
    static char many[8 + HANDOVER_WORDS_MAX + 1] = {'C', 'O', 'X', 'H',
                                                    BYTES(HANDOVER_WORDS_MAX + 1)};
    static const struct {
        const char *bytes;
        size_t n;
        enum status want;
    } cases[] = {
        {"", 0, STATUS_CLOSED},
        {header, sizeof header, STATUS_CLOSED},
        {cut, sizeof cut, STATUS_CLOSED},
        {other, sizeof other, STATUS_PROTOCOL},
        {empty, sizeof empty, STATUS_PROTOCOL},
        {too_long, sizeof too_long, STATUS_PROTOCOL},
        {huge, sizeof huge, STATUS_PROTOCOL},
        {no_end, sizeof no_end, STATUS_PROTOCOL},
        {many, sizeof many, STATUS_PROTOCOL}, /* only empty words, but too many */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int ends[2];
        struct error err = {0};
        assert_int_equal(handover_open(ends, &err), STATUS_OK);
        assert_int_equal(write(ends[0], cases[i].bytes, cases[i].n), (ssize_t)cases[i].n);
        close(ends[0]);
        const enum status s = handover_receive(ends[1], &got, &err);
        if (s != cases[i].want)
            print_error("case %zu: %s\n", i, status_name(s));
        assert_int_equal(s, cases[i].want);
        assert_true(err.text[0] != '\0');
        close(ends[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_arrive),
        cmocka_unit_test(test_a_signal_does_not_end_the_wait),
        cmocka_unit_test(test_the_sender_has_gone),
        cmocka_unit_test(test_limits_of_the_sender),
        cmocka_unit_test(test_wrong_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
