/* `cox top`: the cluster every second, on one screen; plain blocks of text where there is no
 * terminal. */
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/status_view.h"
#include "cli/top_view.h"
#include "common/base/mem.h"

enum { EXIT_UNREACHABLE = 2, PLAIN_COLUMNS = 120 };

const struct option_spec top_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_BOOL(admin_access, once, "once", NULL, "one look, as text; exit code 1 when not healthy"),
    OPT_FLOAT(admin_access, interval_s, "interval", 0.1, 3600, "1", "seconds between two looks"),
};
const size_t top_n_specs = sizeof top_specs / sizeof top_specs[0];

static struct top_shape shape_of(bool on_terminal)
{
    struct winsize size;
    struct top_shape shape = {.columns = PLAIN_COLUMNS,
                              .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    if (on_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        shape.columns = size.ws_col;
        shape.rows = size.ws_row > 1 ? size.ws_row - 1u : 0;
    }
    return shape;
}

/* Without flicker: what was there is written over; each line wipes what is right of it, the last
 * one what is below. */
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

/* One look. Who does not answer is said in a line, and may be there at the next one. */
static int look(const struct admin_access *o, bool live, struct top_history *h)
{
    struct error err = {0};
    json_t *answer;
    struct strbuf text;
    int code = EXIT_UNREACHABLE;
    enum status s = admin_call(o, "GET", "/api/status", NULL, &answer, &err);
    if (s != STATUS_OK && !live) {
        fprintf(stderr, "cox top: %s\n", err.text);
        return code;
    }
    strbuf_init(&text, 0);
    if (s == STATUS_OK) {
        const struct top_shape shape = shape_of(live);
        top_history_add(h, answer);
        top_view_render(answer, h, &shape, &text);
        code = status_view_is_fine(answer) ? EXIT_FINE : EXIT_FAILED;
    } else {
        const struct top_shape shape = shape_of(live);
        char line[sizeof err.text + 16];
        snprintf(line, sizeof line, "cox top: %s", err.text);
        top_view_render_text(line, &shape, &text);
    }
    if (live)
        write_screen(&text);
    else
        fwrite(text.ptr, 1, text.len, stdout);
    fflush(stdout);
    strbuf_fini(&text);
    json_decref(answer);
    return code;
}

int cmd_top(int argc, char **argv)
{
    struct admin_access o = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox top [OPTION...]", .specs = top_specs, .n_specs = top_n_specs};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        struct top_history *h = mem_zalloc(sizeof *h);
        bool on_terminal = isatty(STDOUT_FILENO) == 1 && !o.once;
        (void)setlocale(LC_CTYPE, ""); /* for what the terminal can show */
        code = admin_follow(&o, "top", false) ? look(&o, false, h) : EXIT_UNREACHABLE;
        bool goes_on = !o.once && code != EXIT_UNREACHABLE;
        if (on_terminal && goes_on)
            fputs("\033[2J", stdout);
        while (goes_on && !ferror(stdout)) {
            usleep((useconds_t)(o.interval_s * 1e6));
            if (!on_terminal)
                putchar('\n');
            if (look(&o, on_terminal, h) == EXIT_UNREACHABLE)
                o.followed[0] = '\0'; /* the one that waited may serve by now */
        }
        mem_free(h);
    }
    config_fini(&res);
    return code;
}
