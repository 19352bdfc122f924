/* Tests that the progress bar of `cox pull` fits every width of terminal. */
#include "cli/pull/files/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static void draw(const char *name, uint64_t done, uint64_t total, uint64_t per_s, unsigned columns,
                 char out[400])
{
    const struct pull_progress p = {.name = name, .done = done, .total = total};
    struct strbuf b;
    strbuf_init(&b, 0);
    pull_progress_bar(&p, per_s, columns, &b);
    snprintf(out, 400, "%s", b.len > 0 ? strbuf_str(&b).ptr : "");
    strbuf_fini(&b);
}

/* Returns the columns of the widest line. A character outside ASCII counts as two columns,
 * because some of these characters are two columns wide. */
static size_t widest(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += (unsigned char)*s < 0x80 ? 1 : ((unsigned char)*s & 0xC0) != 0x80 ? 2 : 0;
    return n;
}

static void test_it_is_never_as_wide_as_the_terminal(void **state)
{
    static const char *const names[] = {
        "", "config.json", "model-00001-of-00191.safetensors",
        "a-very-long-name-of-a-quantised-model-that-nobody-types-00001-of-00002.gguf",
        "\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5"
        "\x9e\x8b"
        "\xe6\xa8\xa1\xe5\x9e\x8b.gguf"};
    static const uint64_t sizes[][3] = {{0, 0, 0},
                                        {0, 1, 0},
                                        {5, 10, 1},
                                        {1023 * GIB, 4096 * GIB, 1},
                                        {GIB, 10 * GIB, 40 << 20},
                                        {10 * GIB, 5 * GIB, 1023 << 20}};
    char got[400];
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (unsigned columns = 0; columns < 200; columns++) {
                draw(names[n], sizes[i][0], sizes[i][1], sizes[i][2], columns, got);
                if (widest(got) >= columns && columns > 0)
                    fail_msg("%u columns: %s", columns, got);
                if (columns >= 19 && !strchr(got, '['))
                    fail_msg("%u columns without a bar: %s", columns, got);
                if (columns >= 6 && !strchr(got, '%'))
                    fail_msg("%u columns without a number: %s", columns, got);
            }
}

static void test_what_is_left_out_first(void **state)
{
    static const struct {
        unsigned columns;
        const char *want;
    } cases[] = {
        {120, "[####....................]  18 %  2.0 GiB of 11.0 GiB  40.0 MiB/s  4 min left  "
              "model-00001-of-00191.safetensors"},
        {80, "[#.........]  18 %  2.0 GiB of 11.0 GiB  40.0 MiB/s  4 min left  model-...nsors"},
        {60, "[###...............]  18 %  2.0 GiB of 11.0 GiB  4 min left"},
        {46, "[##..............]  18 %  2.0 GiB of 11.0 GiB"},
        {30, "[###..................]  18 %"},
        {12, " 18 %"},
        {3, ""},
    };
    char got[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        draw("model-00001-of-00191.safetensors", 2 * GIB, 11 * GIB, 40 << 20, cases[i].columns,
             got);
        assert_string_equal(got, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_never_as_wide_as_the_terminal),
        cmocka_unit_test(test_what_is_left_out_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
