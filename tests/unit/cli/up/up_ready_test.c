/* Tests the texts that `cox up` shows: the frame when the cluster is ready, the progress, the
 * lines of logs, and the names of clusters. Each function takes a struct and appends text to a
 * buffer. Invariants: the frame fits the terminal, and the chat page is named only where a
 * browser can reach it. */
#include "cli/up/ready.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/up/local/name.h"
#include "cli/up/screen.h"

static const struct up_ready usual = {.url = "http://127.0.0.1:8000",
                                      .admin = "127.0.0.1:8265",
                                      .model = "demo",
                                      .name = "demo",
                                      .has_chat_page = true,
                                      .is_only = true,
                                      .is_usual_admin = true,
                                      .n_workers = 5,
                                      .replica_ranks = 2,
                                      .n_replicas = 2,
                                      .n_gateways = 1,
                                      .took_ms = 1234};

static unsigned width_of(const char *line, size_t n)
{
    unsigned width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)line[i] & 0xC0) != 0x80;
    return width;
}

/* Checks that all lines of the frame are equally wide. The command below the frame may have any
 * length. */
static void check_frame(const struct up_ready *r, unsigned columns, bool utf8)
{
    struct strbuf b;
    unsigned width = 0, n = 0;
    const char *line, *end;
    strbuf_init(&b, 0);
    up_ready_frame(r, columns, utf8, &b);
    for (line = b.ptr; (end = strchr(line, '\n')) && strncmp(line, "curl ", 5) != 0;
         line = end + 1) {
        unsigned w = width_of(line, (size_t)(end - line));
        if ((n++ > 0 && w != width) || w > (columns < 40 ? 40 : columns))
            fail_msg("%u columns, a line of %u in a frame of %u:\n%s", columns, w, width, b.ptr);
        width = w;
    }
    assert_non_null(strstr(line, "/v1/completions"));
    assert_string_equal(end, "\n");
    assert_true(n >= 6);
    strbuf_fini(&b);
}

static void test_the_frame_fits(void **state)
{
    static const char long_name[] =
        "/a/very/long/path/of/a/model/that/is/longer/than/any/terminal/is/wide/and/has/no/blank/"
        "in/it/at/all/é/or/\x1b[2J/of/such/a/kind/x";
    struct up_ready r = usual;
    for (unsigned columns = 0; columns < 200; columns++) {
        check_frame(&usual, columns, true);
        r.model = r.log_file = r.uds = long_name;
        check_frame(&r, columns, columns % 2);
        r.uds = NULL;
        r.is_only = r.is_usual_admin = false;
        check_frame(&r, columns, columns % 2);
    }
}

static void test_what_the_frame_says(void **state)
{
    static const char status[] =
        "{\"workers\":[{\"device\":\"cuda\",\"device_name\":\"NVIDIA H200\"},{\"device\":\"cuda\","
        "\"device_name\":\"NVIDIA H200\"},{\"device\":\"cpu\",\"device_name\":\"A CPU\"},"
        "{\"device\":\"cpu\",\"device_name\":\"A CPU\"}]}";
    static const char *const want[] = {"Coxswain is ready after 1.2 s",
                                       "http://127.0.0.1:8000/v1 ",
                                       "http://127.0.0.1:8000/ ",
                                       "http://127.0.0.1:8265/ ",
                                       "2 x NVIDIA H200, A CPU ",
                                       "5: 2 replicas of 2 ranks, 1 spare ",
                                       "cox status",
                                       "Ctrl-C, or cox stop ",
                                       "curl http://127.0.0.1:8000/v1/completions -d "
                                       "'{\"model\":\"demo\",\"prompt\":\"Hello\"}'\n"};
    struct up_ready r = usual;
    struct strbuf b;
    strbuf_init(&b, 0);
    r.status = json_loads(status, 0, NULL);
    up_ready_frame(&r, 80, true, &b);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        if (!strstr(b.ptr, want[i]))
            fail_msg("\"%s\" is missing in\n%s", want[i], b.ptr);
    json_decref((json_t *)r.status);
    strbuf_reset(&b);
    r = usual;
    r.n_workers = 1;
    r.n_replicas = 0; /* the other rank is on another machine */
    up_ready_frame(&r, 80, true, &b);
    assert_non_null(strstr(b.ptr, "1 here, with workers of other machines: 2 ranks a replica"));
    strbuf_reset(&b);
    r = usual;
    r.is_only = r.is_usual_admin = false;
    r.log_file = "/tmp/demo.log";
    r.has_key = true;
    up_ready_frame(&r, 120, false, &b);
    assert_non_null(strstr(b.ptr, "| Stop       cox stop demo "));
    assert_non_null(strstr(b.ptr, "| Log        /tmp/demo.log "));
    assert_non_null(strstr(b.ptr, "-H 'Authorization: Bearer YOUR-KEY'"));
    strbuf_reset(&b);
    r.pid = 4711; /* a process number means that the cluster has no control socket */
    up_ready_frame(&r, 120, false, &b);
    assert_non_null(strstr(b.ptr, "| Stop       kill 4711 "));
    assert_null(strstr(b.ptr, "cox stop"));
    strbuf_fini(&b);
}

/* The log and the frame name the chat page only where a browser can reach it. */
static void test_the_chat_page_is_named_where_it_is(void **state)
{
    struct up_ready r[4] = {usual, usual, usual, usual};
    r[1].has_chat_page = false;
    r[2].wants_certificate = true;
    r[3].uds = "/tmp/socket";
    for (size_t i = 0; i < 4; i++) {
        struct strbuf frame, plain;
        strbuf_init(&frame, 0);
        strbuf_init(&plain, 0);
        up_ready_frame(&r[i], 80, true, &frame);
        up_ready_plain(&r[i], &plain);
        assert_int_equal(strstr(frame.ptr, "Chat page  http://127.0.0.1:8000/ ") != NULL, i == 0);
        assert_int_equal(strstr(plain.ptr, "\nchat page: http://127.0.0.1:8000/\n") != NULL,
                         i == 0);
        strbuf_fini(&frame);
        strbuf_fini(&plain);
    }
}

static void test_progress(void **state)
{
    static const struct {
        const char *status, *want;
    } cases[] = {
        {NULL, "Starting: 0 of 2 workers connected, 3 s"},
        {"{}", "Starting: 0 of 2 workers connected, 3 s"},
        {"{\"workers\":[{\"state\":\"loading\",\"loaded\":0.5},{\"state\":\"ready\"}]}",
         "Loading weights: 50 %, 1 of 2 workers ready, 3 s"},
        {"{\"workers\":[{\"state\":\"free\"},{\"state\":\"ready\"}]}",
         "Starting: 1 of 2 workers ready, 3 s"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[100];
        json_t *j = cases[i].status ? json_loads(cases[i].status, 0, NULL) : NULL;
        up_ready_progress(j, 2, 2, 3999, got, sizeof got);
        assert_string_equal(got, cases[i].want);
        json_decref(j);
    }
    char got[100];
    json_t *one = json_loads("{\"workers\":[{\"state\":\"free\"}]}", 0, NULL);
    up_ready_progress(one, 1, 2, 3999, got, sizeof got);
    assert_string_equal(got, "Waiting for other machines: 1 of 2 ranks connected, 3 s");
    json_decref(one);
}

static void test_levels_of_lines(void **state)
{
    static const struct {
        const char *line;
        int level;
        const char *text;
    } cases[] = {
        {"2026-11-29T12:00:59.268Z warn  worker-0 head_lost reason=\"x\"", 2,
         "head_lost reason=\"x\""},
        {"2026-11-29T12:00:59.268Z info  head head_started", 1, "head_started"},
        {"2026-11-29T12:00:59.268Z error gateway start_failed", 3, "start_failed"},
        {"2026-11-29T12:00:59.268Z warn  head", 2, ""},
        {"{\"ts\":\"x\",\"level\":\"warn\",\"event\":\"e\"}", 2,
         "{\"ts\":\"x\",\"level\":\"warn\",\"event\":\"e\"}"},
        {"{\"level\":\"info\"}", 1, "{\"level\":\"info\"}"},
        {"{not ours}", -1, NULL},
        {"2026-11-29T12:00:59.268Z other head x", -1, NULL},
        {"2026-11-29T12:00:59.268Z", -1, NULL},
        {"KV cache            0.5 MiB   8192 blocks of 16 tokens", -1, NULL},
        {"", -1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t at = 0;
        assert_int_equal(up_screen_level(cases[i].line, strlen(cases[i].line), &at),
                         cases[i].level);
        if (cases[i].text)
            assert_string_equal(cases[i].line + at, cases[i].text);
    }
}

static void test_names_of_models(void **state)
{
    static const char *const cases[][2] = {
        {"demo", "demo"},
        {"hf:Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"},
        {"/models/A Model!", "a-model"},
        {"/x/é", "model"},
        {"--", "model"},
        {"", "model"},
        {"a-name-that-is-much-longer-than-a-person-would-ever-type",
         "a-name-that-is-much-longer-than-a-person"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[UP_NAME_BYTES];
        up_name_of_model(cases[i][0], got);
        assert_string_equal(got, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_frame_fits),
        cmocka_unit_test(test_what_the_frame_says),
        cmocka_unit_test(test_the_chat_page_is_named_where_it_is),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_levels_of_lines),
        cmocka_unit_test(test_names_of_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
