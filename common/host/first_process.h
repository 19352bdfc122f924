#pragma once
/* Makes SIGTERM and SIGINT end the first process of a container (PID 1). The kernel ignores the
 * two signals for PID 1 unless the process has a handler. Without a handler, a process that
 * opens a model or waits for a file, before its loop runs, could only be killed. With this
 * handler the process ends with 128 + the signal's number, as any other process does. The loop
 * installs its own handlers later. The function does nothing in any other process. Call it early
 * in main. */
void first_process_install(void);
