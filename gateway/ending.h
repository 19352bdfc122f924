#pragma once
/* Shutdown of the gateway: probes fail, listeners close, and open requests are finished or get
 * an error. */
#include "gateway/state.h"

void ending_on_signal(void *gateway, int signum);
/* Called at the end of each turn of the loop. Stops the loop when the gateway drains and no work
 * is left. */
void ending_on_turn_end(struct gateway *g);
