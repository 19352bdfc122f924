/* Tests the log: the lines in text and JSON form, the time, the types of fields and the quoting.
 * A test captures stderr with `capture`, logs, and compares the text that `release` returns. A
 * log call must write exactly one line, and a field must have the same JSON type whatever its
 * value. */
#include "common/base/log.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/str.h"

static FILE *captured;
static int real_stderr;

static void capture(void)
{
    captured = tmpfile();
    assert_non_null(captured);
    real_stderr = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
}

/* Ends the capture and returns the text that stderr got. The text is static. */
static const char *release(void)
{
    static char text[1 << 20];
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    rewind(captured);
    size_t n = fread(text, 1, sizeof text - 1, captured);
    text[n] = '\0';
    fclose(captured);
    return text;
}

/* Checks a time such as "2026-01-02T03:04:05.678Z", with each digit taken as 0. */
static void check_time(const char *s)
{
    static const char form[] = "0000-00-00T00:00:00.000Z";
    for (size_t i = 0; i < sizeof form - 1; i++)
        assert_int_equal(s[i] >= '0' && s[i] <= '9' ? '0' : s[i], form[i]);
}

static void test_logfmt(void **state)
{
    log_init("head", LOG_INFO, LOG_LOGFMT);
    capture();
    log_debug("hidden", "a=1");
    log_info("request_finished", "id=%s tokens=%d", "r1", 3);
    log_warn("bare", "%s", "");
    log_error("cut\x01", "text=%s", "two\nlines\r");
    const char *t = release();
    check_time(t);
    assert_non_null(strstr(t, "Z info  head request_finished id=r1 tokens=3\n"));
    assert_non_null(strstr(t, "Z warn  head bare\n"));
    assert_non_null(strstr(t, "text=two lines \n"));
    assert_null(strstr(t, "hidden"));
    int lines = 0;
    for (; *t; t++)
        lines += *t == '\n';
    assert_int_equal(lines, 3);
}

static void test_level(void **state)
{
    log_init("x", LOG_WARN, LOG_LOGFMT);
    assert_false(log_enabled(LOG_INFO));
    assert_true(log_enabled(LOG_ERROR));
    capture();
    log_info("no", "a=1");
    assert_string_equal(release(), "");
}

static void test_json_fields(void **state)
{
    static const struct {
        const char *fields, *want; /* `want` is the text after "event":"e" */
    } cases[] = {
        {"", "}"},
        {"n=5 f=-1.5", ",\"n\":\"5\",\"f\":\"-1.5\"}"},
        {"id=abc", ",\"id\":\"abc\"}"},
        {"empty= flag x=y=z", ",\"empty\":\"\",\"flag\":true,\"x\":\"y=z\"}"},
        {"q=\"two words\" n=1", ",\"q\":\"two words\",\"n\":\"1\"}"},
        {"q=\"a \\\"b\\\" \\\\ \\u000a\"", ",\"q\":\"a \\\"b\\\" \\\\ \\n\"}"},
        {"q=\"odd \\x \\u00zz\"", ",\"q\":\"odd \\\\x \\\\u00zz\"}"},
        {"q=\"never closed", ",\"q\":\"never closed\"}"},
        {"q=\"bad \xff\" r=\xfe", ",\"q\":\"bad \xef\xbf\xbd\",\"r\":\"\xef\xbf\xbd\"}"},
    };
    log_init("worker-1", LOG_INFO, LOG_JSON);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[512];
        capture();
        log_info("e", "%s", cases[i].fields);
        const char *t = release();
        assert_int_equal(strncmp(t, "{\"ts\":\"", 7), 0);
        check_time(t + 7);
        snprintf(want, sizeof want,
                 "\",\"level\":\"info\",\"process\":\"worker-1\",\"event\":\"e\"%s\n",
                 cases[i].want);
        assert_string_equal(t + 7 + 24, want);
    }
}

/* The format decides a field's JSON type, not the value. */
static void test_json_types(void **state)
{
    log_init("p", LOG_INFO, LOG_JSON);
    capture();
    log_info("e", "n=%d f=%.1f big=%llu e=%g", 5, -1.5, 18446744073709551615ull, 1e30);
    log_info("e", "id=%s epoch=%u.%u instance=%016x rank=%u/%u mode=%o", "77", 1u, 10u, 0x12u, 0u,
             2u, 0600u);
    log_info("e", "bad=%f worse=%.0f text=%s=%d", (double)INFINITY, (double)NAN, "a", 1);
    log_info("e", "note=%s n=%d", log_quote("x n=7"), 7);
    log_info("e", "xn=%s n=%-3dend", "1", 7);
    const char *t = release();
    assert_non_null(strstr(t, "\"n\":5,\"f\":-1.5,\"big\":18446744073709551615,\"e\":1e+30}"));
    assert_non_null(strstr(t, "\"id\":\"77\",\"epoch\":\"1.10\",\"instance\":\"0000000000000012\","
                              "\"rank\":\"0/2\",\"mode\":\"600\"}"));
    assert_non_null(strstr(t, "\"bad\":\"inf\",\"worse\":\"nan\",\"text\":\"a=1\"}"));
    assert_non_null(strstr(t, "\"note\":\"x n=7\",\"n\":7}"));
    assert_non_null(strstr(t, "\"xn\":\"1\",\"n\":\"7\""));
}

static void test_quote(void **state)
{
    char big[5000];
    assert_string_equal(log_quote("a b"), "\"a b\"");
    assert_string_equal(log_quote("\"\\\n\x7f"), "\"\\\"\\\\\\u000a\\u007f\"");
    memset(big, '\n', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    assert_in_range(strlen(log_quote(big)), 1000, 1024);
    /* One log call may use four quoted texts at once. */
    const char *q[4] = {log_quote("1"), log_quote("2"), log_quote("3"), log_quote("4")};
    assert_string_equal(q[0], "\"1\"");
    assert_string_equal(q[3], "\"4\"");
}

static void test_long_line_is_cut_to_one_line(void **state)
{
    char big[10000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    for (int format = 0; format < LOG_FORMAT_COUNT; format++) {
        log_init("p", LOG_INFO, format);
        capture();
        log_info("e", "v=%s", big);
        const char *t = release();
        size_t n = strlen(t);
        assert_in_range(n, 4000, 4400);
        assert_ptr_equal(strchr(t, '\n'), t + n - 1);
    }
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_info("e", "who=%s end=1", (const char *)arg);
    return NULL;
}

static void test_threads_do_not_mix_lines(void **state)
{
    static char names[4][200];
    pthread_t threads[4];
    log_init("p", LOG_INFO, LOG_LOGFMT);
    capture();
    for (int i = 0; i < 4; i++) {
        memset(names[i], 'a' + i, sizeof names[i] - 1);
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    int lines = 0;
    for (const char *t = release(), *end; *t; t = end + 1, lines++) {
        end = strchr(t, '\n');
        assert_non_null(end);
        assert_int_equal(memcmp(end - 6, " end=1", 6), 0);
        assert_int_equal(end - t, 24 + strlen(" info  p e who= end=1") + 199);
    }
    assert_int_equal(lines, 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logfmt),
        cmocka_unit_test(test_level),
        cmocka_unit_test(test_json_fields),
        cmocka_unit_test(test_json_types),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_long_line_is_cut_to_one_line),
        cmocka_unit_test(test_threads_do_not_mix_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
