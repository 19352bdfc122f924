#pragma once
/* A mapped file that is cut short while it is read (a download that starts over, `cp` onto it)
 * answers the next touch with SIGBUS. After this call that ends the process with exit code 1 and a
 * line on stderr that says which file and what to do; any other SIGBUS does what it always did.
 * Once per program, before files are opened. */
void file_guard_install(void);
