#pragma once
/* The last words of a process that crashes: SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write log
 * lines (event crash, then crash_frame for each frame) to stderr and let the signal end the process
 * as it would have: exit status and core file stay what they were. What the handler calls is safe
 * in a signal handler (write and sigaction, on a stack of its own), but for glibc's backtrace,
 * which is called once before so that it loads nothing then. crash frames: PROGRAM+0xOFFSET;
 * `addr2line -e PROGRAM 0xOFFSET` where the build id is the same. Call once, early and before
 * threads. */
void crash_install(void);
