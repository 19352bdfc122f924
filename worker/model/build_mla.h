#pragma once
/* Declares the functions that add attention through one latent vector for all heads (MLA) to a
 * program. */
#include "worker/model/build.h"

/* build_mla adds A = attention of H through one latent vector for all heads. The usual output
 * projection over heads of size mla.v follows. */
void build_mla_widths(struct program *p); /* sets the widths; call it before the layers */
void build_mla(struct program *p, uint32_t layer, uint32_t i_rope);
