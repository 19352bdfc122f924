#pragma once
/* Makes SIGTERM and SIGINT end the first process of a container (PID 1). The kernel ignores both
 * for PID 1 unless it has a handler. Without this, a process that opens a model or waits for a
 * file, before its loop runs, could only be killed. It now ends with 128 + the signal's number,
 * as any other process does. The loop installs its own handlers later. Does nothing in any other
 * process. Call early in main. */
void first_process_install(void);
