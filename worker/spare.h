#pragma once
/* Waits as a spare process: `cox-worker spare [OPTION...]` does what no model is needed for, and
 * then reads the command line of a worker from its stdin (common/loop/handover.h). `cox up` starts
 * spares with the options that bind a process to its device and CPUs. */

/* Waits for a command line and puts it into *argc and *argv, which live as long as the process.
 * Returns -1 when the process is now that worker, else the exit code: 0 when the supervisor has
 * ended before. The main thread calls it before other threads exist. */
int spare_wait(int *argc, char ***argv);
