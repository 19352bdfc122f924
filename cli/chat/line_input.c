/* Reads texts from a person at a terminal, or lines from a pipe, and keeps the history in a
 * file.
 * `cox chat` calls `line_input_read`. On a terminal, that function switches to raw mode, passes
 * the bytes to line_edit.h, writes its output, and restores the terminal.
 * Invariants: the terminal's mode is restored before `line_input_read` returns. Only the owner
 * can read the history file, and the file's size is bounded. Only one thread calls these
 * functions. `struct line_input` owns text and history. */
#include "cli/chat/line_input.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/host/terminal_width.h"

enum { HISTORY_MAX_BYTES = 8 << 20 };

/* ---- the history's file ---- */

static char *history_path(const char *choice, const char *state_home, const char *home)
{
    char path[PATH_MAX];
    int n;
    if (choice && strcmp(choice, "off") == 0)
        return NULL;
    if (choice && choice[0] && strcmp(choice, "auto") != 0)
        return mem_strdup(choice);
    if (state_home && state_home[0] == '/')
        n = snprintf(path, sizeof path, "%s/coxswain/chat_history", state_home);
    else if (home && home[0] == '/')
        n = snprintf(path, sizeof path, "%s/.local/state/coxswain/chat_history", home);
    else
        return NULL;
    return n > 0 && n < PATH_MAX ? mem_strdup(path) : NULL;
}

/* Loads the history. Lines that are not JSON strings are skipped, since people may edit the
 * file. */
static void load_history(struct line_input *in)
{
    struct stat st;
    FILE *f = fopen(in->history_path, "re");
    if (!f)
        return;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= HISTORY_MAX_BYTES)
        while (getline(&in->line, &in->cap, f) > 0) {
            json_t *j = json_loads(in->line, JSON_DECODE_ANY, NULL);
            if (json_is_string(j))
                line_history_add(&in->history, str_from(json_string_value(j)));
            json_decref(j);
        }
    (void)fclose(f);
}

static void append_item(FILE *f, const char *item)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_json(&b, str_from(item));
    fprintf(f, "%s\n", strbuf_str(&b).ptr);
    strbuf_fini(&b);
}

/* Shortens a history file that is too long. The newest lines are copied to a new file, which
 * then replaces the old file. */
static void trim_history(const struct line_input *in)
{
    struct stat st;
    char fresh[PATH_MAX];
    int n = snprintf(fresh, sizeof fresh, "%s.new-%d", in->history_path, (int)getpid());
    if (n < 0 || n >= PATH_MAX || stat(in->history_path, &st) != 0 ||
        st.st_size <= HISTORY_MAX_BYTES / 2)
        return;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    for (size_t i = in->history.n_items / 2; f && i < in->history.n_items; i++)
        append_item(f, in->history.items[i]);
    if (f && fclose(f) == 0)
        (void)rename(fresh, in->history_path);
}

void line_input_remember(struct line_input *in, struct str text)
{
    size_t before = in->history.n_items;
    line_history_add(&in->history, text);
    if (!in->history_path || (in->history.n_items == before && before < LINE_HISTORY_MAX))
        return;
    for (char *c = in->history_path + 1; (c = strchr(c, '/')); c++) {
        *c = '\0';
        (void)mkdir(in->history_path, 0700);
        *c = '/';
    }
    int fd = open(in->history_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (f) {
        append_item(f, in->history.items[in->history.n_items - 1]);
        (void)fclose(f);
    }
    trim_history(in);
}

/* ---- the terminal ---- */

void line_input_open(struct line_input *in, const char *choice, const char *state_home,
                     const char *home)
{
    *in =
        (struct line_input){.is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1};
    line_edit_init(&in->edit, &in->history);
    if (!in->is_terminal)
        return;
    /* wcwidth needs a UTF-8 locale, since texts are always UTF-8 */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    in->history_path = history_path(choice, state_home, home);
    if (in->history_path)
        load_history(in);
}

void line_input_close(struct line_input *in)
{
    line_edit_fini(&in->edit);
    line_history_fini(&in->history);
    mem_free(in->history_path);
    free(in->line);
}

static size_t columns_of_terminal(void)
{
    unsigned n = terminal_width(STDERR_FILENO);
    return n > 0 ? n : 80;
}

static void draw(struct line_input *in, const char *prompt, bool is_done)
{
    struct strbuf out;
    strbuf_init(&out, 0);
    line_edit_draw(&in->edit, prompt, columns_of_terminal(), is_done, &out);
    (void)fwrite(out.ptr ? out.ptr : "", 1, out.len, stderr);
    (void)fflush(stderr);
    strbuf_fini(&out);
}

static bool has_more(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Reads keys until a text is complete. The text is drawn only when no more input is pending, so
 * a pasted text is drawn once. */
static enum line_event edit(struct line_input *in, const char *prompt)
{
    enum line_event event = LINE_MORE;
    line_edit_begin(&in->edit);
    draw(in, prompt, false);
    while (event == LINE_MORE) {
        char byte;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            return LINE_ABORT;
        if (n <= 0)
            return LINE_END;
        event = line_edit_feed(&in->edit, byte);
        if (event == LINE_MORE && !has_more())
            draw(in, prompt, false);
    }
    draw(in, prompt, true);
    return event;
}

static enum line_got read_terminal(struct line_input *in, const char *prompt, struct str *text)
{
    struct termios before, raw;
    if (tcgetattr(STDIN_FILENO, &before) != 0)
        return LINE_GOT_END;
    raw = before;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    /* TCSADRAIN keeps input that the user has typed ahead */
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fputs("\033[?2004h", stderr);
    enum line_event event = edit(in, prompt);
    fputs("\033[?2004l", stderr);
    (void)fflush(stderr);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    *text = strbuf_str(&in->edit.text);
    return event == LINE_DONE ? LINE_GOT_TEXT : event == LINE_ABORT ? LINE_GOT_ABORT : LINE_GOT_END;
}

enum line_got line_input_read(struct line_input *in, const char *prompt, struct str *text)
{
    if (in->is_terminal)
        return read_terminal(in, prompt, text);
    ssize_t n = getline(&in->line, &in->cap, stdin);
    if (n < 0)
        return LINE_GOT_END;
    if (n > 0 && in->line[n - 1] == '\n')
        in->line[--n] = '\0';
    *text = (struct str){in->line, (size_t)n};
    return LINE_GOT_TEXT;
}
