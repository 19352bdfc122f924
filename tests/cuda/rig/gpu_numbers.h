#pragma once
/* Holds helpers for all tests of operators: a call that must not fail, random numbers that are
 * the same on every machine, and bfloat16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/base/status.h"

static inline void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, status_name(s), err->text);
    exit(1);
}

static inline uint16_t to_bf16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

static inline uint32_t random_u32(struct rng *r)
{
    return (uint32_t)(rng_next(r) >> 32);
}

/* Returns a number in [-1, 1). */
static inline float random_unit(struct rng *r)
{
    return (float)(random_u32(r) >> 8) * 0x1p-23f - 1.0f;
}
