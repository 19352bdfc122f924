#pragma once
/* Calls of newer kernels and C libraries that programs for glibc 2.28 and Linux 4.18 must do
 * without: each function has a fallback. The functions are safe in any thread, and between fork
 * and exec of a process without threads. */
#include <stdbool.h>
#include <sys/types.h>

/* Returns the kernel's id of the calling thread. */
pid_t kernel_thread_id(void);

/* Closes the open descriptors from `first` to `last`; ~0u means all from `first`. */
void kernel_close_range(unsigned first, unsigned last);

/* Sends a signal to a process that `lives(arg)` confirms to be the meant one. A pidfd keeps the
 * number from being reused between the question and the signal. Linux before 5.3 has none, so
 * there the number may be reused in that moment. Returns 0, or -1 with errno; 0 too when the
 * process has ended. */
int kernel_signal_if(pid_t pid, int signal, bool (*lives)(const void *arg), const void *arg);
