/* Implements `cox top`, which shows the cluster every second. On a terminal, it shows one screen
 * that keys scroll and sort. Otherwise, it prints blocks of plain text.
 * `look` requests /api/status from the head, and cli/view/top_view.h draws the answer.
 * `wait_for_look` handles keys, resizes and signals until the next request.
 * Invariants: from the first answer to the end of the command, the terminal shows the alternate
 * screen, without echo and line mode. Every signal that ends or suspends the program only sets a
 * flag. The loop restores the terminal before it acts. The command runs in one thread. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/view/status_sort.h"
#include "cli/view/status_view.h"
#include "cli/view/top_view.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { PLAIN_COLUMNS = 120, ESCAPE_MS = 50 };

const struct option_spec top_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_BOOL(admin_access, once, "once", NULL,
             "Print one snapshot as text. The exit code is 1 when the cluster is not healthy."),
    OPT_FLOAT(admin_access, interval_s, "interval", 0.1, 3600, "1", "Seconds between two updates."),
};
const size_t top_n_specs = sizeof top_specs / sizeof top_specs[0];

struct top {
    struct admin_access o;
    struct top_history history;
    struct top_shape shape; /* scroll position and order */
    unsigned most;          /* largest useful scroll position on the last screen */
    json_t *status;         /* last answer; NULL = none, and `why` has the reason */
    char why[600];
    bool live, has_keys, is_raw;
    struct termios usual;
};

/* ---- the terminal ---- */

static volatile sig_atomic_t end_signal, suspend_wanted, resized;

static void on_end(int signum)
{
    end_signal = signum;
}

static void on_suspend(int signum)
{
    (void)signum;
    suspend_wanted = 1;
}

static void on_resize(int signum)
{
    (void)signum;
    resized = 1;
}

static void catch_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    /* SA_RESTART is not set, so that poll() returns */
    struct sigaction sa = {.sa_handler = on_end};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        (void)sigaction(ends[i], &sa, NULL);
    sa.sa_handler = on_suspend;
    (void)sigaction(SIGTSTP, &sa, NULL);
    sa.sa_handler = on_resize;
    (void)sigaction(SIGWINCH, &sa, NULL);
}

static void take_terminal(struct top *t)
{
    t->has_keys = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &t->usual) == 0;
    if (t->has_keys) {
        struct termios raw = t->usual;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        t->is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    /* lines do not wrap, so that a narrow terminal shows the left part of each line */
    fputs("\033[?1049h\033[?25l\033[?7l\033[2J", stdout);
    fflush(stdout);
}

static void give_terminal_back(const struct top *t)
{
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (t->is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &t->usual);
}

static void suspend(struct top *t)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    suspend_wanted = 0;
    give_terminal_back(t);
    (void)sigaction(SIGTSTP, &usual, NULL);
    (void)raise(SIGTSTP); /* raise() returns when the process is in the foreground again */
    catch_signals();
    take_terminal(t);
}

static void measure(struct top *t)
{
    struct winsize size;
    t->shape.columns = PLAIN_COLUMNS;
    t->shape.rows = 0;
    t->shape.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (t->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        t->shape.columns = size.ws_col;
        t->shape.rows = size.ws_row > 1 ? size.ws_row - 1u : 1;
    }
}

/* Writes the screen without flicker: new text overwrites the old text. Each line clears the rest
 * of its row, and the last line clears everything below. */
static void write_screen(const struct strbuf *text)
{
    fputs("\033[H", stdout);
    for (size_t i = 0; i < text->len; i++) {
        if (text->ptr[i] == '\n')
            fputs("\033[K", stdout);
        putchar(text->ptr[i]);
    }
    fputs("\033[J", stdout);
}

static void draw(struct top *t)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    measure(t);
    if (t->status) {
        status_sort(t->status, t->shape.by, t->shape.reversed);
        t->most = top_view_render(t->status, &t->history, &t->shape, &text);
        t->shape.scroll = t->shape.scroll < t->most ? t->shape.scroll : t->most;
    } else {
        top_view_render_text(t->why, &t->shape, &text);
    }
    if (t->live)
        write_screen(&text);
    else
        fwrite(text.ptr, 1, text.len, stdout);
    fflush(stdout);
    strbuf_fini(&text);
}

/* ---- looks ---- */

/* Requests the status once. Returns the exit code that the command has if it ends now. A head
 * that does not answer may answer the next request. */
static int look(struct top *t)
{
    struct error err = {0};
    json_decref(t->status);
    t->status = NULL;
    if (admin_call(&t->o, "GET", "/api/status", NULL, &t->status, &err) != STATUS_OK) {
        t->status = NULL;
        snprintf(t->why, sizeof t->why, "cox top: %s", err.text);
        return EXIT_UNREACHABLE;
    }
    top_history_add(&t->history, t->status);
    return status_view_is_fine(t->status) ? EXIT_FINE : EXIT_FAILED;
}

/* ---- keys ---- */

static void move(struct top *t, int lines)
{
    unsigned at = t->shape.scroll, by = (unsigned)(lines < 0 ? -lines : lines);
    if (lines < 0)
        t->shape.scroll = at > by ? at - by : 0;
    else
        t->shape.scroll = t->most - at > by ? at + by : t->most;
}

/* Handles an escape sequence. `keys` is the text behind ESC [: one letter for an arrow, or a
 * number and "~". */
static void on_escape(struct top *t, const char *keys)
{
    int page = (int)top_view_page(&t->shape);
    if (strcmp(keys, "A") == 0)
        move(t, -1);
    else if (strcmp(keys, "B") == 0)
        move(t, 1);
    else if (strcmp(keys, "5~") == 0)
        move(t, -page);
    else if (strcmp(keys, "6~") == 0)
        move(t, page);
    else if (strcmp(keys, "H") == 0 || strcmp(keys, "1~") == 0)
        t->shape.scroll = 0;
    else if (strcmp(keys, "F") == 0 || strcmp(keys, "4~") == 0)
        t->shape.scroll = t->most;
}

/* Reads one byte of input. Returns -1 when no byte arrives within wait_ms milliseconds. */
static int next_key(int wait_ms)
{
    unsigned char c;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, wait_ms) > 0 && read(STDIN_FILENO, &c, 1) == 1 ? c : -1;
}

/* Reads the rest of ESC [ or ESC O: bytes up to a letter or "~". */
static void read_escape(struct top *t)
{
    char keys[8];
    size_t n = 0;
    int c = next_key(ESCAPE_MS);
    if (c != '[' && c != 'O')
        return;
    while (n + 1 < sizeof keys && (c = next_key(ESCAPE_MS)) >= 0) {
        keys[n++] = (char)c;
        if (c == '~' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
            break;
    }
    keys[n] = '\0';
    on_escape(t, keys);
}

/* Handles one key. Returns false when the program should end. */
static bool on_key(struct top *t, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case 'j':
        move(t, 1);
        break;
    case 'k':
        move(t, -1);
        break;
    case ' ':
    case 'f':
        move(t, (int)top_view_page(&t->shape));
        break;
    case 'b':
        move(t, -(int)top_view_page(&t->shape));
        break;
    case 'g':
        t->shape.scroll = 0;
        break;
    case 'G':
        t->shape.scroll = t->most;
        break;
    case 's':
        t->shape.by = (t->shape.by + 1) % STATUS_ORDER_COUNT;
        break;
    case 'r':
        t->shape.reversed = !t->shape.reversed;
        break;
    case '\033':
        read_escape(t);
        break;
    default:
        break;
    }
    return true;
}

/* ---- the loop ---- */

static int ms_until(uint64_t when_ns)
{
    uint64_t now = clock_mono_ns();
    return when_ns > now ? (int)((when_ns - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

/* Handles keys, resizes and signals until the time of the next request. Returns false when the
 * program should end. */
static bool wait_for_look(struct top *t, uint64_t when_ns)
{
    while (!end_signal && !ferror(stdout)) {
        int wait_ms = ms_until(when_ns);
        struct pollfd p = {.fd = t->has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        int n = poll(&p, 1, wait_ms);
        if (n > 0 && (p.revents & POLLIN)) {
            int key = next_key(0);
            if (key < 0) /* the input has ended, so the terminal was closed */
                return false;
            if (!on_key(t, key))
                return false;
        } else if (n > 0) { /* the terminal has hung up */
            return false;
        }
        if (suspend_wanted)
            suspend(t);
        if (resized || n > 0) {
            resized = 0;
            draw(t);
        }
        if (n == 0 && ms_until(when_ns) == 0)
            return true;
    }
    return false;
}

static void run_live(struct top *t)
{
    catch_signals();
    take_terminal(t);
    for (;;) {
        draw(t);
        uint64_t next_ns = clock_mono_ns() + (uint64_t)(t->o.interval_s * 1e9);
        if (!wait_for_look(t, next_ns))
            break;
        if (look(t) == EXIT_UNREACHABLE)
            /* the standby may serve by now, so the next request goes to `address` again */
            t->o.followed[0] = '\0';
    }
    give_terminal_back(t);
}

static void run_plain(struct top *t)
{
    draw(t);
    while (!t->o.once && !ferror(stdout)) {
        usleep((useconds_t)(t->o.interval_s * 1e6));
        putchar('\n');
        if (look(t) == EXIT_UNREACHABLE) {
            fprintf(stderr, "%s\n", t->why);
            t->o.followed[0] = '\0';
        } else {
            draw(t);
        }
    }
}

static int run(struct top *t)
{
    /* the locale determines which characters the terminal can show */
    (void)setlocale(LC_CTYPE, "");
    if (!reach_head(&t->o, "top", false))
        return EXIT_UNREACHABLE;
    int code = look(t);
    if (code == EXIT_UNREACHABLE) {
        fprintf(stderr, "%s\n", t->why);
        return code;
    }
    t->live = isatty(STDOUT_FILENO) == 1 && !t->o.once;
    if (!t->live) {
        run_plain(t);
        return code;
    }
    run_live(t);
    if (end_signal) { /* this process ends by the same signal, so that its parent sees the cause */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        (void)sigaction(end_signal, &usual, NULL);
        (void)raise(end_signal);
    }
    return EXIT_FINE;
}

int cmd_top(int argc, char **argv)
{
    struct top *t = mem_zalloc(sizeof *t);
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox top [OPTION...]", .specs = top_specs, .n_specs = top_n_specs};
    if (command_parse(&line, argc, argv, &t->o, &res, &code))
        code = run(t);
    json_decref(t->status);
    mem_free(t);
    config_fini(&res);
    return code;
}
