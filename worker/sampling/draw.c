#include "worker/sampling/draw.h"

#include <math.h>
#include <string.h>

#include "worker/sampling/candidates.h"
#include "worker/sampling/philox.h"
#include "worker/sampling/sweep.h"

struct philox_place {
    uint32_t key[2], counter[4];
};
static struct philox_place place_of(const struct draw_key *k, uint32_t position, uint32_t i_group)
{
    return (struct philox_place){{(uint32_t)k->seed, (uint32_t)(k->seed >> 32)},
                                 {i_group, position, k->i_prompt, k->i_choice}};
}

static void draw_group(const struct draw_key *k, uint32_t position, uint32_t i_group,
                       uint32_t lanes[4])
{
    struct philox_place p = place_of(k, position, i_group);
    philox4x32_10(p.counter, p.key);
    memcpy(lanes, p.counter, sizeof p.counter);
}

/* Maps the bits to (0, 1), exactly in double. */
static double to_uniform(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

double draw_uniform(const struct draw_key *k, uint32_t position, uint32_t i)
{
    uint32_t lanes[4];
    draw_group(k, position, i / 4, lanes);
    return to_uniform(lanes[i % 4]);
}

void draw_init(struct draw *d, const struct draw_key *key, uint32_t position)
{
    *d = (struct draw){.key = key,
                       .position = position,
                       .id = UINT32_MAX,
                       .best = -(double)INFINITY,
                       .second = -(double)INFINITY,
                       .floor = -(double)INFINITY,
                       .i_group = UINT32_MAX};
}

/* Returns true when the noise of these bits may exceed t. -log(-log(u)) > t means -log(u) <
 * e^-t, and 1 - u <= -log(u). cut[k] is above 2^32 e^-k, and the distance of the bits from their
 * maximum is 2^32 (1 - u) - 1/2. */
static bool may_exceed(uint32_t bits, double t)
{
    static const uint32_t cut[] = {UINT32_MAX, 1580030169, 581260616, 213833831, 78665071, 28939263,
                                   10646160,   3916504,    1440802,   530042,    194992,   71734,
                                   26390,      9709,       3572,      1314,      484,      178,
                                   66,         25,         9,         4,         2,        1};
    if (!(t > 0.0))
        return true;
    const size_t n_cuts = sizeof cut / sizeof *cut;
    return t < (double)n_cuts && UINT32_MAX - bits <= cut[(int)t];
}

void draw_consider(struct draw *d, uint32_t id, double value)
{
    if (value < draw_limit(d))
        return;
    if (d->i_group != id / 4) {
        d->i_group = id / 4;
        draw_group(d->key, d->position, d->i_group, d->lanes);
    }
    uint32_t bits = d->lanes[id % 4];
    if (!may_exceed(bits, d->floor - value))
        return;
    double score = value - log(-log(to_uniform(bits)));
    if (score > d->best || (score == d->best && id < d->id)) {
        d->second = d->best;
        d->best = score;
        d->id = id;
    } else if (score > d->second) {
        d->second = score;
    }
    /* The bounds hold for real numbers; the slack is larger than any rounding error. */
    d->floor = d->second - 1e-3 - fabs(d->second) * 1e-15;
}

/* Returns true when a block of logits, from id `first` on, may have one of the two best scores.
 * Values far below the floor need a noise that is very rare, so the largest draw of the whole
 * block is checked before single draws. Half a unit of noise is more than any rounding error. */
static bool may_have_best(const struct draw *d, const float *logits, uint32_t first,
                          double temperature)
{
    static const double noises[] = {16, 12, 8};
    if (!sweep_reaches(logits, SWEEP_BLOCK, draw_limit(d) * temperature))
        return false;
    for (size_t i = 0; i < sizeof noises / sizeof *noises; i++) {
        if (sweep_reaches(logits, SWEEP_BLOCK, (d->floor - noises[i] - 0.5) * temperature))
            continue;
        const struct philox_place p = place_of(d->key, d->position, first / 4);
        return may_exceed(sweep_most_bits(p.key, p.counter), noises[i]);
    }
    return true;
}

void draw_consider_all(struct draw *d, const float *logits, uint32_t n, double temperature,
                       uint32_t done)
{
    double limit = draw_limit(d) * temperature;
    for (uint32_t begin = 0; begin < n; begin += SWEEP_BLOCK) {
        uint32_t end = n - begin < SWEEP_BLOCK ? n : begin + SWEEP_BLOCK;
        if (end - begin == SWEEP_BLOCK && !may_have_best(d, logits + begin, begin, temperature))
            continue;
        for (uint32_t i = begin; i < end; i++) {
            float v = candidate_value(logits[i]);
            if ((double)v < limit || v == -INFINITY || i == done)
                continue;
            draw_consider(d, i, (double)v / temperature);
            limit = draw_limit(d) * temperature;
        }
    }
}
