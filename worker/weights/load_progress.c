#include "worker/weights/load_progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

enum { BAR_COLUMNS = 30, TEXT_COLUMNS = 78, COLUMNS_IF_UNKNOWN = 80 };
#define LOG_EVERY_NS (5 * NS_PER_S)
#define BAR_EVERY_NS (NS_PER_S / 10)

struct load_figures load_progress_figures(uint64_t done_bytes, uint64_t n_bytes,
                                          uint64_t elapsed_ns)
{
    struct load_figures f = {
        .done_gb = (double)done_bytes / 1e9, .all_gb = (double)n_bytes / 1e9, .left_s = -1};
    if (done_bytes == 0 || elapsed_ns == 0)
        return f;
    f.gb_per_s = (double)done_bytes / (double)elapsed_ns;
    uint64_t left = n_bytes > done_bytes ? n_bytes - done_bytes : 0;
    f.left_s = (double)left / 1e9 / f.gb_per_s;
    return f;
}

/* Formats the line with the bar. On a narrow terminal the bar is shortened, not the text. */
void load_progress_bar(const struct load_progress *p, uint64_t done_bytes, uint64_t elapsed_ns,
                       uint32_t columns, char *out, size_t size)
{
    struct load_figures f = load_progress_figures(done_bytes, p->n_bytes, elapsed_ns);
    char bar[BAR_COLUMNS + 1], left[32] = "";
    uint32_t width = columns > TEXT_COLUMNS ? columns - TEXT_COLUMNS : 0;
    uint64_t percent = p->n_bytes ? done_bytes * 100 / p->n_bytes : 100;
    width = width < BAR_COLUMNS ? width : BAR_COLUMNS;
    uint64_t full = percent * width / 100;
    for (uint32_t i = 0; i < width; i++)
        bar[i] = i < full ? '#' : '.';
    bar[width] = '\0';
    if (f.left_s >= 0)
        snprintf(left, sizeof left, ", %.0f s left", f.left_s);
    snprintf(out, size, "loading rank %u of %u%s%s %llu%% %.2f of %.2f GB, %.2f GB/s%s", p->rank,
             p->n_ranks, width ? " " : "", bar, (unsigned long long)percent, f.done_gb, f.all_gb,
             f.gb_per_s, left);
    if (columns > 0 && columns < size)
        out[columns] = '\0';
}

static uint32_t terminal_columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u
                                                                     : COLUMNS_IF_UNKNOWN;
}

/* Writes over the previous line and erases its rest, in a single write, as the log writes its
 * lines. */
static void write_bar(const char *text)
{
    char line[320];
    int n = snprintf(line, sizeof line, "\r%s\033[K", text);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* a failed write is ignored */
}

void load_progress_begin(struct load_progress *p)
{
    p->terminal = isatty(STDERR_FILENO) == 1 && !log_is_json();
    p->sampled = false;
    p->begin_ns = clock_mono_ns();
    p->next_ns = p->begin_ns + (p->terminal ? BAR_EVERY_NS : LOG_EVERY_NS);
    if (p->permille) /* the share is already 1, because opening the files takes time too */
        atomic_store_explicit(p->permille, 1, memory_order_relaxed);
}

void load_progress_at(struct load_progress *p, uint64_t done_bytes)
{
    uint64_t now_ns = clock_mono_ns(), share = done_bytes / (p->n_bytes / 1000 + 1);
    if (p->permille)
        atomic_store_explicit(p->permille, share < 1 ? 1 : (uint32_t)share, memory_order_relaxed);
    if (p->on_done)
        p->on_done(p->ctx, done_bytes);
    if (now_ns < p->next_ns)
        return;
    p->next_ns = now_ns + (p->terminal ? BAR_EVERY_NS : LOG_EVERY_NS);
    if (p->terminal) {
        char text[256];
        load_progress_bar(p, done_bytes, now_ns - p->begin_ns, terminal_columns(), text,
                          sizeof text);
        write_bar(text);
        p->sampled = true;
        return;
    }
    struct load_figures f = load_progress_figures(done_bytes, p->n_bytes, now_ns - p->begin_ns);
    log_info("loading",
             "shard=%u/%u percent=%.0f done_gb=%.2f all_gb=%.2f gb_per_s=%.2f left_s=%.0f", p->rank,
             p->n_ranks, 100 * f.done_gb / f.all_gb, f.done_gb, f.all_gb, f.gb_per_s, f.left_s);
}

void load_progress_end(struct load_progress *p)
{
    if (p->sampled)
        write_bar("");
    p->sampled = false;
}
