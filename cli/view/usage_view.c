/* Formats the answer of GET /api/usage as a table.
 * `cox usage` calls `usage_view_render` with parsed JSON.
 * Invariants: the JSON is not trusted. A field that is missing or of another type is shown as "-"
 * or 0 (cli/view/answer.h), and control characters as "?". The function is pure. The caller owns
 * JSON and buffer. */
#include "cli/view/usage_view.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/view/answer.h"

enum { NAME_WIDTH = 24 };

/* Writes a name from the answer, which must not begin a line. */
static void append_name(struct strbuf *b, struct str name)
{
    size_t from = b->len;
    strbuf_append_str(b, name);
    for (size_t i = from; i < b->len; i++)
        if ((unsigned char)b->ptr[i] < ' ' || b->ptr[i] == 0x7F)
            b->ptr[i] = '?';
}

/* Writes the tenant's name in a column of its own. A long name is cut at a character. */
static void render_name(const json_t *row, struct strbuf *b)
{
    const char *name = answer_text(row, "name");
    if (strcmp(name, "-") == 0)
        name = answer_text(row, "tenant");
    if (strcmp(name, "0000000000000000") == 0)
        name = "(no key)";
    struct str cut = str_from(name);
    int n = 0;
    const size_t most = (size_t)4 * NAME_WIDTH;
    if (cut.len > most)
        cut.len = most;
    cut.len = str_utf8_valid(cut);
    for (size_t i = 0; i < cut.len; i++) {
        n += ((unsigned char)cut.ptr[i] & 0xC0) != 0x80; /* characters begin here */
        if (n > NAME_WIDTH)
            cut.len = i;
    }
    append_name(b, cut);
    strbuf_printf(b, "%*s", n < NAME_WIDTH ? NAME_WIDTH - n : 0, "");
}

/* Writes the part of the step time as "12.5", or "-" before the first step. */
static void render_share(double step_ns, double total_ns, struct strbuf *b)
{
    if (total_ns > 0)
        strbuf_printf(b, " %7.1f\n", 100 * step_ns / total_ns);
    else
        strbuf_printf(b, " %7s\n", "-");
}

static void render_row(const json_t *row, double total_ns, struct strbuf *b)
{
    double step_ns = answer_number(row, "step_ns");
    strbuf_printf(b, " %10lld %14lld %14lld %14lld %14.1f %12.1f", answer_integer(row, "requests"),
                  answer_integer(row, "prompt_tokens"), answer_integer(row, "cached_tokens"),
                  answer_integer(row, "generated_tokens"), answer_number(row, "block_ms") / 1e3,
                  step_ns / 1e9);
    render_share(step_ns, total_ns, b);
}

void usage_view_render(const json_t *usage, struct strbuf *out)
{
    const json_t *totals = json_object_get(usage, "totals"), *row;
    double since_s = answer_number(usage, "since"), total_ns = answer_number(totals, "step_ns");
    time_t since = since_s > 0 && since_s < 1e11 ? (time_t)since_s : 0;
    char text[32] = "-";
    struct tm tm;
    size_t i;
    if (since > 0 && gmtime_r(&since, &tm))
        (void)!strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    strbuf_append_c(out, "model ");
    append_name(out, str_from(answer_text(usage, "model")));
    strbuf_printf(out, "   since %s\n", text);
    strbuf_printf(out, "%-*s %10s %14s %14s %14s %14s %12s %7s\n", NAME_WIDTH, "key", "requests",
                  "prompt tokens", "cached tokens", "generated", "block seconds", "step seconds",
                  "step %");
    strbuf_printf(out, "%-*s", NAME_WIDTH, "TOTAL");
    render_row(totals, total_ns, out);
    json_array_foreach(json_object_get(usage, "tenants"), i, row)
    {
        render_name(row, out);
        render_row(row, total_ns, out);
    }
}
