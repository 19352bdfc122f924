#pragma once
/* How the gateway ends: probes say so, doors close, open requests are answered or told. */
#include "gateway/state.h"

void ending_on_signal(void *gateway, int signum);
/* At the end of a turn of the loop: nothing is left to wait for. */
void ending_on_turn_end(struct gateway *g);
