#pragma once
/* Shared by the files of bench_comm. */
#include <stdbool.h>
#include <stdint.h>

double bench_median(double *v, uint32_t n); /* sorts v */
/* bench_comm rings. false: failed, and said why. */
bool bench_rings(uint32_t n_rounds);
/* A folder of plain files. */
void bench_remove_folder(const char *path);
