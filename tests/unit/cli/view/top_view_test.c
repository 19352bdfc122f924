/* Tests the screen of `cox top`: its contents, that it stays within the columns and rows, and
 * that no malformed answer causes a crash. */
#include "cli/view/top_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char full[] =
    "{\"healthy\":true,\"uptime_s\":3725,\"model\":{\"name\":\"demo\"},"
    "\"throughput\":{\"generation_tokens_per_s\":100.25,\"prompt_tokens_per_s\":7},"
    "\"requests\":{\"running\":4,\"waiting\":1,\"finished\":9,\"failed\":2,\"cancelled\":3,"
    "\"preemptions\":5},\"kv\":{\"blocks_total\":100,\"blocks_used\":50,\"usage\":0.5,"
    "\"prefix_hit_rate\":0.25},\"groups\":[{\"id\":7,\"state\":\"ready\",\"role\":\"both\","
    "\"running\":4,"
    "\"waiting\":1,\"kv_blocks_used\":50,\"kv_blocks_total\":100,\"recoveries\":2}],"
    "\"workers\":[{\"instance\":\"00000000000000aa\",\"node\":\"rack1\",\"state\":\"ready\","
    "\"group\":7,"
    "\"own_step_s\":0.0125,\"straggler\":true,\"gpu\":{\"memory_used_bytes\":75,"
    "\"memory_total_bytes\":100,\"utilization\":0.87,\"temperature_celsius\":61}},"
    "{\"instance\":\"00000000000000bb\",\"node\":\"rack2\",\"state\":\"loading\",\"loaded\":0.34,"
    "\"group\":null}],\"warnings\":[\"half a group\"]}";

static void render(const char *json, const struct top_shape *shape, unsigned n_samples,
                   struct strbuf *b)
{
    json_t *j = json_loads(json, 0, NULL);
    struct top_history h = {0};
    assert_non_null(j);
    for (unsigned i = 0; i < n_samples; i++)
        top_history_add(&h, j);
    strbuf_init(b, 0);
    top_view_render(j, &h, shape, b);
    strbuf_append(b, "", 1);
    json_decref(j);
}

static const struct {
    const char *label, *json;
    unsigned columns, n_samples;
    bool utf8;
    const char *want;
} cases[] = {
    {"head", full, 100, 1, false, "cox top   model demo   healthy   up 1h02m05s\n"},
    {"tokens", full, 100, 1, false,
     "tokens/s  100.2 generated, 7.0 of prompts   sequences  4 running"},
    {"counts", full, 100, 1, false, "9 finished, 2 failed, 3 cancelled, 5 preempted\n"},
    {"bar", full, 86, 1, false,
     "[##########----------]  50.0 %  50/100 blocks, prefix hits 25.0 %"},
    {"bar in blocks", full, 86, 1, true, "[██████████░░░░░░░░░░]  50.0 %"},
    {"no curve of one", full, 100, 1, false, "sequences  4 running, 1 waiting\nso far"},
    {"a curve", full, 100, 3, false, "\n          ###\nso far"},
    {"a group", full, 100, 1, false,
     "7       ready      both            4        1  [############------------]   50 %          "
     "2\n"},
    {"a worker", full, 100, 1, false,
     "00000000000000aa ready         7        12.50 ms   87 %      75 %   61 C  rack1   SLOW\n"},
    {"a worker that loads", full, 100, 1, false, "00000000000000bb loading 34 %  -"},
    {"a warning", full, 100, 1, false, "\nWARNING: half a group\n"},
    {"nothing", "{}", 100, 1, false, "model -   NOT HEALTHY"},
    {"resting", "{\"resting\":true}", 100, 1, false, "model -   resting"},
    {"full and more", "{\"kv\":{\"usage\":7}}", 86, 1, false, "[####################]"},
    {"less than nothing", "{\"kv\":{\"usage\":-7}}", 86, 1, false, "[--------------------]"},
    {"wrong types", "{\"groups\":[1,null,\"x\"],\"workers\":{},\"warnings\":[5]}", 100, 1, false,
     "WARNING: -\n"},
    {"a name that would move the cursor", "{\"model\":{\"name\":\"a\\u001b[2J\\nb\"}}", 100, 1,
     false, "model a?[2J?b   NOT"},
    {"a standby",
     "{\"role\":\"standby\",\"lease\":{\"holder\":\"aa tcp://h:1\",\"store_reached\":true}}", 100,
     1, false, "this head is the standby: tcp://h:1 serves"},
};

static void test_what_is_on_it(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct top_shape shape = {.columns = cases[i].columns, .utf8 = cases[i].utf8};
        struct strbuf b;
        render(cases[i].json, &shape, cases[i].n_samples, &b);
        if (!strstr(b.ptr, cases[i].want))
            fail_msg("%s: want \"%s\" in:\n%s", cases[i].label, cases[i].want, b.ptr);
        strbuf_fini(&b);
    }
}

static unsigned width_of(const char *line, size_t n)
{
    unsigned width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)line[i] & 0xC0) != 0x80;
    return width;
}

/* The screen fits every size of window, with a history that is longer than any window. */
static void test_it_keeps_to_the_window(void **state)
{
    for (unsigned columns = 0; columns < 500; columns += 7)
        for (unsigned rows = 1; rows < 16; rows++) {
            const struct top_shape shape = {.columns = columns, .rows = rows, .utf8 = columns % 2};
            unsigned n = 0, most = columns < 40 ? 40 : columns;
            struct strbuf b;
            render(full, &shape, TOP_SAMPLES + 30, &b);
            for (const char *line = b.ptr, *end; (end = strchr(line, '\n')); line = end + 1, n++)
                if (width_of(line, (size_t)(end - line)) > most)
                    fail_msg("%u columns: %.*s", columns, (int)(end - line), line);
            if (n > rows)
                fail_msg("%u lines in %u rows", n, rows);
            if (rows > 1)
                assert_non_null(strstr(b.ptr, "q quit  "));
            strbuf_fini(&b);
        }
}

/* Scrolling shows every line of the tables and always the title. Behind the last line there is
 * nothing to show. */
static void test_scrolling_shows_every_line(void **state)
{
    static const unsigned sizes[][2] = {{60, 6}, {60, 20}, {80, 8}, {120, 30}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct top_shape shape = {.columns = sizes[i][0], .rows = sizes[i][1]};
        bool seen_replica = false, seen_a = false, seen_b = false;
        json_t *j = json_loads(full, 0, NULL);
        struct top_history h = {0};
        unsigned most = 1;
        for (; shape.scroll <= most; shape.scroll++) {
            struct strbuf b;
            strbuf_init(&b, 0);
            most = top_view_render(j, &h, &shape, &b);
            assert_int_equal(strncmp(b.ptr, "cox top   model demo", 20), 0);
            seen_replica = seen_replica || strstr(b.ptr, "7       ready");
            seen_a = seen_a || strstr(b.ptr, "00000000000");
            seen_b = seen_b || strstr(b.ptr, "loading 34 %");
            strbuf_fini(&b);
        }
        if (!seen_replica || !seen_a || !seen_b)
            fail_msg("%u x %u: a line is in no window", shape.columns, shape.rows);
        json_decref(j);
    }
}

static void test_a_sentence_keeps_to_the_window(void **state)
{
    static const char text[] =
        "cox top: http://127.0.0.1:8265: cannot connect: nobody listens at \x1b"
        "this address; --address HOST:PORT names the head's admin API, ääää";
    for (unsigned columns = 0; columns < 200; columns++) {
        const struct top_shape shape = {.columns = columns};
        unsigned most = columns < 40 ? 40 : columns;
        struct strbuf b;
        strbuf_init(&b, 0);
        top_view_render_text(text, &shape, &b);
        for (const char *line = b.ptr, *end; (end = strchr(line, '\n')); line = end + 1)
            if (width_of(line, (size_t)(end - line)) > most)
                fail_msg("%u columns: %.*s", columns, (int)(end - line), line);
        assert_null(strchr(b.ptr, '\x1b'));
        for (size_t i = 0; i < b.len; i++) /* no text is lost: only some spaces became newlines */
            if (b.ptr[i] != text[i] && text[i] != '\x1b' &&
                !(b.ptr[i] == '\n' && (text[i] == ' ' || !text[i])))
                fail_msg("%u columns: at %zu: %s", columns, i, b.ptr);
        strbuf_fini(&b);
    }
}

static void test_a_word_longer_than_a_line(void **state)
{
    const struct top_shape shape = {.columns = 40, .rows = 3};
    char text[200];
    struct strbuf b;
    strbuf_init(&b, 0);
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    top_view_render_text(text, &shape, &b);
    assert_int_equal(b.len, 2 * 41); /* the last row of the screen stays empty */
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_on_it),
        cmocka_unit_test(test_it_keeps_to_the_window),
        cmocka_unit_test(test_scrolling_shows_every_line),
        cmocka_unit_test(test_a_sentence_keeps_to_the_window),
        cmocka_unit_test(test_a_word_longer_than_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
