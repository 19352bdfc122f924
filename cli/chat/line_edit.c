/* Implements a line editor without a terminal: keys change a text, and the drawn text is
 * returned as bytes.
 * line_input.c passes each byte of the terminal to `line_edit_feed`, and writes the output of
 * `line_edit_draw` to the terminal. Control bytes go to `feed_control`, escape sequences to
 * `feed_sequence`, pasted text to `feed_pasted`.
 * Invariants: the text is at most LINE_MAX_BYTES long. The cursor `at` is never inside a UTF-8
 * character. The length of a sequence in `keys` is bounded, even for unknown sequences. Pasted
 * text is never interpreted as keys. The functions are pure and may run on any thread. */
#include "cli/chat/line_edit.h"

#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "common/base/mem.h"

#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"

/* ---- history ---- */

void line_history_add(struct line_history *h, struct str text)
{
    if (text.len == 0 || memchr(text.ptr, '\0', text.len) ||
        (h->n_items > 0 && str_eq_c(text, h->items[h->n_items - 1])))
        return;
    if (!h->items)
        h->items = mem_array(LINE_HISTORY_MAX, sizeof *h->items);
    if (h->n_items == LINE_HISTORY_MAX) {
        mem_free(h->items[0]);
        memmove(h->items, h->items + 1, (LINE_HISTORY_MAX - 1) * sizeof *h->items);
        h->n_items--;
    }
    h->items[h->n_items++] = mem_strndup(text.ptr, text.len);
}

void line_history_fini(struct line_history *h)
{
    for (size_t i = 0; i < h->n_items; i++)
        mem_free(h->items[i]);
    mem_free(h->items);
    *h = (struct line_history){0};
}

void line_edit_init(struct line_edit *e, const struct line_history *history)
{
    *e = (struct line_edit){.history = history};
    strbuf_init(&e->text, LINE_MAX_BYTES);
    strbuf_init(&e->killed, LINE_MAX_BYTES);
    strbuf_init(&e->draft, LINE_MAX_BYTES);
    line_edit_begin(e);
}

void line_edit_fini(struct line_edit *e)
{
    strbuf_fini(&e->text);
    strbuf_fini(&e->killed);
    strbuf_fini(&e->draft);
}

void line_edit_begin(struct line_edit *e)
{
    strbuf_reset(&e->text);
    strbuf_reset(&e->draft);
    e->at = e->n_keys = e->row = 0;
    e->is_pasting = e->was_return = false;
    e->i_past = e->history->n_items;
}

/* ---- the text ---- */

static const char *bytes(const struct line_edit *e)
{
    return strbuf_str(&e->text).ptr;
}

static void insert(struct line_edit *e, const char *s, size_t n)
{
    size_t rest = e->text.len - e->at;
    if (n > LINE_MAX_BYTES - e->text.len || !strbuf_extend(&e->text, n))
        return;
    memmove(e->text.ptr + e->at + n, e->text.ptr + e->at, rest);
    memcpy(e->text.ptr + e->at, s, n);
    e->at += n;
}

static void cut(struct line_edit *e, size_t begin, size_t end, bool keep)
{
    if (begin >= end)
        return;
    if (keep) {
        strbuf_reset(&e->killed);
        strbuf_append(&e->killed, e->text.ptr + begin, end - begin);
    }
    memmove(e->text.ptr + begin, e->text.ptr + end, e->text.len - end);
    e->text.len -= end - begin;
    e->text.ptr[e->text.len] = '\0';
    e->at = begin;
}

/* Returns true when byte i is inside a character and is not the character's first byte. */
static bool is_inside(const struct line_edit *e, size_t i)
{
    return i < e->text.len && ((unsigned char)bytes(e)[i] & 0xC0) == 0x80;
}

static size_t left_of(const struct line_edit *e, size_t i)
{
    do
        i -= i > 0;
    while (i > 0 && is_inside(e, i));
    return i;
}

static size_t right_of(const struct line_edit *e, size_t i)
{
    do
        i += i < e->text.len;
    while (is_inside(e, i));
    return i;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

static size_t word_left(const struct line_edit *e)
{
    size_t i = e->at;
    while (i > 0 && is_blank(bytes(e)[i - 1]))
        i--;
    while (i > 0 && !is_blank(bytes(e)[i - 1]))
        i--;
    return i;
}

static size_t word_right(const struct line_edit *e)
{
    size_t i = e->at;
    while (i < e->text.len && is_blank(bytes(e)[i]))
        i++;
    while (i < e->text.len && !is_blank(bytes(e)[i]))
        i++;
    return i;
}

static size_t line_begin(const struct line_edit *e, size_t i)
{
    while (i > 0 && bytes(e)[i - 1] != '\n')
        i--;
    return i;
}

static size_t line_end(const struct line_edit *e, size_t i)
{
    while (i < e->text.len && bytes(e)[i] != '\n')
        i++;
    return i;
}

static void replace(struct line_edit *e, const char *s)
{
    strbuf_reset(&e->text);
    strbuf_append_c(&e->text, s);
    e->at = e->text.len;
}

static void go_past(struct line_edit *e, bool back)
{
    size_t n = e->history->n_items;
    if (back ? e->i_past == 0 : e->i_past == n)
        return;
    if (e->i_past == n) {
        strbuf_reset(&e->draft);
        strbuf_append_str(&e->draft, strbuf_str(&e->text));
    }
    e->i_past = back ? e->i_past - 1 : e->i_past + 1;
    replace(e, e->i_past == n ? strbuf_str(&e->draft).ptr : e->history->items[e->i_past]);
}

/* Moves the cursor one line up or down. At the first or last line of the text, it shows the
 * previous or next text of the history. */
static void go_line(struct line_edit *e, bool up)
{
    size_t begin = line_begin(e, e->at), column = e->at - begin, end = line_end(e, e->at);
    if (up ? begin == 0 : end == e->text.len) {
        go_past(e, up);
        return;
    }
    size_t to = up ? line_begin(e, begin - 1) : end + 1;
    size_t last = line_end(e, to);
    e->at = to + column < last ? to + column : last;
    while (is_inside(e, e->at))
        e->at--;
}

/* ---- keys ---- */

enum key {
    KEY_NONE,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_WORD_LEFT,
    KEY_WORD_RIGHT,
    KEY_NEW_LINE
};

static const struct {
    const char *bytes;
    enum key key;
} sequences[] = {
    {"\033[D", KEY_LEFT},
    {"\033[C", KEY_RIGHT},
    {"\033[A", KEY_UP},
    {"\033[B", KEY_DOWN},
    {"\033OD", KEY_LEFT},
    {"\033OC", KEY_RIGHT},
    {"\033OA", KEY_UP},
    {"\033OB", KEY_DOWN},
    {"\033[H", KEY_HOME},
    {"\033[F", KEY_END},
    {"\033OH", KEY_HOME},
    {"\033OF", KEY_END},
    {"\033[1~", KEY_HOME},
    {"\033[7~", KEY_HOME},
    {"\033[4~", KEY_END},
    {"\033[8~", KEY_END},
    {"\033[3~", KEY_DELETE},
    {"\033[1;5D", KEY_WORD_LEFT},
    {"\033[1;5C", KEY_WORD_RIGHT},
    {"\033[1;3D", KEY_WORD_LEFT},
    {"\033[1;3C", KEY_WORD_RIGHT},
    {"\033b", KEY_WORD_LEFT},
    {"\033f", KEY_WORD_RIGHT},
    {"\033\r", KEY_NEW_LINE},
    {"\033\n", KEY_NEW_LINE},
};

static void press(struct line_edit *e, enum key key)
{
    switch (key) {
    case KEY_LEFT:
        e->at = left_of(e, e->at);
        break;
    case KEY_RIGHT:
        e->at = right_of(e, e->at);
        break;
    case KEY_UP:
    case KEY_DOWN:
        go_line(e, key == KEY_UP);
        break;
    case KEY_HOME:
        e->at = line_begin(e, e->at);
        break;
    case KEY_END:
        e->at = line_end(e, e->at);
        break;
    case KEY_DELETE: {
        size_t begin = e->at;
        cut(e, begin, right_of(e, begin), false);
        break;
    }
    case KEY_WORD_LEFT:
        e->at = word_left(e);
        break;
    case KEY_WORD_RIGHT:
        e->at = word_right(e);
        break;
    case KEY_NEW_LINE:
        insert(e, "\n", 1);
        break;
    case KEY_NONE:
        break;
    }
}

/* Returns true when an escape sequence is complete. A CSI sequence (ESC [) ends with a byte from
 * @ to ~. An SS3 sequence (ESC O) has one more byte. */
static bool is_whole(const char *keys, size_t n)
{
    if (n < 2)
        return false;
    if (keys[1] == '[')
        return n > 2 && keys[n - 1] >= '@' && keys[n - 1] <= '~';
    return keys[1] != 'O' || n > 2;
}

static enum line_event feed_sequence(struct line_edit *e, char byte)
{
    /* the last byte of a too long sequence is overwritten until the sequence ends */
    e->n_keys -= e->n_keys == sizeof e->keys;
    e->keys[e->n_keys++] = byte;
    if (!is_whole(e->keys, e->n_keys))
        return LINE_MORE;
    struct str keys = {e->keys, e->n_keys};
    e->n_keys = 0;
    e->is_pasting = str_eq_c(keys, PASTE_BEGIN);
    e->was_return = false;
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
        if (str_eq_c(keys, sequences[i].bytes))
            press(e, sequences[i].key);
    return LINE_MORE;
}

/* Adds a byte of pasted text. All bytes are text, except the sequence that ends the paste. A
 * terminal sends CR at the end of a line. */
static void feed_pasted(struct line_edit *e, char byte)
{
    static const char end[] = PASTE_END;
    if (byte == end[e->n_keys]) {
        e->keys[e->n_keys++] = byte;
        if (e->n_keys == sizeof end - 1) {
            e->n_keys = 0;
            e->is_pasting = false;
        }
        return;
    }
    size_t n = e->n_keys;
    e->n_keys = 0;
    /* the bytes are not the end sequence, so they are text, except for ESC */
    for (size_t i = 0; i < n; i++)
        if (e->keys[i] != '\033')
            insert(e, &e->keys[i], 1);
    if (byte == '\033')
        e->keys[e->n_keys++] = byte;
    else if (byte == '\r' || (byte == '\n' && !e->was_return))
        insert(e, "\n", 1);
    else if ((unsigned char)byte >= ' ' ? byte != '\177' : byte == '\t')
        insert(e, &byte, 1);
    e->was_return = byte == '\r';
}

static enum line_event feed_control(struct line_edit *e, char byte)
{
    size_t at = e->at;
    switch (byte) {
    case '\r':
        return LINE_DONE;
    case '\n':
        press(e, KEY_NEW_LINE);
        break;
    case '\033':
        e->keys[0] = byte;
        e->n_keys = 1;
        break;
    case 3: /* code of Ctrl-C */
        return LINE_ABORT;
    case 4: /* code of Ctrl-D */
        if (e->text.len == 0)
            return LINE_END;
        press(e, KEY_DELETE);
        break;
    case 8:
    case 127:
        cut(e, left_of(e, at), at, false);
        break;
    case 1: /* codes of Ctrl-A, E, B, F, P, N */
        press(e, KEY_HOME);
        break;
    case 5:
        press(e, KEY_END);
        break;
    case 2:
        press(e, KEY_LEFT);
        break;
    case 6:
        press(e, KEY_RIGHT);
        break;
    case 16:
    case 14:
        go_line(e, byte == 16);
        break;
    case 11: /* codes of Ctrl-K, U, W, Y */
        cut(e, at, line_end(e, at), true);
        break;
    case 21:
        cut(e, line_begin(e, at), at, true);
        break;
    case 23:
        cut(e, word_left(e), at, true);
        break;
    case 25:
        insert(e, strbuf_str(&e->killed).ptr, e->killed.len);
        break;
    default: /* a tab becomes one space, since its width depends on the terminal */
        if (byte == '\t')
            insert(e, " ", 1);
    }
    return LINE_MORE;
}

enum line_event line_edit_feed(struct line_edit *e, char byte)
{
    if (e->is_pasting)
        feed_pasted(e, byte);
    else if (e->n_keys > 0)
        return feed_sequence(e, byte);
    else if ((unsigned char)byte < ' ' || byte == '\177')
        return feed_control(e, byte);
    else
        insert(e, &byte, 1);
    return LINE_MORE;
}

/* ---- drawing ---- */

/* Returns the number of columns of the character at s[0..n) and sets *n_bytes to its length. An
 * invalid byte counts as one "?". */
static size_t width_at(const char *s, size_t n, size_t *n_bytes)
{
    unsigned char c = (unsigned char)s[0];
    size_t want = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 0;
    wchar_t w = want == 1 ? c : c & (0x7F >> want);
    *n_bytes = 1;
    if (want == 0 || want > n || str_utf8_valid((struct str){s, want}) != want)
        return 1;
    for (size_t i = 1; i < want; i++)
        w = (w << 6) | (s[i] & 0x3F);
    *n_bytes = want;
    int columns = wcwidth(w);
    return columns < 0 ? 1 : (size_t)columns;
}

struct pen {
    size_t row, column, columns;
};

/* Draws one character. After a character in the last column, a terminal keeps its cursor there.
 * The next character moves the cursor to the next row. */
static void draw_char(struct pen *p, const char *s, size_t n, size_t width, struct strbuf *out)
{
    if (p->column + width > p->columns) {
        strbuf_append_c(out, "\r\n");
        p->row++;
        p->column = 0;
    }
    strbuf_append(out, s, n);
    p->column += width;
}

static void draw_text(const struct line_edit *e, struct pen *p, struct pen *cursor,
                      struct strbuf *out)
{
    for (size_t i = 0, n; i <= e->text.len; i += n) {
        if (i == e->at)
            *cursor = *p;
        n = 1;
        if (i == e->text.len)
            break;
        if (bytes(e)[i] == '\n') {
            strbuf_append_c(out, "\r\n");
            p->row++;
            p->column = 0;
            continue;
        }
        size_t width = width_at(bytes(e) + i, e->text.len - i, &n);
        bool is_bad = n == 1 && ((unsigned char)bytes(e)[i] >= 0x80 || bytes(e)[i] == '\t');
        draw_char(p, is_bad ? (bytes(e)[i] == '\t' ? " " : "?") : bytes(e) + i, n, width, out);
    }
}

void line_edit_draw(struct line_edit *e, const char *prompt, size_t columns, bool is_done,
                    struct strbuf *out)
{
    struct pen p = {.columns = columns > 8 ? columns : 8}, cursor;
    if (e->row > 0)
        strbuf_printf(out, "\033[%zuA", e->row);
    strbuf_append_c(out, "\r\033[J");
    for (const char *c = prompt; *c; c++)
        draw_char(&p, c, 1, 1, out);
    cursor = p;
    draw_text(e, &p, &cursor, out);
    if (is_done) {
        strbuf_append_c(out, "\r\n");
        e->row = 0;
        return;
    }
    /* a cursor behind the last column is drawn on the next row */
    if (cursor.column == p.columns) {
        cursor.row++;
        cursor.column = 0;
        if (cursor.row > p.row) {
            strbuf_append_c(out, "\r\n");
            p.row++;
        }
    }
    if (p.row > cursor.row)
        strbuf_printf(out, "\033[%zuA", p.row - cursor.row);
    strbuf_append_c(out, "\r");
    if (cursor.column > 0)
        strbuf_printf(out, "\033[%zuC", cursor.column);
    e->row = cursor.row;
}
