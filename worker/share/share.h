#pragma once
/* Shares packed weights between the processes of one user on this host (docs/develop/worker.md,
 * section "Shared weights"). The first process packs, the others wait and map the same memory. A
 * share belongs to one thread. */
#include "worker/share/memory.h"
#include "worker/share/table.h"

/* `share_ask` says which weights. `on_wait`, which may be NULL, is called again and again while
 * another process packs, with the bytes that it has packed. */
struct share_ask {
    const char *option; /* --weights-share, not "off" */
    uint8_t key[16];
    uint64_t n_bytes;
    uint64_t stall_ns; /* longest wait without progress; 0 = 60 s */
    void (*on_wait)(void *ctx, uint64_t done_bytes);
    void *ctx;
};

struct share {
    int dir_fd;
    struct share_table table;
    struct share_memory memory;
    uint8_t key[16];
    bool is_packed; /* true: the memory holds the weights. false: this process must pack them. */
    uint64_t beat;
};

/* Finds the weights, waits for the process that packs them, or begins to pack them. After an error
 * there is no share, and the caller packs into private memory; the text has the reason.
 * STATUS_TIMEOUT: another process packs and makes no progress. */
MUST_USE enum status share_open(const struct share_ask *ask, struct share **out, struct error *err);
/* Takes the pages of the memory before it is packed. */
MUST_USE enum status share_reserve(struct share *s, struct device *d, struct error *err);
/* Tells the waiting processes that the packing proceeds. */
void share_beat(struct share *s, uint64_t done_bytes);
/* Offers the packed weights to other processes. After an error only this process has them. */
MUST_USE enum status share_publish(struct share *s, struct error *err);
/* Drops the weights; the last process frees them. A process that stops to pack lets the next one
 * begin. s may be NULL. */
void share_close(struct share *s);
