#pragma once
/* Shuts the gateway down: probes fail, listeners close, and open requests are finished or get an
 * error. */
#include "gateway/state.h"

void ending_on_signal(void *gateway, int signum);
/* Stops the loop when the gateway drains and no work is left. The gateway calls this function at
 * the end of each turn of the loop. */
void ending_on_turn_end(struct gateway *g);
