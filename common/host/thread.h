#pragma once
/* Sets the name, niceness and time slice of the calling thread, and of threads that it starts
 * later. The functions work on Linux only, and need no privilege. */
#include <stdint.h>

/* THREAD_NICE_AWAITED is the niceness of helper threads that a request waits for.
 * THREAD_NICE_STORE is the niceness of threads that store data in the background. The threads of
 * a step have priority over both kinds. A worker's threads wait for each other many times in a
 * step. So a helper that takes time from one of them delays the step for all streams. On a
 * machine with idle cores niceness has no effect. */
enum { THREAD_NICE_AWAITED = 5, THREAD_NICE_STORE = 10 };

/* Prepares the calling thread. `name` has at most 15 bytes. `ps -L` shows it. `niceness` is
 * added to that of the process. */
void thread_begin(const char *name, int niceness);

/* Sets the thread's time slice (0.1 to 100 ms; the system's usual slice is 3 ms). The thread's
 * share of a CPU does not grow. A thread with a short slice runs sooner after it wakes, when
 * other threads are in the middle of long slices. The call is for threads that wait for each
 * other every few hundred microseconds. Before Linux 6.12 it has no effect (custom slices of
 * EEVDF: Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995). */
void thread_set_slice(uint64_t slice_ns);
