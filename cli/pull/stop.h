#pragma once
/* SIGINT, SIGTERM and SIGHUP while something is fetched: it ends in good order, and what is here is
 * kept or taken away by who fetches. */
#include <stdbool.h>

void pull_stop_on_signals(void); /* from now on, until somebody else takes them */
void pull_stop_end(void);        /* gives them back to whoever had them before */
bool pull_is_stopped(void);      /* one of them came; for pull_options.is_stopped */
