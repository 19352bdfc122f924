#pragma once
/* `bench_comm rings`: measures shared-memory rings between two processes. */
#include <stdbool.h>
#include <stdint.h>

/* Runs bench_comm rings. Prints any error itself, and returns false after it. */
bool bench_rings(uint32_t n_rounds);
/* Removes a folder that has only plain files. */
void bench_remove_folder(const char *path);
