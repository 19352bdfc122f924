#pragma once
/* The first process of a container (PID 1) gets no SIGTERM and no SIGINT that it has no handler
 * for: told to end before its loop runs (it opens a model, it waits for a file), it would go on
 * until somebody kills it. With this it ends with 128 + the signal's number, as it would anywhere
 * else; the loop's own handlers take over later. Nothing for any other process. Call early in main.
 */
void first_process_install(void);
