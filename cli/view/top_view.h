#pragma once
/* Draws the screen of `cox top` from answers of GET /api/status. It shows tokens/s with a curve
 * of the last minutes, requests, KV bars of the cluster and of each replica, then workers. A
 * missing field is not an error. */
#include <jansson.h>

#include "cli/view/status_sort.h"
#include "common/base/str.h"

enum { TOP_SAMPLES = 120 };

struct top_history { /* Keeps the generated tokens per second, oldest first. */
    double rates[TOP_SAMPLES];
    unsigned n;
};

/* `top_shape` describes the size and form of the screen. With `utf8`, bars and curve are drawn
 * with block characters, otherwise with ASCII. */
struct top_shape {
    /* size of the terminal; rows 0 = all lines are drawn, except the line that shows the keys */
    unsigned columns, rows;
    bool utf8;
    unsigned scroll;      /* number of table rows that are scrolled off the top */
    enum status_order by; /* order of the workers; the table's header shows it */
    bool reversed;
};

void top_history_add(struct top_history *h, const json_t *status);
/* Renders lines of at most `columns` characters. With `rows` above 0, the first lines stay, the
 * tables scroll below them, and the last line shows the keys. Returns the largest useful
 * `scroll`. */
unsigned top_view_render(const json_t *status, const struct top_history *h,
                         const struct top_shape *shape, struct strbuf *out);
/* Returns the number of lines that a page key scrolls. */
unsigned top_view_page(const struct top_shape *shape);
/* Renders a sentence instead of the screen, in lines of at most `columns` characters, broken at
 * spaces. */
void top_view_render_text(const char *text, const struct top_shape *shape, struct strbuf *out);
