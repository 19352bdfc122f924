#include "worker/sampling/candidates.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "worker/sampling/sweep.h"

static bool worse(struct candidate a, struct candidate b)
{
    return a.value < b.value || (a.value == b.value && a.id > b.id);
}

static void sift_down(struct candidate *heap, uint32_t n, uint32_t i)
{
    struct candidate c = heap[i];
    for (uint64_t child = 2ull * i + 1; child < n; child = 2ull * i + 1) {
        if (child + 1 < n && worse(heap[child + 1], heap[child]))
            child++;
        if (!worse(heap[child], c))
            break;
        heap[i] = heap[child];
        i = (uint32_t)child;
    }
    heap[i] = c;
}

void candidates_push(struct candidate *heap, uint32_t *n, uint32_t max, struct candidate c)
{
    if (*n == max) {
        if (!worse(heap[0], c))
            return;
        heap[0] = c;
        sift_down(heap, max, 0);
        return;
    }
    uint32_t i = (*n)++;
    for (; i > 0 && worse(c, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

/* Sorts with heapsort: repeatedly moves the worst candidate to the end. */
void candidates_sort(struct candidate *c, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(c, n, i);
    while (n > 1) {
        struct candidate worst = c[0];
        c[0] = c[--n];
        c[n] = worst;
        sift_down(c, n, 0);
    }
}

/* N_BUCKETS is the number of buckets for candidates, by distance from the best value in steps of
 * 1/16. Candidates further away than 64 have less than 2^-64 of the probability each. */
enum { N_BUCKETS = 1024 };
static uint32_t bucket_of(double distance)
{
    return distance < N_BUCKETS / 16.0 ? (uint32_t)(distance * 16.0) : N_BUCKETS - 1;
}

/* `masses` holds the probability mass of each bucket and in total. `edge` is the bucket in which
 * top_p is reached, `sum` the mass of the buckets before it. */
struct masses {
    double x_max, temperature, mass[N_BUCKETS], total, enough, sum;
    uint32_t edge;
};
static struct masses masses_of(float max, double temperature)
{
    return (struct masses){.x_max = (double)max / temperature, .temperature = temperature};
}
static double distance_of(const struct masses *m, float value)
{
    return m->x_max - (double)value / m->temperature;
}
static void masses_add(struct masses *m, double distance, double p)
{
    m->mass[bucket_of(distance)] += p;
    m->total += p;
}
static void masses_end(struct masses *m, double top_p)
{
    m->enough = top_p * m->total;
    while (m->edge < N_BUCKETS - 1 && m->sum + m->mass[m->edge] < m->enough)
        m->sum += m->mass[m->edge++];
}

/* Keeps the buckets before the edge as a whole. Only the candidates of the edge bucket are
 * sorted. The best of them are kept until the mass is enough. */
static uint32_t keep_best(struct candidate *c, uint32_t n, const struct masses *m)
{
    uint32_t n_sure = 0, n_kept = 0;
    double sum = m->sum;
    for (uint32_t i = 0; i < n; i++) {
        struct candidate it = c[i];
        uint32_t bucket = bucket_of(distance_of(m, it.value));
        if (bucket > m->edge)
            continue;
        c[n_kept] = it;
        /* candidates that are certainly kept move before those of the edge bucket */
        if (bucket < m->edge) {
            c[n_kept] = c[n_sure];
            c[n_sure++] = it;
        }
        n_kept++;
    }
    candidates_sort(c + n_sure, n_kept - n_sure);
    uint32_t n_out = n_sure;
    while (n_out < n_kept && (n_out == 0 || sum < m->enough))
        sum += exp(-distance_of(m, c[n_out++].value));
    return n_out;
}

uint32_t candidates_top_p(struct candidate *c, uint32_t n, float max, double temperature,
                          double top_p)
{
    struct masses m = masses_of(max, temperature);
    for (uint32_t i = 0; i < n; i++) {
        double distance = distance_of(&m, c[i].value);
        masses_add(&m, distance, exp(-distance));
    }
    masses_end(&m, top_p);
    return keep_best(c, n, &m);
}

uint32_t candidates_top_p_of(const float *logits, uint32_t n, float max, double temperature,
                             double top_p, struct candidate *out)
{
    struct masses m = masses_of(max, temperature);
    for (uint32_t begin = 0; begin < n; begin += SWEEP_BLOCK) {
        double distance[SWEEP_BLOCK], p[SWEEP_BLOCK];
        uint32_t some = n - begin < SWEEP_BLOCK ? n - begin : SWEEP_BLOCK;
        for (uint32_t i = 0; i < SWEEP_BLOCK; i++)
            p[i] = distance[i] = i < some ? distance_of(&m, candidate_value(logits[begin + i])) : 0;
        sweep_exps(p);
        for (uint32_t i = 0; i < some; i++)
            masses_add(&m, distance[i], p[i]);
    }
    masses_end(&m, top_p);
    uint32_t n_out = 0;
    double limit = -(double)INFINITY;
    if (m.edge + 1 < N_BUCKETS)
        limit = (m.x_max - (m.edge + 1) / 16.0) * temperature - 1e-9 * (1 + fabs((double)max));
    for (uint32_t begin = 0; begin < n; begin += SWEEP_BLOCK) {
        uint32_t end = n - begin < SWEEP_BLOCK ? n : begin + SWEEP_BLOCK;
        if (!sweep_reaches(logits + begin, end - begin, limit))
            continue;
        for (uint32_t i = begin; i < end; i++) {
            struct candidate it = {candidate_value(logits[i]), i};
            if (it.value > -INFINITY && bucket_of(distance_of(&m, it.value)) <= m.edge)
                out[n_out++] = it;
        }
    }
    return keep_best(out, n_out, &m);
}
