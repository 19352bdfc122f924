#include "cli/view/status_paint.h"

#include <string.h>
#include <unistd.h>

#define BOLD   "\033[1m"
#define RED    "\033[1;31m"
#define GREEN  "\033[1;32m"
#define YELLOW "\033[33m"
#define END    "\033[0m"

/* `rules` lists the rules for colours. A line that begins with `begin` and contains `has` is
 * printed in `color`. The first matching rule applies. */
static const struct {
    const char *begin, *has, *color;
} rules[] = {
    {"=====", "NOT HEALTHY", RED},
    {"=====", ": healthy", GREEN},
    {"=====", "", YELLOW}, /* the cluster is idle, or the head is a standby */
    {"WARNING:", "", YELLOW},
    {"Node status", "", BOLD},
    {"Active:", "", BOLD},
    {"Pending:", "", BOLD},
    {"Recent failures:", "", BOLD},
    {"Usage", "", BOLD},
    {"Demands", "", BOLD},
    {"Throughput", "", BOLD},
    {"replica ", "epoch", BOLD},
    {"worker  ", "ordinal", BOLD},
    {"device of worker", "", BOLD},
    {"gateway  ", "requests", BOLD},
    {"", " suspect ", RED},
    {"", " aborting ", RED},
    {"", " draining ", YELLOW},
    {"", " forming ", YELLOW},
    {"", " loading ", YELLOW},
    /* "waiting" is a replica's state; the two spaces exclude the count "1 waiting" */
    {"", " waiting  ", YELLOW},
};

bool status_paint_wanted(int fd, const char *no_color, const char *term)
{
    return isatty(fd) == 1 && !(no_color && no_color[0]) && !(term && strcmp(term, "dumb") == 0);
}

static bool line_has(struct str line, const char *what)
{
    size_t n = strlen(what);
    return n == 0 || memmem(line.ptr, line.len, what, n) != NULL;
}

static const char *color_of(struct str line)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        size_t n = strlen(rules[i].begin);
        if (line.len >= n && memcmp(line.ptr, rules[i].begin, n) == 0 &&
            line_has(line, rules[i].has))
            return rules[i].color;
    }
    return NULL;
}

void status_paint(struct str plain, struct strbuf *out)
{
    while (plain.len > 0) {
        const char *end = memchr(plain.ptr, '\n', plain.len);
        struct str line = {plain.ptr, end ? (size_t)(end - plain.ptr) : plain.len};
        const char *color = line.len > 0 ? color_of(line) : NULL;
        if (color)
            strbuf_append_c(out, color);
        strbuf_append_str(out, line);
        if (color)
            strbuf_append_c(out, END);
        if (end)
            strbuf_append_c(out, "\n");
        plain.ptr += line.len + (end != NULL);
        plain.len -= line.len + (end != NULL);
    }
}
