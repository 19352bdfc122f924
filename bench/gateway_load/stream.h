#pragma once
/* Runs the streams of the load. A wrong byte in an answer ends the program. */
#include "bench/gateway_load/load.h"

void load_stream_open(struct load *l, uint32_t i);
void load_stream_read(struct load *l, uint32_t i);
