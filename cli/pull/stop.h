#pragma once
/* SIGINT, SIGTERM and SIGHUP during a fetch: the fetch ends in good order. The fetching code
 * keeps or removes the parts that are here. */
#include <stdbool.h>

void pull_stop_on_signals(void); /* installs the handlers */
void pull_stop_end(void);        /* restores the earlier handlers */
bool pull_is_stopped(void);      /* true = a signal came; for pull_options.is_stopped */
