#pragma once
/* Waiting without sleeping. */
#include <stdatomic.h>

/* Between two looks at what another thread or process will change: lets the core's other half work
 * and the wait end sooner. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield does nothing on most cores */
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}
