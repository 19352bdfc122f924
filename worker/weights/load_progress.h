#pragma once
/* Shows the progress of loading a shard: a share for the head, a bar on a terminal, or a log
 * line every few seconds. One thread writes; another thread reads the share. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct load_progress {
    _Atomic uint32_t *permille; /* loaded share of the shard, 1 .. 1000; may be NULL */
    uint32_t rank, n_ranks;
    uint64_t n_bytes; /* size of the shard in memory */
    uint64_t begin_ns, next_ns;
    bool terminal, sampled;
    /* called with each new share of the loading; may be NULL */
    void (*on_done)(void *ctx, uint64_t done_bytes);
    void *ctx;
};

/* Begins to report, before the size is known. The caller sets permille, rank and n_ranks. */
void load_progress_begin(struct load_progress *p);
void load_progress_at(struct load_progress *p, uint64_t done_bytes);
/* Removes the bar; call it after an error too. */
void load_progress_end(struct load_progress *p);

/* `load_figures` holds the figures after elapsed_ns, for a text such as "1.20 of 2.40 GB, 0.51
 * GB/s, 3 s left". */
struct load_figures {
    double done_gb, all_gb, gb_per_s, left_s; /* left_s < 0 = not known yet */
};
struct load_figures load_progress_figures(uint64_t done_bytes, uint64_t n_bytes,
                                          uint64_t elapsed_ns);
/* Writes one line of at most `columns` characters, without a newline. */
void load_progress_bar(const struct load_progress *p, uint64_t done_bytes, uint64_t elapsed_ns,
                       uint32_t columns, char *out, size_t size);
