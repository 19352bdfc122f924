#pragma once
/* How the system shows and runs the calling thread, and threads that it starts from then on. Linux;
 * no privilege is needed. */
#include <stdint.h>

/* Steps go first: niceness of threads that somebody waits for, and of others. On one machine with a
 * worker, whose threads wait for each other many times in a step, a thread beside one of them makes
 * the step of all streams as much longer as it takes; where there is time to spare niceness changes
 * nothing. */
enum { THREAD_NICE_AWAITED = 5, THREAD_NICE_STORE = 10 };

/* name: as `ps -L` shows it, at most 15 bytes. niceness: added to the process's. */
void thread_begin(const char *name, int niceness);

/* Slices of so long (0.1 to 100 ms) instead of the system's usual 3 ms. That is no larger share of
 * a processor: a thread with a short slice is let on soon after it wakes, where others are in the
 * middle of long ones. It is for threads that wait for each other every few hundred microseconds.
 * Before Linux 6.12 nothing happens (custom slices of EEVDF: Stoica and Abdel-Wahab, "Earliest
 * Eligible Virtual Deadline First", 1995). */
void thread_set_slice(uint64_t slice_ns);
