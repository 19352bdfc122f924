/* Implements the operations of a whole warp, except products of matrices (tensor.cpp). */
#include "device.h"

using emulate::warp_call;

namespace
{
using emulate::exchange;

template <class F> void each_lane(uint32_t lanes, F f)
{
    for (; lanes; lanes &= lanes - 1)
        f((unsigned)__builtin_ctz(lanes));
}

void all_get(exchange *x, uint32_t lanes, uint64_t result)
{
    each_lane(lanes, [=](unsigned lane) { x->results[lane] = result; });
}

void shuffle_run(exchange *x, uint32_t lanes)
{
    if (lanes == emulate::ALL_LANES) {
        for (unsigned lane = 0; lane < emulate::WARP; lane++)
            x->results[lane] = x->values[x->params[lane]];
        return;
    }
    each_lane(lanes, [=](unsigned lane) {
        const unsigned from = x->params[lane];
        x->results[lane] = lanes >> from & 1 ? x->values[from] : ~(uint64_t)0;
    });
}

void ballot_run(exchange *x, uint32_t lanes)
{
    uint32_t bits = 0;
    each_lane(lanes, [&](unsigned lane) { bits |= (uint32_t)x->values[lane] << lane; });
    all_get(x, lanes, bits);
}

void all_run(exchange *x, uint32_t lanes)
{
    uint64_t all = 1;
    each_lane(lanes, [&](unsigned lane) { all &= x->values[lane]; });
    all_get(x, lanes, all);
}

void match_run(exchange *x, uint32_t lanes)
{
    each_lane(lanes, [=](unsigned lane) {
        uint32_t same = 0;
        each_lane(lanes, [&](unsigned other) {
            same |= (uint32_t)(x->values[other] == x->values[lane]) << other;
        });
        x->results[lane] = same;
    });
}

/* flag that is added to an emulate::reduction for signed numbers */
constexpr uint32_t SIGNED = 256;

uint32_t reduce_two(uint32_t how, uint32_t a, uint32_t b)
{
    const bool less = how & SIGNED ? (int)a < (int)b : a < b;
    switch (how & ~SIGNED) {
    case emulate::REDUCE_ADD:
        return a + b;
    case emulate::REDUCE_MIN:
        return less ? a : b;
    case emulate::REDUCE_MAX:
        return less ? b : a;
    case emulate::REDUCE_AND:
        return a & b;
    case emulate::REDUCE_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

void reduce_run(exchange *x, uint32_t lanes)
{
    const unsigned first = (unsigned)__builtin_ctz(lanes);
    uint32_t sum = (uint32_t)x->values[first];
    each_lane(lanes & (lanes - 1), [&](unsigned lane) {
        if (x->params[lane] != x->params[first])
            emulate::die("the lanes of a warp reduce in different ways");
        sum = reduce_two(x->params[lane], sum, (uint32_t)x->values[lane]);
    });
    all_get(x, lanes, sum);
}

void nothing_run(exchange *, uint32_t)
{
}

const warp_call BALLOT = {"waits at a ballot", ballot_run};
const warp_call ALL = {"waits at __all_sync", all_run};
const warp_call MATCH = {"waits at __match_any_sync", match_run};
const warp_call REDUCE = {"waits at a reduction", reduce_run};
const warp_call SYNC = {"waits at __syncwarp", nothing_run};
} // namespace

namespace emulate
{
const warp_call SHUFFLE = {"waits at a shuffle", shuffle_run};

uint32_t reduce(uint32_t mask, reduction how, bool is_signed, uint32_t value)
{
    return (uint32_t)meet(mask, &REDUCE, value, how | (is_signed ? SIGNED : 0));
}
} // namespace emulate

void __syncwarp(uint32_t mask)
{
    emulate::meet(mask, &SYNC, 0, 0);
}

uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    return (uint32_t)emulate::meet(mask, &BALLOT, predicate != 0, 0);
}

int __all_sync(uint32_t mask, int predicate)
{
    return (int)emulate::meet(mask, &ALL, predicate != 0, 0);
}

uint32_t __match_any_sync(uint32_t mask, uint32_t value)
{
    return (uint32_t)emulate::meet(mask, &MATCH, value, 0);
}
