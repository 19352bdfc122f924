#pragma once
/* Makes SIGTERM and SIGINT end the first process of a container (PID 1). The kernel ignores both
 * for PID 1 unless it has a handler, so a process told to end before its loop runs (it opens a
 * model, it waits for a file) would continue until it is killed. It now ends with 128 + the
 * signal's number, as any other process does. The loop installs its own handlers later. Does
 * nothing in any other process. Call early in main. */
void first_process_install(void);
