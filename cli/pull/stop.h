#pragma once
/* Handles SIGINT, SIGTERM and SIGHUP during a fetch, so that the fetch ends cleanly. The
 * fetching code keeps or removes the fetched parts. */
#include <stdbool.h>

void pull_stop_on_signals(void); /* Installs the handlers of the signals. */
void pull_stop_end(void);        /* Restores the handlers that were installed before. */
bool pull_is_stopped(void);      /* Returns true after a signal; used as pull_options.is_stopped. */
