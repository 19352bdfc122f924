#pragma once

/* The end of a noun behind n: "3 workers", "1 worker". */
static inline const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}
