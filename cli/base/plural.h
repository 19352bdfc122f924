#pragma once

/* Returns the plural ending of a noun behind the number n: "3 workers", "1 worker". */
static inline const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}
