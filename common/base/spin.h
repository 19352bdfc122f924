#pragma once
/* Waits for another thread or process without sleeping. */
#include <stdatomic.h>

/* Pauses between two reads of a value that another thread or process will change. The pause lets
 * the other hardware thread of the core work and makes the wait end sooner. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* "yield" does nothing on most ARM cores */
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}
