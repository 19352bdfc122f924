/* Runs the step budget over N random speed curves. Prints the distributions of late gaps between
 * tokens, and of the prompts' times: budget [--curves N] [--family 0|1] [--first SEED]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/budget_run.h"
#include "tests/sim/sim_options.h"

enum { MOST_CURVES = 1000000 };

static const char *const speeds[N_SPEEDS] = {"steady", "drifts", "jumps", "stolen", "quota"};

struct kind {
    uint64_t n_curves, n_gaps, n_late, n_curves_late, n_curves_slow;
};

struct totals {
    struct kind kinds[N_SPEEDS];
    /* arrays with one value for each curve; each: one value for each long prompt */
    double *late, *at_floor, *whole, *each;
    size_t n_curves, n_whole, n_each, each_cap;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *name, double *v, size_t n)
{
    if (n == 0)
        return;
    qsort(v, n, sizeof *v, by_size);
    printf("%-48s p50 %6.3f  p90 %6.3f  p99 %6.3f  p99.9 %7.3f  worst %8.3f\n", name, v[n / 2],
           v[n * 90 / 100], v[n * 99 / 100], v[n * 999 / 1000], v[n - 1]);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static void add(struct totals *t, const struct budget_curve *c, const struct budget_report *r)
{
    struct kind *k = &t->kinds[c->kind];
    bool slow = r->took_ns > 1.5 * r->best_ns;
    t->late[t->n_curves] = share(r->n_late, r->n_gaps);
    t->at_floor[t->n_curves] = share(r->n_late_at_floor, r->n_gaps);
    k->n_curves++;
    k->n_gaps += r->n_gaps;
    k->n_late += r->n_late;
    k->n_curves_late += t->late[t->n_curves++] > 0.01;
    k->n_curves_slow += slow;
    if (r->n_prompts > 0)
        t->whole[t->n_whole++] = r->took_ns / r->best_ns;
    if (t->n_each + r->n_long > t->each_cap) {
        t->each_cap = 2 * (t->n_each + r->n_long);
        t->each = realloc(t->each, t->each_cap * sizeof *t->each);
        if (!t->each)
            abort();
    }
    if (r->n_long > 0)
        memcpy(t->each + t->n_each, r->ratios, r->n_long * sizeof *r->ratios);
    t->n_each += r->n_long;
}

static void print_kinds(const struct totals *t)
{
    struct kind all = {0};
    for (int i = 0; i < N_SPEEDS; i++) {
        const struct kind *k = &t->kinds[i];
        printf(
            "%-7s %6llu curves  late gaps %.3f %%  curves with over 1 %% of them %llu  curves with "
            "prompts over 1.5 in all %llu\n",
            speeds[i], (unsigned long long)k->n_curves, 100 * share(k->n_late, k->n_gaps),
            (unsigned long long)k->n_curves_late, (unsigned long long)k->n_curves_slow);
        all.n_gaps += k->n_gaps;
        all.n_late += k->n_late;
        all.n_curves_late += k->n_curves_late;
        all.n_curves_slow += k->n_curves_slow;
    }
    printf("%-7s %6zu curves  late gaps %.3f %%  curves with over 1 %% of them %llu  curves with "
           "prompts over 1.5 in all %llu\n",
           "all", t->n_curves, 100 * share(all.n_late, all.n_gaps),
           (unsigned long long)all.n_curves_late, (unsigned long long)all.n_curves_slow);
}

static bool read_options(int argc, char **argv, uint64_t *n_curves, uint64_t *family,
                         uint64_t *first)
{
    const struct sim_option options[] = {
        {"--curves", n_curves}, {"--family", family}, {"--first", first}};
    if (!sim_options_read(argc, argv, options, sizeof options / sizeof *options))
        return false;
    return *n_curves > 0 && *n_curves <= MOST_CURVES && *family < N_FAMILIES;
}

int main(int argc, char **argv)
{
    static struct budget_curve c;
    static struct budget_report r;
    uint64_t n_curves = 1000, family = FAMILY_WIDE, first = 1;
    if (!read_options(argc, argv, &n_curves, &family, &first)) {
        fprintf(stderr, "usage: budget [--curves N] [--family 0|1] [--first SEED]\n");
        return 2;
    }
    struct totals t = {.late = calloc(n_curves, sizeof(double)),
                       .at_floor = calloc(n_curves, sizeof(double)),
                       .whole = calloc(n_curves, sizeof(double))};
    if (!t.late || !t.at_floor || !t.whole)
        abort();
    for (uint64_t i = 0; i < n_curves; i++) {
        budget_curve_draw(&c, (enum budget_family)family, first + i);
        budget_run(&c, first + i, &r);
        add(&t, &c, &r);
    }
    print_kinds(&t);
    print_row("late gaps, share of a curve's", t.late, t.n_curves);
    print_row("over 1.2 of the rule's step where that is longer", t.at_floor, t.n_curves);
    print_row("a curve's prompts in all / the best share's time", t.whole, t.n_whole);
    print_row("each prompt of 5 steps or more / the same", t.each, t.n_each);
    free(t.late);
    free(t.at_floor);
    free(t.whole);
    free(t.each);
    return 0;
}
