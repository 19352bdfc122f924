/* Draws the screen of `cox top` from answers of GET /api/status.
 * `cox top` adds each answer with `top_history_add` and calls `top_view_render`. The parts
 * append lines to a `struct screen`. `window` cuts the rows that fit the terminal.
 * Invariants: the JSON is not trusted (cli/view/answer.h). A line has at most `columns`
 * characters, and newlines and control characters within it are replaced. The history holds
 * TOP_SAMPLES values. The functions are pure. The caller owns all buffers. */
#include "cli/view/top_view.h"

#include <stdio.h>
#include <string.h>

#include "cli/view/answer.h"
#include "cli/view/status_view.h"

enum {
    COLUMNS_MIN = 40,
    COLUMNS_MAX = 400,
    NARROW = 86,        /* width in columns; a narrower table drops some of its columns */
    NARROW_TOKENS = 78, /* width in columns; on a narrower screen the counts take two lines */
    /* rows for the tables; when fewer rows are left, the lines above scroll too */
    TABLE_ROWS_MIN = 6,
    BAR_OF_REPLICA = 24,
    NARROW_BAR = 10,
    LINE_BYTES = 4 * COLUMNS_MAX,
    SHAPE_BYTES = 3 * COLUMNS_MAX
};

struct screen {
    struct strbuf *out;
    unsigned columns, rows, n; /* columns and rows of the terminal; n: number of lines so far */
    bool utf8;
};

/* Adds a line and cuts it at a whole character. A continuation byte has no width. Every other
 * byte counts as one column. */
static void add_line(struct screen *s, const char *text)
{
    if (s->rows > 0 && s->n + 1 >= s->rows) /* the last row stays empty */
        return;
    size_t from = s->out->len, i = 0;
    for (unsigned width = 0; text[i]; i++) {
        width += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (width > s->columns)
            break;
    }
    strbuf_append(s->out, text, i);
    for (size_t k = from; k < s->out->len; k++)
        if (s->out->ptr[k] == '\n')
            s->out->ptr[k] = '?';
    answer_hide_controls(s->out, from);
    strbuf_append_c(s->out, "\n");
    s->n++;
}

/* ---- bars and the curve ---- */

static double share(double used, double total)
{
    double x = total > 0 ? used / total : 0;
    return x > 1 ? 1 : x > 0 ? x : 0;
}

/* Draws a bar "[####----]" of `width` blocks, filled up to x (0 to 1). */
static void bar(const struct screen *s, double x, unsigned width, char *out, size_t size)
{
    unsigned full = (unsigned)(x * width + 0.5);
    size_t n = 0;
    for (unsigned i = 0; i < width && n + 4 < size; i++) {
        const char *c = s->utf8 ? (i < full ? "█" : "░") : (i < full ? "#" : "-");
        n += (size_t)snprintf(out + n, size - n, "%s", c);
    }
}

/* Draws the curve with the newest value on the right. */
static void curve(const struct screen *s, const struct top_history *h, unsigned width, char *out,
                  size_t size)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", ".", ".", "-", "-", "=", "=", "#"};
    unsigned first = h->n > width ? h->n - width : 0;
    double most = 0;
    size_t n = 0;
    for (unsigned i = first; i < h->n; i++)
        most = h->rates[i] > most ? h->rates[i] : most;
    out[0] = '\0';
    for (unsigned i = first; i < h->n && n + 4 < size; i++) {
        unsigned level = (unsigned)(share(h->rates[i], most) * 7 + 0.5);
        n += (size_t)snprintf(out + n, size - n, "%s", s->utf8 ? blocks[level] : ascii[level]);
    }
}

void top_history_add(struct top_history *h, const json_t *status)
{
    const json_t *t = json_object_get(status, "throughput");
    if (h->n == TOP_SAMPLES)
        memmove(h->rates, h->rates + 1, --h->n * sizeof h->rates[0]);
    h->rates[h->n++] = answer_number(t, "generation_tokens_per_s");
}

/* ---- parts ---- */

static void add_head(struct screen *s, const json_t *status)
{
    char line[LINE_BYTES];
    const json_t *model = json_object_get(status, "model");
    long long up = answer_integer(status, "uptime_s");
    snprintf(line, sizeof line, "cox top   model %.80s   %s%s   up %lldh%02lldm%02llds",
             answer_text(model, "name"),
             status_view_is_healthy(status)                     ? "healthy"
             : json_is_true(json_object_get(status, "resting")) ? "resting"
                                                                : "NOT HEALTHY",
             json_is_true(json_object_get(status, "draining")) ? ", DRAINING" : "", up / 3600,
             up / 60 % 60, up % 60);
    add_line(s, line);
}

static void add_tokens(struct screen *s, const json_t *status, const struct top_history *h)
{
    char line[LINE_BYTES], shape[SHAPE_BYTES];
    const json_t *t = json_object_get(status, "throughput");
    const json_t *r = json_object_get(status, "requests");
    int n = snprintf(line, sizeof line, "tokens/s  %.1f generated, %.1f of prompts",
                     answer_number(t, "generation_tokens_per_s"),
                     answer_number(t, "prompt_tokens_per_s"));
    if (s->columns < NARROW_TOKENS) {
        add_line(s, line);
        n = 0;
    }
    snprintf(line + n, sizeof line - (size_t)n, "%ssequences  %lld running, %lld waiting",
             n > 0 ? "   " : "", answer_integer(r, "running"), answer_integer(r, "waiting"));
    add_line(s, line);
    if (h->n > 1) {
        curve(s, h, s->columns - 10, shape, sizeof shape);
        snprintf(line, sizeof line, "          %s", shape);
        add_line(s, line);
    }
    snprintf(line, sizeof line,
             "so far    %lld finished, %lld failed, %lld cancelled, %lld preempted",
             answer_integer(r, "finished"), answer_integer(r, "failed"),
             answer_integer(r, "cancelled"), answer_integer(r, "preemptions"));
    add_line(s, line);
}

static void add_kv(struct screen *s, const json_t *status)
{
    char line[LINE_BYTES], shape[SHAPE_BYTES], hits[48];
    const json_t *kv = json_object_get(status, "kv");
    bool narrow = s->columns < NARROW_TOKENS;
    unsigned width = s->columns > 80 ? s->columns - 66 : narrow ? NARROW_BAR : 14;
    bar(s, share(answer_number(kv, "usage"), 1), width, shape, sizeof shape);
    snprintf(hits, sizeof hits, "prefix hits %.1f %%", 100 * answer_number(kv, "prefix_hit_rate"));
    snprintf(line, sizeof line, "KV        [%s] %5.1f %%  %lld/%lld blocks%s%s", shape,
             100 * answer_number(kv, "usage"), answer_integer(kv, "blocks_used"),
             answer_integer(kv, "blocks_total"), narrow ? "" : ", ", narrow ? "" : hits);
    add_line(s, line);
    if (narrow) {
        snprintf(line, sizeof line, "          %s", hits);
        add_line(s, line);
    }
}

static void add_replica(struct screen *s, const json_t *o)
{
    char line[LINE_BYTES], shape[8 * BAR_OF_REPLICA];
    double x = share(answer_number(o, "kv_blocks_used"), answer_number(o, "kv_blocks_total"));
    if (s->columns < NARROW) {
        bar(s, x, NARROW_BAR, shape, sizeof shape);
        snprintf(line, sizeof line, "%-7lld %-10.10s %8lld %8lld  [%s] %4.0f %%",
                 answer_integer(o, "id"), answer_text(o, "state"), answer_integer(o, "running"),
                 answer_integer(o, "waiting"), shape, 100 * x);
    } else {
        bar(s, x, BAR_OF_REPLICA, shape, sizeof shape);
        snprintf(line, sizeof line, "%-7lld %-10.10s %-8.8s %8lld %8lld  [%s] %4.0f %% %10lld",
                 answer_integer(o, "id"), answer_text(o, "state"), answer_text(o, "role"),
                 answer_integer(o, "running"), answer_integer(o, "waiting"), shape, 100 * x,
                 answer_integer(o, "recoveries"));
    }
    add_line(s, line);
}

static void add_replicas(struct screen *s, const json_t *status)
{
    char line[LINE_BYTES];
    const json_t *o;
    size_t i;
    if (s->columns < NARROW)
        snprintf(line, sizeof line, "%-7s %-10s %8s %8s  %s", "replica", "state", "running",
                 "waiting", "KV");
    else
        snprintf(line, sizeof line, "%-7s %-10s %-8s %8s %8s  %-*s %6s %10s", "replica", "state",
                 "role", "running", "waiting", BAR_OF_REPLICA + 2, "KV", "", "recoveries");
    add_line(s, "");
    add_line(s, line);
    json_array_foreach(json_object_get(status, "groups"), i, o) add_replica(s, o);
}

/* Formats a worker's name. A narrow screen shows its ordinal, which `cox drain` accepts too. */
static void worker_name(const struct screen *s, const json_t *o, char *out, size_t size)
{
    if (s->columns < NARROW && json_is_number(json_object_get(o, "ordinal")))
        snprintf(out, size, "worker-%lld", answer_integer(o, "ordinal"));
    else
        snprintf(out, size, "%.16s", answer_text(o, "instance"));
}

static void add_worker(struct screen *s, const json_t *o)
{
    const json_t *g = json_object_get(o, "gpu");
    char line[LINE_BYTES], name[40], state[40], replica[24] = "-", step[24] = "-", busy[16] = "-",
                                                memory[16] = "-", warm[16] = "-";
    bool is_slow = json_is_true(json_object_get(o, "straggler"));
    worker_name(s, o, name, sizeof name);
    answer_state(o, state, sizeof state);
    if (json_is_number(json_object_get(o, "group")))
        snprintf(replica, sizeof replica, "%lld", answer_integer(o, "group"));
    if (json_is_number(json_object_get(o, "own_step_s")))
        snprintf(step, sizeof step, "%.2f ms", 1e3 * answer_number(o, "own_step_s"));
    if (json_is_object(g)) {
        snprintf(busy, sizeof busy, "%.0f %%", 100 * answer_number(g, "utilization"));
        snprintf(memory, sizeof memory, "%.0f %%",
                 100 * share(answer_number(g, "memory_used_bytes"),
                             answer_number(g, "memory_total_bytes")));
        snprintf(warm, sizeof warm, "%.0f C", answer_number(g, "temperature_celsius"));
    }
    if (s->columns < NARROW)
        snprintf(line, sizeof line, "%-11.11s %-12.12s %-7.7s %9s %5s  %s%.80s", name, state,
                 replica, step, busy, is_slow ? "SLOW " : "", answer_text(o, "node"));
    else
        snprintf(line, sizeof line, "%-16.16s %-13.13s %-7.7s %9s %6s %9s %6s  %.80s%s", name,
                 state, replica, step, busy, memory, warm, answer_text(o, "node"),
                 is_slow ? "   SLOW" : "");
    add_line(s, line);
}

static void add_workers(struct screen *s, const json_t *status)
{
    char line[LINE_BYTES];
    const json_t *o;
    size_t i;
    if (s->columns < NARROW)
        snprintf(line, sizeof line, "%-11s %-12s %-7s %9s %5s  %s", "worker", "state", "replica",
                 "step", "GPU", "node");
    else
        snprintf(line, sizeof line, "%-16s %-13s %-7s %9s %6s %9s %6s  %s", "worker", "state",
                 "replica", "step", "GPU", "memory", "temp", "node");
    add_line(s, "");
    add_line(s, line);
    json_array_foreach(json_object_get(status, "workers"), i, o) add_worker(s, o);
}

static void add_warnings(struct screen *s, const json_t *status)
{
    char line[LINE_BYTES];
    const json_t *o;
    size_t i;
    json_array_foreach(json_object_get(status, "warnings"), i, o)
    {
        snprintf(line, sizeof line, "WARNING: %.1000s",
                 json_is_string(o) ? json_string_value(o) : "-");
        add_line(s, line);
    }
}

static struct screen screen_of(const struct top_shape *shape, struct strbuf *out)
{
    struct screen s = {.out = out, .rows = shape->rows, .utf8 = shape->utf8};
    s.columns = shape->columns < COLUMNS_MIN   ? COLUMNS_MIN
                : shape->columns > COLUMNS_MAX ? COLUMNS_MAX
                                               : shape->columns;
    return s;
}

/* Returns the length of the first line of `text`: up to a newline, or to the last space that
 * fits. */
static size_t line_bytes(const char *text, unsigned columns)
{
    size_t i = 0, blank = 0;
    for (unsigned width = 0; text[i] && text[i] != '\n'; i++) {
        if (text[i] == ' ')
            blank = i;
        width += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (width > columns)
            return blank > 0 ? blank : i;
    }
    return i;
}

void top_view_render_text(const char *text, const struct top_shape *shape, struct strbuf *out)
{
    struct screen s = screen_of(shape, out);
    while (*text) {
        char line[COLUMNS_MAX * 4 + 1];
        size_t n = line_bytes(text, s.columns);
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        add_line(&s, line);
        text += n;
        if (*text == ' ' || *text == '\n')
            text++;
    }
}

/* ---- the window ---- */

/* Returns the length of the first n lines in bytes. */
static size_t bytes_of_lines(const struct strbuf *b, unsigned n)
{
    size_t i = 0;
    for (; i < b->len && n > 0; i++)
        n -= b->ptr[i] == '\n';
    return i;
}

static void add_keys(struct screen *s, const struct top_shape *shape, unsigned first, unsigned last,
                     unsigned n)
{
    char line[LINE_BYTES], where[48] = "";
    if (last - first + 1 < n)
        snprintf(where, sizeof where, "  %u-%u/%u", first, last, n);
    snprintf(line, sizeof line, "q quit  %s  s sort: %s  r reverse%s%s",
             s->columns >= NARROW ? "arrows, PgUp, PgDn scroll" : "j/k scroll",
             status_order_name(shape->by), shape->reversed ? ": on" : "", where);
    add_line(s, line);
}

unsigned top_view_page(const struct top_shape *shape)
{
    return shape->rows > 2 * TABLE_ROWS_MIN ? shape->rows / 2 : TABLE_ROWS_MIN;
}

/* Copies the visible rows. `all` has every line; its first n_fixed lines do not scroll. */
static unsigned window(const struct strbuf *all, unsigned n, unsigned n_fixed,
                       const struct top_shape *shape, struct screen *s)
{
    /* number of rows above the line of keys */
    unsigned room = shape->rows > 1 ? shape->rows - 1 : 1;
    if (n_fixed + TABLE_ROWS_MIN > room)
        n_fixed = room > 1;
    unsigned n_rest = n - n_fixed, n_shown = room - n_fixed;
    unsigned most = n_rest > n_shown ? n_rest - n_shown : 0;
    unsigned scroll = shape->scroll < most ? shape->scroll : most;
    n_shown = n_shown < n_rest ? n_shown : n_rest;
    size_t fixed = bytes_of_lines(all, n_fixed), from = bytes_of_lines(all, n_fixed + scroll);
    size_t to = bytes_of_lines(all, n_fixed + scroll + n_shown);
    strbuf_append(s->out, all->ptr, fixed);
    strbuf_append(s->out, all->ptr + from, to - from);
    if (shape->rows > 1)
        add_keys(s, shape, scroll + 1, scroll + n_shown, n_rest);
    return most;
}

unsigned top_view_render(const json_t *status, const struct top_history *h,
                         const struct top_shape *shape, struct strbuf *out)
{
    struct screen s = screen_of(shape, out);
    struct strbuf all;
    unsigned most = 0;
    if (status_view_is_standby(status)) {
        struct strbuf text;
        strbuf_init(&text, 0);
        status_view_render_standby(status, &text);
        top_view_render_text(text.ptr, shape, out);
        strbuf_fini(&text);
        return 0;
    }
    strbuf_init(&all, 0);
    s.out = &all;
    s.rows = 0;
    add_head(&s, status);
    add_tokens(&s, status, h);
    add_kv(&s, status);
    add_warnings(&s, status);
    unsigned n_fixed = s.n;
    add_replicas(&s, status);
    add_workers(&s, status);
    s.out = out;
    if (shape->rows > 0)
        most = window(&all, s.n, n_fixed, shape, &s);
    else
        strbuf_append(out, all.ptr, all.len);
    strbuf_fini(&all);
    return most;
}
