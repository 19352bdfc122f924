#pragma once
/* Declares the functions of the emulation's engine (engine.cpp) that its headers use. A grid
 * runs on the host thread that calls run_grid, one block at a time. The threads of a block are
 * fibers, which switch at meetings: the points where threads wait for each other. Each host
 * thread has its own engine. */
#include <stddef.h>
#include <stdint.h>

#include "types.h"

namespace emulate
{
constexpr unsigned WARP = 32, MAX_THREADS = 1024;
constexpr size_t MAX_SHARED_BYTES = 227 << 10; /* limit of dynamic shared memory on sm_90 */
constexpr uint32_t ALL_LANES = 0xffffffffu;

struct grid {
    dim3 n_blocks, n_threads;
    size_t n_shared_bytes;
    void (*thread)(const void *closure);
    const void *closure;
    const char *name; /* name of the kernel, for messages */
};
void run_grid(const grid &g);

/* `exchange` holds the inputs and results of the lanes of a warp in a meeting. */
struct exchange {
    uint64_t values[WARP], results[WARP];
    uint32_t params[WARP];
    alignas(64) unsigned char tile[2048]; /* operands of mma */
    uint32_t loaded[WARP][4];             /* results of ldmatrix */
};
/* `warp_call` describes a meeting of lanes of one warp. The last lane of `mask` to arrive runs
 * the meeting for all lanes. `lanes` are the lanes of `mask` that have not left the kernel. */
struct warp_call {
    const char *name;
    void (*run)(exchange *x, uint32_t lanes);
};
/* Returns the exchange of the warp. Apart from `value` and `param`, each lane has separate
 * places for its inputs and its result. The reason is that lanes that continue may arrive at the
 * next meeting while others have not left this meeting. */
exchange *warp_exchange();
/* Runs a meeting and returns the lane's result. */
uint64_t meet(uint32_t mask, const warp_call *call, uint64_t value, uint32_t param);

enum barrier_kind { BARRIER_PLAIN, BARRIER_OR, BARRIER_AND, BARRIER_COUNT };
int barrier(barrier_kind kind, bool predicate);

extern __thread unsigned thread_index; /* number of the running thread in its block */
inline unsigned lane_index()
{
    return thread_index % WARP;
}
uint32_t lanes_alive(); /* returns the lanes of the calling lane's warp that have not left */
void *dynamic_shared();

/* The functions below make the asynchronous copies of the calling thread. `to` is poisoned until
 * the wait; n_bytes is 4, 8 or 16. */
void copy_begin(void *to, const void *from, unsigned n_bytes, bool valid);
void copy_commit();
void copy_wait(unsigned n_groups_left);

/* Prefetches memory. A device ignores a prefetch outside of its memory and an unused prefetch.
 * Here a prefetch outside of the memory is an error. A piece of 64 bytes that the block
 * prefetched and did not read is an error too. An asynchronous copy counts as a read, and so
 * does a load that calls prefetch_used. */
void prefetch(const void *ptr);
void prefetch_used(const void *ptr);
bool is_of_device(const void *ptr); /* implemented in memory.cpp */

/* Prints the message and the place in the kernel, and aborts. */
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace emulate
