#pragma once
/* Handles SIGINT, SIGTERM and SIGHUP during a fetch, so that the fetch ends cleanly. The
 * fetching code keeps or removes the fetched parts. Handlers belong to the whole process: only a
 * program without handlers of its own (loop_on_signal) may install them. */
#include <stdbool.h>

void pull_stop_on_signals(void); /* Installs the handlers of the signals. */
void pull_stop_end(void);        /* Restores the handlers that were installed before. */
void pull_stop(void);            /* Stops a fetch on another thread, as a signal does. */
bool pull_is_stopped(void);      /* Returns true after a signal; used as pull_options.is_stopped. */
