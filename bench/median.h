#pragma once
/* Computes the median of a bench's figures. */
#include <stdint.h>

double bench_median(double *v, uint32_t n); /* Sorts v and returns its median. */
