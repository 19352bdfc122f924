#pragma once
/* Declares the mixture operators of struct ops and the gates of shared experts. */
#include "kernels/cpu/backend/state.h"

void cpu_route(struct device *d, const struct route_params *p);
void cpu_moe(struct device *d, const struct moe_params *p);
void cpu_gate_rows(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                   struct view gate);
