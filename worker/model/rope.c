#include "worker/model/rope.h"

#include <math.h>

static double plain(const struct rope_config *r, double theta, uint32_t i)
{
    return pow(theta, -2.0 * i / r->n_rot);
}

/* Scales the frequencies for "llama3". The factor stretches long waves, short waves are kept,
 * and those in between are blended. */
static double scale_llama3(const struct rope_config *r, double inv)
{
    double wave = 2.0 * M_PI / inv;
    double low = r->original_max_len / r->low_freq_factor;
    double high = r->original_max_len / r->high_freq_factor;
    if (wave < high)
        return inv;
    if (wave > low)
        return inv / r->factor;
    double smooth = (r->original_max_len / wave - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * inv / r->factor + smooth * inv;
}

/* Returns the base for "dynamic". The base is larger when the length exceeds the length that the
 * model was made for (NTK-aware). */
static double dynamic_theta(const struct rope_config *r, uint32_t max_model_len)
{
    double longer = max_model_len / r->original_max_len;
    if (longer <= 1 || r->n_rot <= 2)
        return r->theta;
    return r->theta *
           pow(r->factor * longer - (r->factor - 1), (double)r->n_rot / (r->n_rot - 2.0));
}

/* Returns, for "yarn" (Peng et al. 2023), the dimension whose wave makes that many turns within
 * the original length. */
static double yarn_dimension(const struct rope_config *r, double turns)
{
    return r->n_rot * log(r->original_max_len / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static double scale_yarn(const struct rope_config *r, double inv, uint32_t i)
{
    double low = yarn_dimension(r, r->beta_fast), high = yarn_dimension(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, r->n_rot - 1.0);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return inv / r->factor * ramp + inv * (1 - ramp);
}

static double scaled(const struct rope_config *r, uint32_t max_model_len, uint32_t i)
{
    double inv = plain(r, r->theta, i);
    switch (r->scaling) {
    case ROPE_LINEAR:
        return inv / r->factor;
    case ROPE_DYNAMIC:
        return plain(r, dynamic_theta(r, max_model_len), i);
    case ROPE_LLAMA3:
        return scale_llama3(r, inv);
    case ROPE_YARN:
        return scale_yarn(r, inv, i);
    case ROPE_LONGROPE: /* LongRoPE (Ding et al. 2024) */
        return inv / (double)(max_model_len > r->original_max_len ? r->long_factors
                                                                  : r->short_factors)[i];
    default:
        return inv;
    }
}

void rope_frequencies(const struct rope_config *r, uint32_t max_model_len, float *inv, float *scale)
{
    for (uint32_t i = 0; i < r->n_rot / 2; i++)
        inv[i] = (float)scaled(r, max_model_len, i);
    *scale = r->attention_factor > 0 ? (float)r->attention_factor : 1.0f;
}
