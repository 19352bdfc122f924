#pragma once
/* Simulates the gateways, and the load that they keep running. */
#include "bench/large_cluster/peers.h"

void scale_gateways_open(struct scale *s);
void scale_gateways_close(struct scale *s);
void scale_gateways_on_msg(struct scale *s, uint32_t i_gateway, const struct msg *m);
/* Submits the streams that the gateways keep running. */
void scale_gateways_start(struct scale *s);
