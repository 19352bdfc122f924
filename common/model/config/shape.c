#include "common/model/config/shape.h"

void model_config_set_pattern(struct model_config *c, uint32_t full_every)
{
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->layer_is_window[i] = (i + 1) % full_every != 0;
}
