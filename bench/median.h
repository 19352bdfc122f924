#pragma once
/* The median of a bench's figures. */
#include <stdint.h>

double bench_median(double *v, uint32_t n); /* sorts v */
