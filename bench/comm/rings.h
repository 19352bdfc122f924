#pragma once
/* Implements `bench_comm rings`, which measures shared-memory rings between two processes. */
#include <stdbool.h>
#include <stdint.h>

/* Runs bench_comm rings. Returns false after an error, which the function prints. */
bool bench_rings(uint32_t n_rounds);
/* Removes a folder that has only plain files. */
void bench_remove_folder(const char *path);
