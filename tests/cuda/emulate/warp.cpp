/* What the lanes of a warp do together, but for products of matrices (tensor.cpp). */
#include "device.h"

using emulate::warp_call;

namespace
{
struct lane_args {
    uint64_t value = 0, result = 0;
    unsigned from = 0; /* a lane, or an emulate::reduction */
    bool is_signed = false;
};

lane_args &of(void *const *args, unsigned lane)
{
    return *static_cast<lane_args *>(args[lane]);
}

template <class F> void each_lane(uint32_t lanes, F f)
{
    for (; lanes; lanes &= lanes - 1)
        f((unsigned)__builtin_ctz(lanes));
}

void shuffle_run(void *const *args, uint32_t lanes)
{
    each_lane(lanes, [=](unsigned lane) {
        lane_args &a = of(args, lane);
        a.result = lanes >> a.from & 1 ? of(args, a.from).value : ~(uint64_t)0;
    });
}

void ballot_run(void *const *args, uint32_t lanes)
{
    uint32_t bits = 0;
    each_lane(lanes, [&](unsigned lane) { bits |= (uint32_t)of(args, lane).value << lane; });
    each_lane(lanes, [=](unsigned lane) { of(args, lane).result = bits; });
}

void all_run(void *const *args, uint32_t lanes)
{
    uint64_t all = 1;
    each_lane(lanes, [&](unsigned lane) { all &= of(args, lane).value; });
    each_lane(lanes, [=](unsigned lane) { of(args, lane).result = all; });
}

void match_run(void *const *args, uint32_t lanes)
{
    each_lane(lanes, [=](unsigned lane) {
        uint32_t same = 0;
        each_lane(lanes, [&](unsigned other) {
            same |= (uint32_t)(of(args, other).value == of(args, lane).value) << other;
        });
        of(args, lane).result = same;
    });
}

uint32_t reduce_two(unsigned how, bool is_signed, uint32_t a, uint32_t b)
{
    const bool less = is_signed ? (int)a < (int)b : a < b;
    switch (how) {
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

void reduce_run(void *const *args, uint32_t lanes)
{
    const lane_args &first = of(args, (unsigned)__builtin_ctz(lanes));
    uint32_t sum = (uint32_t)first.value;
    each_lane(lanes & (lanes - 1), [&](unsigned lane) {
        const lane_args &a = of(args, lane);
        if (a.from != first.from || a.is_signed != first.is_signed)
            emulate::die("the lanes of a warp reduce in different ways");
        sum = reduce_two(a.from, a.is_signed, sum, (uint32_t)a.value);
    });
    each_lane(lanes, [=](unsigned lane) { of(args, lane).result = sum; });
}

void nothing_run(void *const *, uint32_t)
{
}

const warp_call SHUFFLE = {"waits at a shuffle", shuffle_run};
const warp_call BALLOT = {"waits at a ballot", ballot_run};
const warp_call ALL = {"waits at __all_sync", all_run};
const warp_call MATCH = {"waits at __match_any_sync", match_run};
const warp_call REDUCE = {"waits at a reduction", reduce_run};
const warp_call SYNC = {"waits at __syncwarp", nothing_run};

uint64_t meet(uint32_t mask, const warp_call &call, lane_args args)
{
    emulate::meet(mask, &call, &args);
    return args.result;
}
} // namespace

void __syncwarp(uint32_t mask)
{
    (void)meet(mask, SYNC, {});
}

uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    return (uint32_t)meet(mask, BALLOT, {.value = predicate != 0});
}

int __all_sync(uint32_t mask, int predicate)
{
    return (int)meet(mask, ALL, {.value = predicate != 0});
}

uint32_t __match_any_sync(uint32_t mask, uint32_t value)
{
    return (uint32_t)meet(mask, MATCH, {.value = value});
}

namespace emulate
{
uint64_t shuffle(uint32_t mask, uint64_t value, unsigned from)
{
    return ::meet(mask, SHUFFLE, {.value = value, .result = 0, .from = from});
}

uint32_t reduce(uint32_t mask, reduction how, bool is_signed, uint32_t value)
{
    return (uint32_t)::meet(mask, REDUCE,
                            {.value = value, .result = 0, .from = how, .is_signed = is_signed});
}
} // namespace emulate
