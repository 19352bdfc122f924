#pragma once
/* Reads the system's clocks. Code without I/O (scheduler, cluster, rank state) gets `now_ns` as
 * an argument and never calls these functions. */
#include <stdint.h>

uint64_t clock_mono_ns(void); /* ns of CLOCK_MONOTONIC */
uint64_t clock_wall_ns(void); /* ns since 1970-01-01 UTC; only for logs and OpenAI's "created" */

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

static inline double seconds_of_ns(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}
