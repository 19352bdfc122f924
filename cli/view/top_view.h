#pragma once
/* The screen of `cox top` from answers of GET /api/status: tokens/s with their last minutes,
 * requests, KV bars of the cluster and of each replica, then workers. Tolerant as the view of `cox
 * status`. */
#include <jansson.h>

#include "cli/view/status_sort.h"
#include "common/base/str.h"

enum { TOP_SAMPLES = 120 };

struct top_history { /* tokens generated per second, oldest first */
    double rates[TOP_SAMPLES];
    unsigned n;
};

/* utf8: bars and the curve in blocks, else in ASCII. */
struct top_shape {
    unsigned columns, rows; /* rows 0: all of it, however long, without the line of keys */
    bool utf8;
    unsigned scroll;      /* lines of the tables that are above the window */
    enum status_order by; /* the order that the workers are in, to be said */
    bool reversed;
};

void top_history_add(struct top_history *h, const json_t *status);
/* Lines of at most columns characters. On rows the first ones stay, the tables scroll below them,
 * and the last one says the keys. Returns the largest scroll that shows anything new. */
unsigned top_view_render(const json_t *status, const struct top_history *h,
                         const struct top_shape *shape, struct strbuf *out);
/* Lines that a key of paging moves by in such a window. */
unsigned top_view_page(const struct top_shape *shape);
/* A sentence in place of it, in lines of at most columns characters, broken at blanks. */
void top_view_render_text(const char *text, const struct top_shape *shape, struct strbuf *out);
