#pragma once
/* `bench_comm rings`: the rings of shared memory between two processes alone. */
#include <stdbool.h>
#include <stdint.h>

/* bench_comm rings. false: failed, and said why. */
bool bench_rings(uint32_t n_rounds);
/* A folder of plain files. */
void bench_remove_folder(const char *path);
