#pragma once
/* Random draws that are a function of where they are made, and the choice of one of many weighted
 * candidates by them. A draw is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011): docs/develop/protocol.md, "Sampling", has the layout of key and counter, so
 * that any implementation draws the same. Pure; any thread. */
#include <stdbool.h>
#include <stdint.h>

struct draw_key {
    uint64_t seed;
    uint32_t i_prompt, i_choice;
};

/* Uniform in (0, 1), 32 bits: draw i of the stream of (seed, prompt, choice) at a position. */
double draw_uniform(const struct draw_key *k, uint32_t position, uint32_t i);

/* Argmax over candidates of value + Gumbel noise -log(-log(u)), u being draw `id`: a candidate wins
 * with probability softmax(values) (Gumbel 1954). The outcome does not depend on the order in which
 * candidates are considered; the largest first makes it fast, since a candidate that can not become
 * one of the two best is passed over without a draw, or without its logarithms. */
struct draw {
    const struct draw_key *key;
    uint32_t position;
    uint32_t id;         /* of the best; UINT32_MAX: nothing was considered yet */
    double best, second; /* scores; -inf: none */
    double floor;        /* a score below this is neither of the two best */
    uint32_t lanes[4];   /* draws 4 * i_group .. + 3 */
    uint32_t i_group;    /* UINT32_MAX: none */
};

/* The largest noise that 32 bits give is 22.87. */
#define DRAW_MAX_NOISE 23.0

void draw_init(struct draw *d, const struct draw_key *key, uint32_t position);
/* value is finite; each id at most once. */
void draw_consider(struct draw *d, uint32_t id, double value);
/* Values below this need not be considered: it only rises. */
static inline double draw_limit(const struct draw *d)
{
    return d->floor - DRAW_MAX_NOISE;
}
/* The same of every id < n, with the value logits[id] / temperature, where that is finite, but for
 * id `done`, which was considered before. */
void draw_consider_all(struct draw *d, const float *logits, uint32_t n, double temperature,
                       uint32_t done);
