#include "worker/candidates.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

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

/* Heapsort: the worst goes to the end, again and again. */
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

/* Distance from the best in steps of 1/16; what is further than 64 has less than 2^-64 of the
 * probability each. */
enum { N_BUCKETS = 1024 };
static uint32_t bucket_of(double distance)
{
    return distance < N_BUCKETS / 16.0 ? (uint32_t)(distance * 16.0) : N_BUCKETS - 1;
}

/* The probability of whole buckets, best first, until one more would be enough; that one alone is
 * sorted. */
uint32_t candidates_top_p(struct candidate *c, uint32_t n, float max, double temperature,
                          double top_p)
{
    double mass[N_BUCKETS] = {0}, total = 0, sum = 0, x_max = (double)max / temperature;
    for (uint32_t i = 0; i < n; i++) {
        double distance = x_max - (double)c[i].value / temperature, p = exp(-distance);
        mass[bucket_of(distance)] += p;
        total += p;
    }
    double enough = top_p * total;
    uint32_t edge = 0;
    while (edge < N_BUCKETS - 1 && sum + mass[edge] < enough)
        sum += mass[edge++];
    uint32_t n_sure = 0, n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct candidate it = c[i];
        uint32_t bucket = bucket_of(x_max - (double)it.value / temperature);
        if (bucket > edge)
            continue;
        c[n_kept] = it;
        if (bucket < edge) { /* sure ones in front of those at the edge */
            c[n_kept] = c[n_sure];
            c[n_sure++] = it;
        }
        n_kept++;
    }
    candidates_sort(c + n_sure, n_kept - n_sure);
    uint32_t n_out = n_sure;
    while (n_out < n_kept && (n_out == 0 || sum < enough))
        sum += exp((double)c[n_out++].value / temperature - x_max);
    return n_out;
}
