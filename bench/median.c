#include "bench/median.h"

#include <stdlib.h>

#include "common/base/order.h"

double bench_median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, order_doubles);
    return v[n / 2];
}
