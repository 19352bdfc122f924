/* Formats what `cox up` prints while it starts: a line of progress, and a summary when the
 * cluster serves.
 * cluster.c calls `up_ready_plain` for the log and `up_ready_frame` for a terminal; probe.c
 * calls `up_ready_progress`.
 * Invariants: the head's status comes from another process, so names in it are cut and control
 * characters are replaced. The frame is never wider than the given columns. Long values are
 * broken at spaces. The functions are pure. The caller owns the buffers. */
#include "cli/up/ready.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/plural.h"
#include "cli/view/answer.h"

enum { LABEL_WIDTH = 10, VALUE_BYTES = 600, ROWS_MAX = 16, COLUMNS_MIN = 40, COLUMNS_MAX = 100 };

/* ---- the commands ---- */

/* Appends the start of a curl command: its options, then the URL up to the path. */
static void curl_begin(const struct up_ready *r, struct strbuf *out)
{
    strbuf_printf(out, "%s%s", r->wants_ca ? "--cacert YOUR-CA.pem " : "",
                  r->wants_certificate ? "--cert YOUR.pem --key YOUR.key " : "");
    if (r->uds)
        strbuf_printf(out, "--unix-socket %s ", r->uds);
    strbuf_append_c(out, r->url);
}

static const char *key_header(const struct up_ready *r)
{
    return r->has_key ? "-H 'Authorization: Bearer YOUR-KEY' " : "";
}

void up_ready_plain(const struct up_ready *r, struct strbuf *out)
{
    strbuf_printf(out, "ready in %llu ms\ncurl:      curl -N ", (unsigned long long)r->took_ms);
    curl_begin(r, out);
    strbuf_printf(out,
                  "/v1/completions %s-H 'Content-Type: application/json' -d "
                  "'{\"model\":\"%s\",\"prompt\":\"Once upon a time\",\"max_tokens\":32,"
                  "\"stream\":true}'\n",
                  key_header(r), r->model);
    if (!r->uds)
        strbuf_printf(out,
                      "python:    python3 -c 'import openai; "
                      "c = openai.OpenAI(base_url=\"%s/v1\", api_key=\"%s\"); "
                      "print(c.completions.create(model=\"%s\", prompt=\"Once upon a "
                      "time\").choices[0].text)'\n",
                      r->url, r->has_key ? "YOUR-KEY" : "none", r->model);
    if (r->has_chat_page && !r->uds && !r->wants_certificate)
        strbuf_printf(out, "chat page: %s/\n", r->url);
    strbuf_printf(out, "dashboard: http://%s/   (or: cox status%s%s)\n", r->admin,
                  r->is_usual_admin ? "" : " --address ", r->is_usual_admin ? "" : r->admin);
}

/* ---- the frame ---- */

struct row {
    char label[LABEL_WIDTH + 2], value[VALUE_BYTES];
};

struct rows {
    struct row all[ROWS_MAX];
    size_t n;
};

static void add(struct rows *rows, const char *label, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void add(struct rows *rows, const char *label, const char *fmt, ...)
{
    va_list ap;
    if (rows->n == ROWS_MAX)
        return;
    struct row *row = &rows->all[rows->n++];
    snprintf(row->label, sizeof row->label, "%s", label);
    va_start(ap, fmt);
    vsnprintf(row->value, sizeof row->value, fmt, ap);
    va_end(ap);
    /* control characters are replaced, since names of files and hardware are printed on a
     * terminal */
    for (char *c = row->value; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
}

/* Formats the devices: "4 x NVIDIA H200". Several kinds are separated by commas. */
static void device_text(const json_t *status, char *out, size_t size)
{
    const json_t *workers = json_object_get(status, "workers"), *w;
    const char *names[4] = {0};
    size_t n_of[4] = {0}, n = 0, i, k, used = 0;
    out[0] = '\0';
    json_array_foreach(workers, i, w)
    {
        const char *device = answer_text(w, "device"), *name = answer_text(w, "device_name");
        if (strcmp(device, "null") == 0)
            name = "none: the null device makes up tokens";
        for (k = 0; k < n && strcmp(names[k], name) != 0; k++)
            ;
        if (k == sizeof names / sizeof names[0])
            continue;
        n = k == n ? n + 1 : n;
        names[k] = name;
        /* all CPU ranks share the machine's CPU, so the CPU counts once */
        n_of[k] = strcmp(device, "cuda") == 0 ? n_of[k] + 1 : 1;
    }
    for (k = 0; k < n && used < size; k++) {
        char count[24] = "";
        if (n_of[k] > 1)
            snprintf(count, sizeof count, "%zu x ", n_of[k]);
        used +=
            (size_t)snprintf(out + used, size - used, "%s%s%.120s", k ? ", " : "", count, names[k]);
    }
}

static void add_workers(const struct up_ready *r, struct rows *rows)
{
    uint32_t n_spare = r->n_workers - r->n_replicas * r->replica_ranks;
    char spare[48] = "";
    if (r->models) { /* on-demand models may have no workers yet */
        if (r->n_workers > 0)
            add(rows, "Workers", "%u", r->n_workers);
        return;
    }
    if (r->n_replicas == 0) {
        add(rows, "Workers", "%u here, with workers of other machines: %u ranks a replica",
            r->n_workers, r->replica_ranks);
        return;
    }
    if (n_spare > 0)
        snprintf(spare, sizeof spare, ", %u spare", n_spare);
    if (r->replica_ranks > 1)
        add(rows, "Workers", "%u: %u replica%s of %u ranks%s", r->n_workers, r->n_replicas,
            plural(r->n_replicas), r->replica_ranks, spare);
    else
        add(rows, "Workers", "%u: %u replica%s%s", r->n_workers, r->n_replicas,
            plural(r->n_replicas), spare);
    if (r->n_gateways > 1)
        add(rows, "Gateways", "%u, at ports that count up", r->n_gateways);
}

static void add_commands(const struct up_ready *r, struct rows *rows)
{
    const char *name = r->is_only ? "" : r->name, *blank = r->is_only ? "" : " ";
    if (r->is_usual_admin && r->pid > 0)
        add(rows, "Look", "cox status, cox top");
    else if (r->is_usual_admin)
        add(rows, "Look", "cox status, cox top, cox logs%s%s", blank, name);
    else
        add(rows, "Look", "cox status --address %s", r->admin);
    if (r->log_file)
        add(rows, "Log", "%s", r->log_file);
    if (r->pid > 0) {
        add(rows, "Stop", r->log_file ? "kill %lld" : "Ctrl-C, or kill %lld", r->pid);
    } else if (r->log_file) {
        add(rows, "Stop", "cox stop%s%s", blank, name);
    } else {
        add(rows, "Stop", "Ctrl-C, or cox stop%s%s", blank, name);
    }
}

static void make_rows(const struct up_ready *r, struct rows *rows)
{
    char device[300];
    device_text(r->status, device, sizeof device);
    if (r->uds) {
        add(rows, "Socket", "%s", r->uds);
    } else {
        add(rows, "API", "%s/v1", r->url);
        if (r->has_chat_page && !r->wants_certificate)
            add(rows, "Chat page", "%s/", r->url);
    }
    add(rows, "Dashboard", "http://%s/", r->admin);
    add(rows, r->models ? "Models" : "Model", "%s", r->models ? r->models : r->model);
    if (device[0])
        add(rows, "Device", "%s", device);
    add_workers(r, rows);
    add_commands(r, rows);
}

static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Returns how many bytes of `text` fit into `columns` characters. The text is broken at a space
 * if its second half has one. */
static size_t piece_of(const char *text, size_t columns)
{
    size_t i = 0, blank = 0, width = 0;
    for (; text[i]; i++) {
        bool begins = ((unsigned char)text[i] & 0xC0) != 0x80;
        if (begins && width == columns)
            return blank > i / 2 ? blank : i;
        width += begins;
        if (text[i] == ' ')
            blank = i;
    }
    return i;
}

struct frame_marks {
    const char *corners[4], *across, *down;
};

static void append_edge(const struct frame_marks *m, unsigned which, const char *title,
                        size_t inner, struct strbuf *out)
{
    size_t n = title ? width_of(title) + 3 : 0;
    strbuf_append_c(out, m->corners[which]);
    if (title)
        strbuf_printf(out, "%s %s ", m->across, title);
    for (; n < inner; n++)
        strbuf_append_c(out, m->across);
    strbuf_printf(out, "%s\n", m->corners[which + 1]);
}

static void append_row(const struct frame_marks *m, const struct row *row, size_t inner,
                       struct strbuf *out)
{
    const char *text = row->value, *label = row->label;
    size_t room = inner - LABEL_WIDTH - 3;
    do {
        size_t n = piece_of(text, room), width = 0;
        for (size_t i = 0; i < n; i++)
            width += ((unsigned char)text[i] & 0xC0) != 0x80;
        strbuf_printf(out, "%s %-*s %.*s%*s %s\n", m->down, LABEL_WIDTH, label, (int)n, text,
                      (int)(room - width), "", m->down);
        text += n + (text[n] == ' ');
        label = "";
    } while (*text);
}

void up_ready_frame(const struct up_ready *r, unsigned columns, bool utf8, struct strbuf *out)
{
    static const struct frame_marks lines = {{"┌", "┐", "└", "┘"}, "─", "│"};
    static const struct frame_marks ascii = {{"+", "+", "+", "+"}, "-", "|"};
    const struct frame_marks *m = utf8 ? &lines : &ascii;
    struct rows rows = {.n = 0};
    char title[80];
    size_t widest = 0, room;
    make_rows(r, &rows);
    snprintf(title, sizeof title, "Coxswain is ready after %.1f s", (double)r->took_ms / 1000);
    columns = columns < COLUMNS_MIN ? COLUMNS_MIN : columns > COLUMNS_MAX ? COLUMNS_MAX : columns;
    for (size_t i = 0; i < rows.n; i++) {
        size_t n = width_of(rows.all[i].value);
        widest = n > widest ? n : widest;
    }
    room = widest + LABEL_WIDTH + 3;
    room = room < width_of(title) + 4 ? width_of(title) + 4 : room;
    room = room > columns - 2 ? columns - 2 : room;
    append_edge(m, 0, title, room, out);
    for (size_t i = 0; i < rows.n; i++)
        append_row(m, &rows.all[i], room, out);
    append_edge(m, 2, NULL, room, out);
    strbuf_append_c(out, "curl ");
    curl_begin(r, out);
    strbuf_printf(out, "/v1/completions %s-d '{\"model\":\"%s\",\"prompt\":\"Hello\"}'\n",
                  key_header(r), r->model);
}

/* ---- progress ---- */

void up_ready_progress(const json_t *status, uint32_t n_workers, uint32_t replica_ranks,
                       uint64_t since_ms, char *out, size_t size)
{
    const json_t *workers = json_object_get(status, "workers"), *w;
    size_t i, n_ready = 0, n_loading = 0;
    double loaded = 0;
    json_array_foreach(workers, i, w)
    {
        const json_t *share = json_object_get(w, "loaded");
        n_ready += answer_state_is(w, "ready");
        n_loading += json_is_number(share);
        loaded += json_is_number(share) ? json_number_value(share) : 0;
    }
    unsigned long long s = since_ms / 1000;
    if (n_loading > 0)
        snprintf(out, size, "Loading weights: %.0f %%, %zu of %u worker%s ready, %llu s",
                 100 * loaded / (double)n_loading, n_ready, n_workers, plural(n_workers), s);
    else if (json_array_size(workers) < n_workers)
        snprintf(out, size, "Starting: %zu of %u worker%s connected, %llu s",
                 json_array_size(workers), n_workers, plural(n_workers), s);
    else if (json_array_size(workers) < replica_ranks)
        snprintf(out, size, "Waiting for other machines: %zu of %u ranks connected, %llu s",
                 json_array_size(workers), replica_ranks, s);
    else
        snprintf(out, size, "Starting: %zu of %u worker%s ready, %llu s", n_ready, n_workers,
                 plural(n_workers), s);
}
