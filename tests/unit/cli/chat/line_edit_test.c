/* Tests the line editor of `cox chat`: the text after a series of keys, and the drawing of that
 * text. */
#include "cli/chat/line_edit.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Models a terminal that understands the output of `line_edit_draw`. */
struct screen {
    char cells[16][200];
    size_t row, column;
};

static enum line_event type(struct line_edit *e, const char *keys, size_t n)
{
    enum line_event event = LINE_MORE;
    for (size_t i = 0; i < n && event == LINE_MORE; i++)
        event = line_edit_feed(e, keys[i]);
    return event;
}

#define LEFT        "\033[D"
#define RIGHT       "\033[C"
#define UP          "\033[A"
#define DOWN        "\033[B"
#define PASTE(text) "\033[200~" text "\033[201~"

static void keys(void **state)
{
    static const struct {
        const char *keys, *want;
        enum line_event event;
    } cases[] = {
        {"abc\r", "abc", LINE_DONE},
        {"abc" LEFT LEFT "X\r", "aXbc", LINE_DONE},
        {"abc" LEFT RIGHT RIGHT RIGHT "X\r", "abcX", LINE_DONE},
        /* a deletion removes a whole character */
        {"\303\244b" LEFT LEFT "X\177\033[3~\r", "b", LINE_DONE},
        {"\303\244\177\177\r", "", LINE_DONE},
        {"ab\001X\005Y\r", "XabY", LINE_DONE},
        {"ab\033[HX\033[FY\r", "XabY", LINE_DONE},
        {"ab\033OHX\033OFY\r", "XabY", LINE_DONE},
        {"one two\027\r", "one ", LINE_DONE},
        {"one two\027\031\031\r", "one twotwo", LINE_DONE},
        {"one two\025\r", "", LINE_DONE},
        {"one two\001\013\r", "", LINE_DONE},
        {"one two\033b\033bX\033fY\r", "XoneY two", LINE_DONE},
        {"one two\033[1;5DX\r", "one Xtwo", LINE_DONE},
        {"a\nb\r", "a\nb", LINE_DONE},
        {"a\033\rb\r", "a\nb", LINE_DONE},
        {"abc\nd" UP "X" DOWN "Y\r", "aXbc\ndY", LINE_DONE},
        {"ab\ncd\001X\005\025\r", "ab\n", LINE_DONE}, /* the keys change only the current line */
        {PASTE("a\r\nb\rc\n") "d\r", "a\nb\nc\nd", LINE_DONE},
        {PASTE("\003\004\033[A\177x\033[200~\tz") "\r", "[Ax[200~\tz", LINE_DONE},
        {PASTE("a\033[201b") "\r", "a[201b", LINE_DONE},
        {"a\tb\r", "a b", LINE_DONE},
        {"a\003", "a", LINE_ABORT},
        {"\004", "", LINE_END},
        {"a\004b\r", "ab", LINE_DONE},
        {"ab" LEFT "\004\r", "a", LINE_DONE},
        /* the sequence is too long to be a key */
        {"a\033[99;99;99;99;99;99;99;99X\r", "a", LINE_DONE},
        {"a\033[5~b\033zc\r", "abc", LINE_DONE},
        /* The history contains "old" and then the two lines of "new". */
        {UP "\r", "new\nline", LINE_DONE},
        {UP UP UP "\r", "old", LINE_DONE},
        {"draft" UP UP UP DOWN DOWN DOWN "!\r", "draft!", LINE_DONE},
        {UP "x" UP UP "\r", "old", LINE_DONE},
        {DOWN "\r", "", LINE_DONE},
    };
    struct line_history past = {0};
    struct line_edit e;
    line_history_add(&past, STR("old"));
    line_history_add(&past, STR("new\nline"));
    line_history_add(&past, STR("new\nline"));
    line_history_add(&past, STR(""));
    assert_int_equal(past.n_items, 2);
    line_edit_init(&e, &past);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        line_edit_begin(&e);
        enum line_event event = type(&e, cases[i].keys, strlen(cases[i].keys));
        if (event != cases[i].event || !str_eq_c(strbuf_str(&e.text), cases[i].want))
            fail_msg("case %zu: event %d, \"%s\"", i, (int)event, strbuf_str(&e.text).ptr);
    }
    line_edit_fini(&e);
    line_history_fini(&past);
}

static void put(struct screen *s, struct str out, size_t columns)
{
    for (size_t i = 0; i < out.len; i++) {
        const char *c = out.ptr + i;
        size_t n = 0, end = i + 2;
        if (*c == '\r') {
            s->column = 0;
        } else if (*c == '\n') {
            s->row++;
        } else if (*c == '\033') {
            while (end < out.len && out.ptr[end] >= '0' && out.ptr[end] <= '9')
                n = n * 10 + (size_t)(out.ptr[end++] - '0');
            if (out.ptr[end] == 'A')
                s->row -= n;
            else if (out.ptr[end] == 'C')
                s->column += n;
            else
                for (size_t r = s->row; r < 16; r++)
                    memset(s->cells[r] + (r == s->row ? s->column : 0), ' ',
                           columns - (r == s->row ? s->column : 0));
            i = end;
        } else {
            assert_true(s->row < 16 && s->column < columns);
            s->cells[s->row][s->column++] = (unsigned char)*c < 0x80 ? *c : '*';
            i += (unsigned char)*c >= 0xE0 ? 2 : (unsigned char)*c >= 0xC0 ? 1 : 0;
            /* the three-byte characters of this test have a width of two columns */
            if ((unsigned char)*c >= 0xE0)
                s->cells[s->row][s->column++] = '*';
        }
    }
}

/* Types each text byte by byte on a screen of ten columns. Compares the cells and the cursor. */
static void drawn(void **state)
{
    static const struct {
        const char *keys, *rows[4];
        size_t row, column;
    } cases[] = {
        {"abc", {"> abc     "}, 0, 5},
        {"abc" LEFT, {"> abc     "}, 0, 4},
        {"12345678", {"> 12345678", "          "}, 1, 0},
        {"123456789", {"> 12345678", "9         "}, 1, 1},
        {"123456789" LEFT LEFT, {"> 12345678", "9         "}, 0, 9},
        {"a\nbc", {"> a       ", "bc        "}, 1, 2},
        {"a\nbc" UP, {"> a       ", "bc        "}, 0, 3},
        {"123456789\001\013", {">         ", "          "}, 0, 2},
        /* a wide character does not fit into the last column */
        {"1234567\344\270\255", {"> 1234567 ", "**        "}, 1, 2},
        {"\303\244\303\244\177", {"> *       "}, 0, 3},
        {"\200x", {"> ?x      "}, 0, 4},
    };
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    struct line_history none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct screen s = {.row = 0};
        struct line_edit e;
        struct strbuf out;
        memset(s.cells, ' ', sizeof s.cells);
        line_edit_init(&e, &none);
        strbuf_init(&out, 0);
        for (size_t k = 0; k < strlen(cases[i].keys); k++) {
            (void)type(&e, cases[i].keys + k, 1);
            if (((unsigned char)cases[i].keys[k + 1] & 0xC0) == 0x80)
                continue; /* skips bytes inside a character */
            strbuf_reset(&out);
            line_edit_draw(&e, "> ", 10, false, &out);
            put(&s, strbuf_str(&out), 10);
        }
        for (size_t r = 0; r < 4 && cases[i].rows[r]; r++)
            if (memcmp(s.cells[r], cases[i].rows[r], 10) != 0)
                fail_msg("case %zu, row %zu: \"%.10s\"", i, r, s.cells[r]);
        if (s.row != cases[i].row || s.column != cases[i].column)
            fail_msg("case %zu: the cursor is at %zu, %zu", i, s.row, s.column);
        strbuf_fini(&out);
        line_edit_fini(&e);
    }
}

static void bounds(void **state)
{
    struct line_history h = {0};
    struct line_edit e;
    char text[16];
    for (int i = 0; i < LINE_HISTORY_MAX + 10; i++) {
        snprintf(text, sizeof text, "%d", i);
        line_history_add(&h, str_from(text));
    }
    assert_int_equal(h.n_items, LINE_HISTORY_MAX);
    assert_string_equal(h.items[0], "10");
    line_edit_init(&e, &h);
    for (size_t i = 0; i < (size_t)LINE_MAX_BYTES + 100; i++)
        (void)line_edit_feed(&e, 'x');
    assert_int_equal(e.text.len, LINE_MAX_BYTES);
    line_edit_fini(&e);
    line_history_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys), cmocka_unit_test(drawn),
                                       cmocka_unit_test(bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
