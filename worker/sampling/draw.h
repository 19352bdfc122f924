#pragma once
/* Makes random draws that depend only on their position, and uses them to choose among many
 * weighted candidates. A draw is a value of Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). The layout of key and counter is in
 * docs/develop/protocol.md, "Sampling", so that any implementation gets the same draws. The
 * functions are pure, and any thread may call them. */
#include <stdbool.h>
#include <stdint.h>

struct draw_key {
    uint64_t seed;
    uint32_t i_prompt, i_choice;
};

/* Returns draw i of the stream (seed, prompt, choice) at a position: uniform in (0, 1), 32 bits. */
double draw_uniform(const struct draw_key *k, uint32_t position, uint32_t i);

/* `draw` finds the argmax over candidates of value + Gumbel noise -log(-log(u)), where u is draw
 * `id`. A candidate wins with probability softmax(values) (Gumbel 1954). The result does not
 * depend on the order of the candidates. It is fastest to begin with the largest value. A
 * candidate that cannot become one of the two best is then skipped without a draw or without its
 * logarithms. */
struct draw {
    const struct draw_key *key;
    uint32_t position;
    uint32_t id; /* id of the candidate with the best score; UINT32_MAX = no candidate yet */
    double best, second; /* the two best scores; -inf = none */
    double floor;        /* scores below this value cannot be among the two best */
    uint32_t lanes[4];   /* draws 4 * i_group .. + 3 */
    uint32_t i_group;    /* group of the draws in `lanes`; UINT32_MAX = none */
};

/* DRAW_MAX_NOISE is an upper bound of the noise. The largest noise that 32 bits give is 22.87. */
#define DRAW_MAX_NOISE 23.0

void draw_init(struct draw *d, const struct draw_key *key, uint32_t position);
/* Adds a candidate with a finite value. The caller adds each id at most once. */
void draw_consider(struct draw *d, uint32_t id, double value);
/* Returns the value below which candidates can be skipped. The result never falls between calls. */
static inline double draw_limit(const struct draw *d)
{
    return d->floor - DRAW_MAX_NOISE;
}
/* Adds every id < n with the value logits[id] / temperature if that value is finite, except the
 * id `done`, which was added before. */
void draw_consider_all(struct draw *d, const float *logits, uint32_t n, double temperature,
                       uint32_t done);
