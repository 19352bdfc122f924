#pragma once
/* Attention through one latent vector for all heads (MLA). */
#include "worker/model/build.h"

/* A = attention of H through one latent vector for all heads; OUT is then the usual
 * output over heads of mla.v. */
void build_mla_widths(struct program *p); /* before the layers */
void build_mla(struct program *p, uint32_t layer, uint32_t i_rope);
