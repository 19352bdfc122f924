#pragma once
/* What is said while a shard is read: to the head its share, to a person a bar on the terminal, to
 * a log a line every few seconds. One thread; the share is read by another one. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct load_progress {
    _Atomic uint32_t *permille; /* 1 .. 1000; NULL: nobody asks */
    uint32_t rank, n_ranks;
    uint64_t n_bytes; /* of the shard in memory */
    uint64_t begin_ns, next_ns;
    bool terminal, sampled;
};

/* Of a shard whose size is not known yet. permille, rank and n_ranks are the caller's. */
void load_progress_begin(struct load_progress *p);
void load_progress_at(struct load_progress *p, uint64_t done_bytes);
/* Takes the bar away; after an error too. */
void load_progress_end(struct load_progress *p);

/* How far it is after elapsed_ns: "1.20 of 2.40 GB, 0.51 GB/s, 3 s left". */
struct load_figures {
    double done_gb, all_gb, gb_per_s, left_s; /* left_s < 0: nobody can say yet */
};
struct load_figures load_progress_figures(uint64_t done_bytes, uint64_t n_bytes,
                                          uint64_t elapsed_ns);
/* One line of at most columns characters, without its end. */
void load_progress_bar(const struct load_progress *p, uint64_t done_bytes, uint64_t elapsed_ns,
                       uint32_t columns, char *out, size_t size);
