/* Shows the short form of the log on a terminal: one line of progress below all other lines.
 * cluster.c passes each line of a process to `up_screen_line` and the start's progress to
 * `up_screen_progress`.
 * Invariants: any other text first erases the line of progress, and the next change draws that
 * line again. Each write is one write(2) of complete lines. The line of progress is never wider
 * than the screen. Control characters in the text of processes are replaced. Only the loop
 * thread calls these functions. */
#include "cli/up/screen.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/host/terminal_width.h"

enum {
    START_S = 10,
    PLAIN_COLUMNS = 80,
    PLAIN_EVERY_S = 5,
    NAME_WIDTH = 10,
    LINE_SHOWN = 4000,
    TIME_CHARS = 24
};

struct up_screen {
    struct up_screen_options o;
    char progress[512];
    bool is_drawn;
    uint64_t said_ns; /* time of the last progress that was printed as a line */
    uint64_t begin_ns;
};

static void write_all(int fd, const char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t w = write(fd, bytes + done, n - done);
        if (w < 0 && errno != EINTR)
            return; /* the terminal or pipe is closed; the cluster continues */
        done += w > 0 ? (size_t)w : 0;
    }
}

struct up_screen_options up_screen_of_stderr(bool color)
{
    const char *term = getenv("TERM");
    bool is_terminal = isatty(STDERR_FILENO) == 1;
    (void)setlocale(LC_CTYPE, "");
    return (struct up_screen_options){
        .fd = STDERR_FILENO,
        .in_place = is_terminal && term && strcmp(term, "dumb") != 0,
        .color = color,
        .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
        .columns = is_terminal ? 0 : PLAIN_COLUMNS,
    };
}

struct up_screen *up_screen_new(const struct up_screen_options *o)
{
    struct up_screen *s = mem_zalloc(sizeof *s);
    s->o = *o;
    s->begin_ns = clock_mono_ns();
    return s;
}

unsigned up_screen_width(const struct up_screen_options *o)
{
    unsigned n = o->columns > 0 ? o->columns : terminal_width(o->fd);
    return n > 0 ? n : PLAIN_COLUMNS;
}

unsigned up_screen_columns(const struct up_screen *s)
{
    return up_screen_width(&s->o);
}

bool up_screen_is_utf8(const struct up_screen *s)
{
    return s->o.utf8;
}

/* Returns how many bytes of `text` fit into the width. A line that wraps could not be redrawn in
 * place. */
static size_t bytes_of(const char *text, unsigned columns)
{
    size_t i = 0;
    for (unsigned width = 0; text[i]; i++) {
        width += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (width >= columns)
            break;
    }
    return i;
}

void up_screen_print(struct up_screen *s, const char *text)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    if (s->is_drawn)
        strbuf_append_c(&b, "\r\033[K");
    s->is_drawn = false;
    strbuf_append_c(&b, text);
    write_all(s->o.fd, b.ptr ? b.ptr : "", b.len);
    strbuf_fini(&b);
}

void up_screen_progress(struct up_screen *s, const char *text)
{
    struct strbuf b;
    if (!s->o.in_place) {
        uint64_t now = clock_mono_ns();
        if (text[0] == '\0' || strcmp(text, s->progress) == 0 ||
            (s->said_ns > 0 && now - s->said_ns < PLAIN_EVERY_S * NS_PER_S))
            return;
        s->said_ns = now;
    }
    snprintf(s->progress, sizeof s->progress, "%s", text);
    strbuf_init(&b, 0);
    if (!s->o.in_place)
        strbuf_printf(&b, "%s\n", text);
    else if (text[0])
        strbuf_printf(&b, "\r%.*s\033[K", (int)bytes_of(text, up_screen_columns(s)), text);
    else if (s->is_drawn)
        strbuf_append_c(&b, "\r\033[K");
    s->is_drawn = s->o.in_place && text[0];
    write_all(s->o.fd, b.ptr ? b.ptr : "", b.len);
    strbuf_fini(&b);
}

/* Returns the level of a JSON line. JSON lines are shown unchanged. */
static int level_of_json(const char *line, size_t n)
{
    static const char *const levels[] = {"\"level\":\"debug\"", "\"level\":\"info\"",
                                         "\"level\":\"warn\"", "\"level\":\"error\""};
    for (int i = 0; i < LOG_LEVEL_COUNT; i++)
        if (memmem(line, n, levels[i], strlen(levels[i])))
            return i;
    return -1;
}

int up_screen_level(const char *line, size_t n, size_t *text)
{
    static const char *const names[] = {"debug ", "info ", "warn ", "error "};
    *text = 0;
    if (n > 0 && line[0] == '{')
        return level_of_json(line, n);
    if (n < TIME_CHARS + 2 || line[4] != '-' || line[10] != 'T' || line[TIME_CHARS - 1] != 'Z' ||
        line[TIME_CHARS] != ' ')
        return -1;
    const char *at = line + TIME_CHARS + 1, *end = line + n;
    for (int i = 0; i < LOG_LEVEL_COUNT; i++) {
        size_t len = strlen(names[i]);
        if ((size_t)(end - at) < len || memcmp(at, names[i], len) != 0)
            continue;
        for (at += len; at < end && *at == ' '; at++)
            ;
        /* the loop skips the process's name, which is printed in front */
        while (at < end && *at != ' ')
            at++;
        *text = (size_t)(at - line) + (at < end);
        return i;
    }
    return -1;
}

/* Appends a text that a process wrote, with control characters replaced for the terminal. */
static void append_visible(struct strbuf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        strbuf_append(b, c < 0x20 || c == 0x7F ? "?" : text + i, 1);
    }
}

/* Returns true for "head_unreachable" in the first seconds. All processes start at once, so a
 * process that is ready before the head warns that the head is unreachable. If the head stays
 * unreachable, the line of progress shows that. */
static bool is_of_a_start(const struct up_screen *s, const char *event, size_t n)
{
    static const char name[] = "head_unreachable ";
    return n > sizeof name && memcmp(event, name, sizeof name - 1) == 0 &&
           clock_mono_ns() - s->begin_ns < START_S * NS_PER_S;
}

void up_screen_line(struct up_screen *s, const char *name, const char *line, size_t n,
                    bool is_stderr)
{
    static const char *const colors[] = {"", "", "\033[33m", "\033[1;31m"};
    static const char *const words[] = {"", "", "warning: ", "error: "};
    size_t from = 0;
    int level = up_screen_level(line, n, &from);
    if ((level < 0 && !is_stderr) || (level >= 0 && level < LOG_WARN))
        return;
    if (is_of_a_start(s, line + from, n - from))
        return;
    struct strbuf b;
    strbuf_init(&b, 0);
    bool paints = s->o.color && level >= LOG_WARN;
    size_t len = n - from < LINE_SHOWN ? n - from : LINE_SHOWN;
    strbuf_printf(&b, "%s%-*s | %s", paints ? colors[level] : "", NAME_WIDTH, name,
                  level >= 0 ? words[level] : "");
    append_visible(&b, line + from, len);
    strbuf_append_c(&b, paints ? "\033[0m\n" : "\n");
    up_screen_print(s, b.ptr);
    strbuf_fini(&b);
}

void up_screen_free(struct up_screen *s)
{
    if (!s)
        return;
    up_screen_progress(s, "");
    mem_free(s);
}
