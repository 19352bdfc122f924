#pragma once
/* Handles mapped files that become shorter while they are in use (a restarted download, `cp`
 * over the file). The next access to such a file raises SIGBUS. After this call the process then
 * exits with code 1 and writes a line to stderr with the file and the remedy. Any other SIGBUS
 * keeps its earlier handling. Call this once per program, before files are opened. */
void file_guard_install(void);
