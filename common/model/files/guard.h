#pragma once
/* Handles mapped files that become shorter while they are in use (a restarted download, `cp`
 * over the file). The next access to such a file raises SIGBUS. After this call the process then
 * ends with exit code 1 and a line on stderr with the file and the remedy. Any other SIGBUS
 * keeps its earlier handling. Call this once per program, before files are opened. */
void file_guard_install(void);
