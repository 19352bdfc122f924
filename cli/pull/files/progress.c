/* Shows the progress of a pull on stderr: a bar on a terminal, otherwise a line every five
 * seconds.
 * Threads of parallel.c call `pull_progress_add`. Every call may draw when enough time has
 * passed. `pull_progress_bar` makes the bar's text.
 * Invariants: `mutex` guards `struct pull_progress`; start and clear are called while no other
 * thread uses it. The bar is never wider than the terminal at the time of drawing. Names are
 * borrowed. */
#include "cli/pull/files/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/host/terminal_width.h"

enum {
    CELLS_MIN = 10,
    CELLS_MAX = 24,
    PERCENT = 5 /* width of "100 %" in columns */,
    NAME_MIN_SHOWN = 12,
    NAME_MAX_SHOWN = 40
};
#define EVERY_BAR_NS  (100 * NS_PER_MS)
#define EVERY_LINE_NS (5000 * NS_PER_MS)

const char *pull_bytes_text(char *out, size_t size, uint64_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    size_t i = 0;
    for (; v >= 1024 && i < 4; i++)
        v /= 1024;
    snprintf(out, size, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
    return out;
}

void pull_progress_start(struct pull_progress *p, const char *command, bool quiet, uint64_t done,
                         uint64_t total)
{
    uint64_t now = clock_mono_ns();
    *p = (struct pull_progress){.quiet = quiet,
                                .is_terminal = isatty(STDERR_FILENO) == 1 && !log_is_json(),
                                .command = command ? command : "pull",
                                .name = "",
                                .done = done,
                                .total = total,
                                .begin_ns = now,
                                .said_ns = now};
    (void)pthread_mutex_init(&p->mutex, NULL);
}

/* ---- the bar ---- */

/* Returns the number of bytes of the character at `s`. *columns is 2 for every non-ASCII
 * character, since some of them are two columns wide. */
static size_t char_at(const char *s, size_t *columns)
{
    size_t n = 1;
    *columns = (unsigned char)*s < 0x80 ? 1 : 2;
    while (*columns == 2 && ((unsigned char)s[n] & 0xC0) == 0x80)
        n++;
    return n;
}

size_t pull_columns_of(const char *s)
{
    size_t all = 0, columns;
    for (; *s; s += char_at(s, &columns), all += columns)
        continue;
    return all;
}

/* Returns how many bytes of s fit into `room` columns. */
static size_t fitting(const char *s, size_t room)
{
    size_t n = 0, columns;
    while (s[n]) {
        size_t k = char_at(s + n, &columns);
        if (columns > room)
            break;
        room -= columns;
        n += k;
    }
    return n;
}

void pull_append_name(struct strbuf *out, const char *name, size_t room)
{
    size_t all = pull_columns_of(name), columns;
    size_t head = room > 3 ? (room - 3 + 1) / 2 : 0, tail = room > 3 ? (room - 3) / 2 : 0;
    if (all <= room) {
        strbuf_append_c(out, name);
        return;
    }
    strbuf_append(out, name, fitting(name, head));
    strbuf_append_c(out, "...");
    while (all > tail) {
        name += char_at(name, &columns);
        all -= columns;
    }
    strbuf_append_c(out, name);
}

static void left_text(char *out, size_t size, uint64_t s)
{
    if (s < 100)
        snprintf(out, size, "%llu s left", (unsigned long long)s);
    else if (s < 6000)
        snprintf(out, size, "%llu min left", (unsigned long long)((s + 30) / 60));
    else
        snprintf(out, size, "%llu h left", (unsigned long long)((s + 1800) / 3600));
}

static unsigned percent_of(const struct pull_progress *p)
{
    uint64_t n = p->total ? (uint64_t)((double)p->done * 100 / (double)p->total) : 100;
    return n > 100 ? 100 : (unsigned)n;
}

/* Returns the remaining time in seconds. `per_s` must not be 0. */
static uint64_t seconds_left(const struct pull_progress *p, uint64_t per_s)
{
    return p->total > p->done ? (p->total - p->done) / per_s : 0;
}

/* Chooses the longest text behind the bar that fits into `room` columns; "" when none fits. */
static void choose_words(const struct pull_progress *p, uint64_t per_s, size_t room,
                         char words[4][160], const char **out)
{
    char done[24], total[24], rate[24], left[40] = "";
    unsigned percent = percent_of(p);
    pull_bytes_text(done, sizeof done, p->done);
    pull_bytes_text(total, sizeof total, p->total);
    pull_bytes_text(rate, sizeof rate, per_s);
    if (per_s > 0)
        left_text(left, sizeof left, seconds_left(p, per_s));
    snprintf(words[0], 160, "%3u %%  %s of %s  %s/s  %s", percent, done, total, rate, left);
    snprintf(words[1], 160, "%3u %%  %s of %s  %s", percent, done, total, left);
    snprintf(words[2], 160, "%3u %%  %s of %s", percent, done, total);
    snprintf(words[3], 160, "%3u %%", percent);
    *out = "";
    for (size_t i = per_s > 0 ? 0 : 2; i < 4; i++)
        if (strlen(words[i]) <= room) {
            *out = words[i];
            return;
        }
}

void pull_progress_bar(const struct pull_progress *p, uint64_t per_s, unsigned columns,
                       struct strbuf *out)
{
    char words[4][160], cells[CELLS_MAX + 1];
    const char *text;
    size_t room = columns > 1 ? columns - 1 : 0, n_cells = 0, n_name = pull_columns_of(p->name);
    bool has_cells = room >= CELLS_MIN + 3 + PERCENT;
    choose_words(p, per_s, has_cells ? room - CELLS_MIN - 3 : room, words, &text);
    size_t free_columns = room - strlen(text);
    if (has_cells) {
        free_columns -= 3;
        size_t wanted = n_name > 0 ? (n_name < NAME_MAX_SHOWN ? n_name : NAME_MAX_SHOWN) + 2 : 0;
        n_cells = free_columns > wanted + CELLS_MIN ? free_columns - wanted : CELLS_MIN;
        n_cells = n_cells < CELLS_MAX ? n_cells : CELLS_MAX;
        if (n_name > 0 && free_columns - n_cells < NAME_MIN_SHOWN + 2) {
            n_cells = free_columns < CELLS_MAX ? free_columns : CELLS_MAX;
            n_name = 0;
        }
        free_columns -= n_cells;
        memset(cells, '.', n_cells);
        memset(cells, '#', percent_of(p) * n_cells / 100);
        strbuf_printf(out, "[%.*s] ", (int)n_cells, cells);
    }
    strbuf_append_c(out, text);
    if (n_cells == 0 || n_name == 0 || free_columns < NAME_MIN_SHOWN + 2)
        return;
    strbuf_append_c(out, "  ");
    pull_append_name(out, p->name, free_columns - 2);
}

static unsigned terminal_columns(void)
{
    unsigned n = terminal_width(STDERR_FILENO);
    return n > 0 ? n : 80;
}

/* Erases the bar. The bar occupies several lines when the terminal has become narrower since the
 * last drawing. */
static void wipe(struct pull_progress *p, unsigned columns)
{
    unsigned n_above = p->n_drawn > columns ? (p->n_drawn - 1) / columns : 0;
    if (n_above > 0)
        fprintf(stderr, "\033[%uA\r\033[J", n_above);
    else
        fputs("\r\033[K", stderr);
    p->n_drawn = 0;
}

static void draw(struct pull_progress *p, uint64_t per_s)
{
    unsigned columns = terminal_columns();
    struct strbuf b;
    strbuf_init(&b, 0);
    pull_progress_bar(p, per_s, columns, &b);
    wipe(p, columns);
    fwrite(strbuf_str(&b).ptr, 1, b.len, stderr);
    p->n_drawn = (unsigned)pull_columns_of(strbuf_str(&b).ptr);
    strbuf_fini(&b);
}

static void say(struct pull_progress *p, uint64_t now)
{
    char done[24], total[24], rate[24], left[40] = "";
    double seconds = (double)(now - p->begin_ns) / 1e9;
    uint64_t per_s = seconds > 0 ? (uint64_t)((double)p->fetched / seconds) : 0;
    if (log_is_json()) {
        log_info("model_fetch", "bytes=%llu total=%llu bytes_per_s=%llu file=%s",
                 (unsigned long long)p->done, (unsigned long long)p->total,
                 (unsigned long long)per_s, log_quote(p->name));
        return;
    }
    if (p->is_terminal) {
        draw(p, per_s);
        return;
    }
    pull_bytes_text(done, sizeof done, p->done);
    pull_bytes_text(total, sizeof total, p->total);
    pull_bytes_text(rate, sizeof rate, per_s);
    if (per_s > 0)
        left_text(left, sizeof left, seconds_left(p, per_s));
    fprintf(stderr, "cox %s: %s of %s (%u %%), %s/s%s%s: %s\n", p->command, done, total,
            percent_of(p), rate, per_s > 0 ? ", " : "", left, p->name);
}

void pull_progress_name(struct pull_progress *p, const char *name)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->name = name;
    (void)pthread_mutex_unlock(&p->mutex);
}

void pull_progress_add(struct pull_progress *p, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->done += n_bytes;
    p->fetched += n_bytes;
    uint64_t now = clock_mono_ns();
    if (!p->quiet && now - p->said_ns >= (p->is_terminal ? EVERY_BAR_NS : EVERY_LINE_NS)) {
        p->said_ns = now;
        say(p, now);
    }
    (void)pthread_mutex_unlock(&p->mutex);
}

void pull_progress_take_back(struct pull_progress *p, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->done -= n_bytes < p->done ? n_bytes : p->done;
    (void)pthread_mutex_unlock(&p->mutex);
}

void pull_progress_clear(struct pull_progress *p)
{
    if (p->n_drawn > 0)
        wipe(p, terminal_columns());
}
