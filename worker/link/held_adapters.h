#pragma once
/* Which adapters this rank has said it holds: what its Hello tells a head that does not know. The
 * weights are the executor's. Loop thread only. */
#include "proto/messages.h"

struct held_adapters {
    struct msg_adapter *all; /* [n]; names and paths are owned */
    uint32_t n;
};

/* on: it is held now (once is enough); else it is not. */
void held_adapters_set(struct held_adapters *h, const struct msg_adapter *a);
void held_adapters_fini(struct held_adapters *h);
