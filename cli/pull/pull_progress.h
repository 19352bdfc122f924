#pragma once
/* How far a pull is, on stderr: a bar on a terminal, else a line every five seconds. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Several threads may call what is here but for start and clear. */
struct pull_progress {
    pthread_mutex_t mutex;
    bool quiet, is_terminal, is_drawn;
    const char *name;              /* of the file */
    uint64_t done, total, fetched; /* bytes of all files; fetched: by this run */
    uint64_t begin_ns, said_ns;
};

void pull_progress_start(struct pull_progress *p, bool quiet, uint64_t done, uint64_t total);
void pull_progress_name(struct pull_progress *p, const char *name); /* borrowed */
void pull_progress_add(struct pull_progress *p, uint64_t n_bytes);
/* Bytes that have to come again. */
void pull_progress_take_back(struct pull_progress *p, uint64_t n_bytes);
/* Clears the bar, before a line of somebody else and at the end. */
void pull_progress_clear(struct pull_progress *p);
/* "1.5 GiB" */
const char *pull_bytes_text(char *out, size_t size, uint64_t n_bytes);
