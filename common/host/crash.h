#pragma once
/* Reports a crash. On SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT the process writes log lines
 * to stderr (event crash, then crash_frame for each frame). The signal then ends the process as
 * usual, with the same exit status and core file.
 * The handler runs on its own stack and calls only functions that are safe in a signal handler.
 * The exception is glibc's backtrace, which crash_install calls once so that later calls load
 * nothing. A frame is PROGRAM+0xOFFSET. Decode the frame with `addr2line -e PROGRAM 0xOFFSET`,
 * with a program of the same build id. Call crash_install once, early and before other threads
 * start. */
void crash_install(void);
/* Returns the program's build id in hexadecimal digits, or "" when the program has none. The id is
 * known after crash_install. */
const char *crash_build_id(void);
