#include "bench/gpu/bars.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

bool bars_is_emulated(const struct gpu_info *info)
{
    return strcmp(info->name, "emulation on the host") == 0;
}

void bars_open(struct bars *b, const char *program, bool is_emulated, double seconds)
{
    *b = (struct bars){.program = program,
                       .is_emulated = is_emulated,
                       .begin_ns = clock_mono_ns(),
                       .budget_ns = (uint64_t)(seconds * (double)NS_PER_S)};
}

static bool holds(const struct bars_row *r)
{
    return !r->is_cut && (r->kind == BAR_AT_LEAST ? r->value >= r->bar : r->value <= r->bar);
}

static const char *verdict(const struct bars *b, const struct bars_row *r)
{
    if (r->is_cut)
        return "**cut**";
    if (b->is_emulated)
        return "emulated: not judged";
    if (r->kind == BAR_NONE)
        return "";
    return holds(r) ? "held" : "**below**";
}

/* Writes, for example, "0.91 of a copy's rate" and "at least 0.85". */
static void texts(const struct bars_row *r, char figure[96], char bar[32])
{
    int digits = r->value >= 100 ? 0 : r->value >= 10 ? 1 : 2;
    snprintf(figure, 96, "%.*f %s", digits, r->value, r->unit);
    if (r->is_cut)
        snprintf(figure, 96, "-");
    bar[0] = '\0';
    if (r->kind != BAR_NONE && !r->is_cut)
        snprintf(bar, 32, "%s %.4g", r->kind == BAR_AT_LEAST ? "at least" : "at most", r->bar);
}

static struct bars_row *add(struct bars *b, const char *what)
{
    if (b->n_rows == BARS_MAX) {
        b->n_lost++;
        return NULL;
    }
    struct bars_row *r = &b->rows[b->n_rows++];
    *r = (struct bars_row){.unit = "", .kind = BAR_NONE};
    snprintf(r->what, sizeof r->what, "%s", what);
    return r;
}

void bars_figure(struct bars *b, const char *what, const char *unit, double value,
                 enum bar_kind kind, double bar)
{
    char figure[96], wanted[32];
    struct bars_row *r = add(b, what);
    if (!r)
        return;
    r->unit = unit;
    r->value = value;
    r->kind = kind;
    r->bar = bar;
    if (kind == BAR_NONE)
        return;
    texts(r, figure, wanted);
    printf("bar: %s: %s (%s): %s\n", what, figure, wanted, verdict(b, r));
    fflush(stdout);
}

double bars_seconds_left(const struct bars *b)
{
    double elapsed = (double)(clock_mono_ns() - b->begin_ns) / (double)NS_PER_S;
    return b->budget_ns == 0 ? HUGE_VAL : (double)b->budget_ns / (double)NS_PER_S - elapsed;
}

void bars_cut(struct bars *b, const char *what, bool is_judged)
{
    struct bars_row *r = add(b, what);
    if (!r)
        return;
    r->is_cut = true;
    r->kind = is_judged ? BAR_AT_LEAST : BAR_NONE;
}

bool bars_has_time(struct bars *b, const char *what, double seconds, bool is_judged)
{
    double left = bars_seconds_left(b);
    if (left >= seconds)
        return true;
    printf("cut: %s: of %.0f s %.0f are left, and it takes about %.0f\n", what,
           (double)b->budget_ns / (double)NS_PER_S, left > 0 ? left : 0, seconds);
    bars_cut(b, what, is_judged);
    return false;
}

static void tell(const struct bars *b, const char *title, bool (*is_one)(const struct bars_row *))
{
    const char *separator = title;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (!is_one(&b->rows[i]))
            continue;
        printf("%s%s", separator, b->rows[i].what);
        separator = ", ";
    }
}

static bool is_cut(const struct bars_row *r)
{
    return r->is_cut;
}

static bool is_below(const struct bars_row *r)
{
    return r->kind != BAR_NONE && !r->is_cut && !holds(r);
}

enum bars_status bars_close(const struct bars *b)
{
    uint32_t n_judged = 0, n_held = 0, n_cut = 0;
    printf("\n");
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct bars_row *r = &b->rows[i];
        char figure[96], wanted[32];
        texts(r, figure, wanted);
        printf("| %s | %s | %s | %s | %s |\n", b->program, r->what, figure, wanted, verdict(b, r));
        n_cut += r->kind != BAR_NONE && r->is_cut;
        n_judged += r->kind != BAR_NONE && !r->is_cut;
        n_held += r->kind != BAR_NONE && holds(r);
    }
    if (b->n_lost > 0)
        printf("%u figures beyond the table's %d rows\n", b->n_lost, BARS_MAX);
    if (b->is_emulated) {
        printf("emulated: %u figures, not judged\n", b->n_rows);
        return b->n_lost > 0 ? BARS_BELOW : BARS_HELD;
    }
    printf("%u of %u bars held", n_held, n_judged);
    tell(b, "; below: ", is_below);
    tell(b, "; cut: ", is_cut);
    printf("\n");
    if (n_held < n_judged || b->n_lost > 0)
        return BARS_BELOW;
    return n_cut > 0 ? BARS_CUT : BARS_HELD;
}
